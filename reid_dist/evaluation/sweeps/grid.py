"""Grids of parameters: values and ranges as texts, and points in the order of the grid and in that of the work."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np

from reid_dist.core.formatting import have
from reid_dist.core.numeric import is_whole
from reid_dist.core.registry import did_you_mean
from reid_dist.core.specs import call_text, parse_spec, value_text
from reid_dist.errors import InputError
from reid_dist.evaluation.swept import Value, Values
from reid_dist.stages.expansion import EXPANSIONS, Step, describe_expansion, make_step, parse_expand, spelled
from reid_dist.stages.expansion.expansion_steps import Expansion
from reid_dist.stages.reranking import Reranking, make_rerank, parse_rerank
from reid_dist.stages.reranking.rerankers import (
    FLAG,
    KINDS,
    NAME,
    NUMBER,
    WHOLE,
    parameters_of,
    read_call,
    values_of,
    with_values,
)

MOST_POINTS = 500

FUSE = "fuse"
WEIGHT = "weight"
"""The parameter that is the weight of a fused model."""

_INTEGER = re.compile(r"[+-]?\d+")


@dataclass(frozen=True)
class Axis:
    """A parameter and its values, each once, in the order given."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Point:
    """One setting of all parameters, as a spec `name`, and as the expansion and the re-ranking of `evaluate`.

    `reach` is the length of the neighbour lists it takes; points that agree in `shared` can use each other's derived
    stages.
    """

    values: dict[str, Value]
    expand: tuple[Step, ...] | None
    rerank: Reranking | None
    name: str
    reach: int
    shared: tuple[Value, ...]

    @property
    def weight(self) -> float:
        """Weight of a fused model that has none of its own."""
        return float(self.values.get(WEIGHT, 0.0))


@dataclass(frozen=True)
class Grid:
    """All points of a sweep, its `kind` being what has the parameters; the last parameter changes fastest."""

    kind: str
    method: dict[str, Any]
    axes: tuple[Axis, ...]
    points: tuple[Point, ...]

    @property
    def order(self) -> list[int]:
        """Which points to evaluate one after the other: the longest lists first, which then serve all others."""
        return sorted(
            range(len(self.points)), key=lambda place: (-self.points[place].reach, str(self.points[place].shared))
        )


def parse_values(name: str, given: Values, kind: str = NUMBER) -> tuple[Value, ...]:
    """Read the values of a parameter, each once, of a kind of `reid_dist.stages.reranking.rerankers`.

    A text holds values and ranges ``first:last`` and ``first:last:step`` with commas between them.  A range holds its
    last value where its steps lead there.
    """
    found: list[Value] = []
    if isinstance(given, str):
        for piece in given.split(","):
            found += _piece(name, piece.strip(), given, kind)
    elif isinstance(given, bool | int | float | np.number):
        found = [_value(name, given, kind)]
    else:
        found = [_value(name, value, kind) for value in given]
    if not found:
        raise InputError(f"{name} has no values; give at least one")
    _refuse_many(name, len(found))
    # 1 and 1.0 are one value; what was given first stays.
    return tuple(dict.fromkeys(found))


def _piece(name: str, piece: str, whole: str, kind: str) -> list[Value]:
    if kind in (NAME, FLAG):
        if not piece or (kind == FLAG and piece not in ("true", "false")):
            raise InputError(f"cannot read {name} {whole!r}; write {kind} with commas between them")
        return [piece if kind == NAME else piece == "true"]
    numbers = [_decimal(name, text.strip(), whole, kind) for text in piece.split(":")]
    if len(numbers) == 1:
        return [_number(numbers[0], kind)]
    if len(numbers) > 3:
        raise InputError(f"cannot read {name} {whole!r}; a range is first:last or first:last:step")
    first, last = numbers[:2]
    step = numbers[2] if len(numbers) == 3 else Decimal(1)
    if step <= 0:
        raise InputError(f"{name} {whole!r} has a step of {step}; a step must be larger than 0")
    if last < first:
        raise InputError(f"{name} {whole!r} goes from {first} down to {last}; a range goes upwards")
    n_steps = int((last - first) / step)
    _refuse_many(name, n_steps + 1)
    # In decimal numbers, as they were written: 0:1:0.1 has eleven values, and the fourth is 0.3.
    return [_number(first + count * step, kind) for count in range(n_steps + 1)]


