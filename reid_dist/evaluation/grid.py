"""Grids of parameters: values and ranges as texts, and points in the order of the grid and in that of the work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np

from reid_dist.core.formatting import have
from reid_dist.core.parameters import Parameter, shown
from reid_dist.core.specs import Call, Value, call_text, parse_spec
from reid_dist.errors import InputError
from reid_dist.stages.expansion.expansion_steps import (
    EXPANSIONS,
    Step,
    describe_expansion,
    make_step,
    parse_expand,
    spelled,
)
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS, Values
from reid_dist.stages.reranking.rerankers import (
    Reranking,
    declared_in,
    make_rerank,
    parse_rerank,
    read_call,
    with_values,
)

MOST_POINTS = 500

FUSE = "fuse"
WEIGHT = "weight"
"""The parameter that is the weight of a fused model."""


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


def parse_values(parameter: Parameter, given: Values, of: str = "") -> tuple[Value, ...]:
    """Read the values of a parameter, each once; `of` comes after its name in messages.

    A text holds values, and ranges ``first:last`` and ``first:last:step``, with commas between them.  A range holds its
    last value where its steps lead there.
    """
    name = f"{parameter.name}{of}"
    found: list[Value] = []
    try:
        if isinstance(given, str):
            for piece in given.split(","):
                found += _piece(parameter, piece.strip())
        else:
            several: Any = given if np.iterable(given) else [given]
            found += [_checked(value, parameter.check) for value in several]
        _refuse_many(len(found))
    except ValueError as error:
        if not isinstance(given, str):
            raise InputError(f"{name} {error}") from None
        raise InputError(
            f"cannot read {name} {given!r}: it {error}; write values with commas between them, and ranges of numbers "
            "as 0:10 or 10:30:5"
        ) from None
    if not found:
        raise InputError(f"{name} has no values; give at least one")
    # 1 and 1.0 are one value; what was given first stays.
    return tuple(dict.fromkeys(found))


def _checked(value: Any, check: Callable[[Any], Value]) -> Value:
    """A value, or what it must be and what was found."""
    try:
        return check(value)
    except ValueError as error:
        raise ValueError(f"{error}, found {shown(value)}") from None


def _piece(parameter: Parameter, piece: str) -> list[Value]:
    """Values of a text, or of a range if the parameter is a number."""
    ends = [end.strip() for end in piece.split(":")]
    numeric = tuple(form for form in parameter.forms if form in ("whole", "number"))
    if len(ends) == 1 or not numeric:
        return [_checked(piece, parameter.read)]
    if len(ends) > 3:
        raise ValueError(f"has a range {piece!r}, and a range is first:last or first:last:step")
    for end in ends:
        _checked(end, replace(parameter, forms=numeric, choices=(), limits=None).read)
    # In decimal numbers, as they were written: 0:1:0.1 has eleven values, and the fourth is 0.3.
    first, last, step = map(Decimal, [*ends, "1"][:3])
    if step <= 0:
        raise ValueError(f"has a step of {step}; a step must be larger than 0")
    if last < first:
        raise ValueError(f"goes from {first} down to {last}; a range goes upwards")
    n_steps = int((last - first) / step)
    _refuse_many(n_steps + 1)
    return [_checked(str(first + count * step), parameter.read) for count in range(n_steps + 1)]


def _refuse_many(n_values: int) -> None:
    if n_values > MOST_POINTS:
        raise ValueError(f"has {n_values} values, and a sweep takes {MOST_POINTS} points at most; take fewer")


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
    swept = {name: values for name, values in given.items() if values is not None}
    if WEIGHT in swept:
        return _weights(expand, rerank, swept)
    if (expand is None) == (rerank is None):
        raise InputError(
            "give either an expansion (--expand aqe) or a re-ranking (--rerank k_reciprocal) to sweep, "
            + ("not both" if expand is not None else "neither is given")
        )
    # Anything but text is refused as a spec.
    spec: Any = expand if rerank is None else rerank
    first: tuple[Step, ...] = ()
    if rerank is None:
        *before, call = parse_spec("expansion", spec)
        first = tuple(make_step(each.name, each.values) for each in before)
        if include_self:
            call = replace(call, values={**call.values, "include_self": True})
        declared = EXPANSIONS.get(call.name).declared
    else:
        call = read_call(spec)
        declared = declared_in(call)
        if include_self:
            raise InputError("include_self belongs to query expansion, and a re-ranking has none")
    # A keyword of its own.
    declared = {name: each for name, each in declared.items() if name != "include_self"}
    axes = _axes(call, declared, swept, spec)

    def point(values: dict[str, Value]) -> Point:
        if rerank is not None:
            how = make_rerank(with_values(call, values))
            return Point(values, None, how, str(how), how.n_listed, how.shared)
        step = make_step(call.name, {**call.values, **values})
        steps = parse_expand((*first, step))
        return Point(values, steps, None, spelled(steps), step.n_listed, (step.n_listed,))

    points = tuple(
        point(dict(zip((axis.name for axis in axes), values, strict=True)))
        for values in itertools.product(*(axis.values for axis in axes))
    )
    last, described = points[-1], {}
    if last.expand is not None:
        described = describe_expansion(last.expand)
    settings: Any = last.rerank if last.expand is None else last.expand[-1]
    fixed = {name: value for name, value in settings.parameters.items() if name not in swept}
    kind = "rerank" if last.expand is None else "expand"
    return Grid(kind, {**described, "name": spec, "fixed": fixed}, axes, points)


def _axes(call: Call, declared: Mapping[str, Parameter], swept: Mapping[str, Values], spec: object) -> tuple[Axis, ...]:
    """Read the values of all parameters that are swept."""
    for name in swept:
        if name not in declared:
            raise InputError(f"{name} is no parameter of {call.name}, which has {', '.join(declared)}")
        if name in call.all_values:
            raise InputError(f"{name} is given twice: {spec!r} fixes it, and values of it are to be swept")
    if not swept:
        raise InputError(f"there is nothing to sweep over; give values of {', '.join(declared)}")
    axes = tuple(
        Axis(name, parse_values(each, swept[name], f" of {call.name}"))
        for name, each in declared.items()
        if name in swept
    )
    if (n_points := math.prod(len(axis.values) for axis in axes)) > MOST_POINTS:
        raise InputError(f"the grid has {n_points} points, and a sweep takes {MOST_POINTS} at most; take fewer values")
    return axes


def _weights(expand: str | Sequence[Step] | None, rerank: str | Reranking | None, swept: Mapping[str, Values]) -> Grid:
    """Grid over the weight of a fused model."""
    if others := [name for name in swept if name != WEIGHT]:
        raise InputError(f"weight is swept alone, and {', '.join(others)} {have(others)} values as well")
    axis = Axis(WEIGHT, parse_values(SWEPT_PARAMETERS[WEIGHT].of_type(WEIGHT, float), swept[WEIGHT]))
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