def _decimal(name: str, text: str, whole: str, kind: str) -> Decimal:
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    if not value.is_finite() or abs(value) > Decimal(10) ** 18:
        raise InputError(
            f"cannot read {name} {whole!r}; write values such as 1,6,10 or ranges such as 0:10 or 10:30:5, both ends "
            "included"
        )
    if kind == WHOLE and not _INTEGER.fullmatch(text):
        raise InputError(f"{name} takes whole numbers, found {text!r} in {whole!r}")
    return value


def _number(value: Decimal, kind: str) -> Value:
    return int(value) if kind == WHOLE else float(value)


def _value(name: str, value: object, kind: str) -> Value:
    """Check a value that did not come as a text."""
    if (kind == NAME and isinstance(value, str)) or (kind == FLAG and isinstance(value, bool)):
        return value
    if is_whole(value) and kind in (WHOLE, NUMBER):
        return int(value) if kind == WHOLE else float(value)
    if isinstance(value, float | np.floating) and kind == NUMBER and math.isfinite(value):
        return float(value)
    raise InputError(f"{name} takes {kind}, found {value!r}")


def _refuse_many(what: str, n_values: int) -> None:
    if n_values > MOST_POINTS:
        raise InputError(f"{what} has {n_values} values, and a sweep takes {MOST_POINTS} points at most; take fewer")


def make_grid(
    expand: str | Sequence[Step] | None,
    rerank: str | Reranking | None,
    given: Mapping[str, Values | None],
    *,
    include_self: bool = False,
) -> Grid:
    """Make the grid of a sweep over the parameters of an expansion (the last one of several) or of a re-ranking.

    `given` are values by parameter, None for what is not swept.  Values that the spec fixes are fixed.  A sweep over
    weights of a fused model takes expansion and re-ranking as they are.
    """
    if given.get(WEIGHT) is not None:
        return _weights(expand, rerank, {name: values for name, values in given.items() if values is not None})
    if (expand is None) == (rerank is None):
        raise InputError(
            "a sweep goes over the parameters of one thing: give either an expansion (expand, --expand aqe) or a "
            "re-ranking (rerank, --rerank k_reciprocal), "
            + ("not both" if expand is not None else "and neither is given")
        )
    spec = expand if expand is not None else rerank
    if not isinstance(spec, str):
        what = "an expansion" if expand is not None else "a re-ranking"
        raise InputError(f"a sweep takes {what} as a text with its name, found {spec!r}")
    if expand is not None:
        what = parse_spec("expansion", spec)[-1].name
        kinds = _parameters_of_expansion(what)
    else:
        call = read_call(spec)
        what, kinds = call.name, parameters_of(call)
    swept = {name: values for name, values in given.items() if values is not None}
    for name in swept:
        if name not in kinds:
            raise InputError(f"{name} is no parameter of {what}, which has {', '.join(kinds)}")
    axes = tuple(Axis(name, parse_values(name, swept[name], kind)) for name, kind in kinds.items() if name in swept)
    if not axes:
        raise InputError(f"there is nothing to sweep over; give values of {', '.join(kinds)}")
    if (n_points := math.prod(len(axis.values) for axis in axes)) > MOST_POINTS:
        raise InputError(f"the grid has {n_points} points, and a sweep takes {MOST_POINTS} at most; take fewer values")
    settings = [
        dict(zip((axis.name for axis in axes), values, strict=True))
        for values in itertools.product(*(axis.values for axis in axes))
    ]
    if expand is not None:
        return _expansions(spec, include_self, axes, settings)
    if include_self:
        raise InputError("include_self belongs to query expansion, and a re-ranking has none")
    return _rerankings(spec, axes, settings)


def _parameters_of_expansion(name: str) -> dict[str, str]:
    """Names of the parameters that a sweep can go over, with the kinds of their values.

    `include_self` is a keyword of its own; of a type with alternatives, such as ``int | str``, the first is swept.
    """
    method = EXPANSIONS.get(name)
    types = {field.name: str(field.type).partition(" | ")[0] for field in fields(method.kind or Expansion)}
    return {name: KINDS[types[name]] for name in method.parameters if name != "include_self"}


def _expansions(spec: str, include_self: bool, axes: tuple[Axis, ...], settings: list[dict[str, Value]]) -> Grid:
    *before, last = parse_spec("expansion", spec)
    known = EXPANSIONS.get(last.name).parameters
    fixed = dict(last.values) | ({"include_self": True} if include_self else {})
    for name in (*(axis.name for axis in axes), *fixed):
        if name not in known:
            raise InputError(did_you_mean(f"parameter of {last.name}", name, known))
    _refuse_twice(last.values, axes, f"the expansion {spec!r}")
    if "k" in known and "k" not in fixed and all(axis.name != "k" for axis in axes):
        raise InputError(f"{last.name} needs numbers of neighbours; give k, such as 0:10 (--k 0:10)")
    first = tuple(make_step(call.name, call.values) for call in before)
    points = []
    for values in settings:
        step = make_step(last.name, fixed | values)
        steps = parse_expand((*first, step))
        points.append(Point(values, steps, None, spelled(steps), step.n_listed, (step.n_listed,)))
    method = describe_expansion(steps)
    swept = {axis.name for axis in axes}
    others = {name: getattr(step, name) for name in known if name not in swept}
    return Grid("expand", {**method, "name": spec, "fixed": others}, axes, tuple(points))


def _rerankings(spec: str, axes: tuple[Axis, ...], settings: list[dict[str, Value]]) -> Grid:
    call = read_call(spec)
    _refuse_twice(values_of(call), axes, f"the re-ranking {spec!r}")
    points = []
    for values in settings:
        how = make_rerank(with_values(call, values))
        points.append(Point(values, None, how, str(how), how.n_listed, how.shared))
    swept = {axis.name for axis in axes}
    others = {key: value for key, value in how.parameters.items() if key not in swept}
    return Grid("rerank", {"name": spec, "fixed": others}, axes, tuple(points))


def _weights(expand: str | Sequence[Step] | None, rerank: str | Reranking | None, swept: Mapping[str, Values]) -> Grid:
    """Grid over the weight of a fused model."""
    if others := [name for name in swept if name != WEIGHT]:
        raise InputError(f"weight is swept alone, and {', '.join(others)} {have(others)} values as well")
    axis = Axis(WEIGHT, parse_values(WEIGHT, swept[WEIGHT]))
    for value in axis.values:
        if not 0 <= float(value) <= 1:
            raise InputError(f"weight is a share from 0 to 1, found {value_text(value)}")
    steps = None if expand is None else parse_expand(expand)
    how = None if rerank is None else parse_rerank(rerank)
    stages = {
        **({} if steps is None else {"expand": spelled(steps)}),
        **({} if how is None else {"rerank": str(how)}),
    }
    settings: list[dict[str, Value]] = [{WEIGHT: value} for value in axis.values]
    points = [Point(values, steps, how, call_text(FUSE, values), 0, (values[WEIGHT],)) for values in settings]
    definition = "cosine = (1 - weight of all others) own + weight other, by features of length 1 side by side"
    return Grid(FUSE, {"name": FUSE, "definition": definition, "fixed": stages}, (axis,), tuple(points))


def _refuse_twice(fixed: Mapping[str, object], axes: Sequence[Axis], where: str) -> None:
    for axis in axes:
        if axis.name in fixed:
            raise InputError(f"{axis.name} is given twice: {where} fixes it, and values of it are to be swept")
