"""Messages on declarative files: every problem, its place, and the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reid_dist.core.formatting import counted, first_few
from reid_dist.core.parameters import shown
from reid_dist.core.registry import nearest_hint
from reid_dist.errors import InputError

_MOST_KNOWN = 12

Known = Iterable[str] | type[BaseModel]
"""Names of keys, or the model of the whole file, whose keys depend on the place."""


def explain(what: str, error: ValidationError, known: Known, others: Iterable[str] = ()) -> str:
    """Put all problems that pydantic found in the file `what` into one line; see `problems_of`."""
    return in_one_line(what, problems_of(error, known, others))


def in_one_line(what: str, problems: Sequence[str]) -> str:
    """Return the number of problems of a file, and all of them."""
    return f"{what} has {counted(len(problems), 'problem')}: " + "; ".join(problems)


def problems_of(error: ValidationError, known: Known, others: Iterable[str] = ()) -> list[str]:
    """Return each problem that pydantic found, with its path; `others` are field names of other kinds of file."""
    given, elsewhere = known if isinstance(known, type) else list(known), set(others)
    problems = []
    for problem in error.errors(include_url=False):
        path = ".".join(str(part) for part in problem["loc"]) or "the file"
        if problem["type"] == "extra_forbidden":
            key = str(problem["loc"][-1])
            if key in elsewhere and len(problem["loc"]) == 1:
                problems.append(f"{path}: unknown key for this kind, though others have it; leave it out")
            else:
                problems.append(f"{path}: unknown key{_advice(key, given, problem['loc'][:-1])}")
        elif problem["type"] == "missing":
            problems.append(f"{path}: missing")
        elif isinstance(own := problem.get("ctx", {}).get("error"), InputError):
            problems.append(f"{path}: {own}")
        else:
            text = problem["msg"].removeprefix("Value error, ")
            problems.append(f"{path}: {text[:1].lower()}{text[1:]}, found {shown(problem['input'])}")
    return problems


def _advice(key: str, known: list[str] | type[BaseModel], place: Sequence[int | str]) -> str:
    """What to write in place of an unknown key."""
    if isinstance(known, list):
        hint = nearest_hint(key, known)
        return f",{hint}" if hint else ""
    if place and key in known.model_fields:
        return " there: it is one of the whole file"
    if homes := [name for name in known.model_fields if key in _keys_at(known, (name, ""))]:
        return f" there: it is one of the entries of {' and '.join(homes)}"
    names = [*_keys_at(known, place)]
    hint = nearest_hint(key, names)
    return f",{hint}" if hint else f"; known: {first_few(names, _MOST_KNOWN)}"


def _keys_at(model: type[BaseModel], place: Sequence[int | str]) -> dict[str, None]:
    """Keys that a file of a model may have at a place, in order."""
    # Models with the number of keys or positions that lead into a mapping or list of them.
    here: list[tuple[type[BaseModel], int]] = [(model, 0)]
    for part in place:
        found: list[tuple[type[BaseModel], int]] = []
        for each, depth in here:
            if depth:
                found.append((each, depth - 1))
            elif part in each.model_fields:
                found += _models_in(each.model_fields[str(part)].annotation, 0)
            else:
                # The kind of value that was tried, of several.
                found.append((each, 0))
        here = found
    return dict.fromkeys(name for each, depth in here if not depth for name in each.model_fields)


def _models_in(annotation: Any, depth: int) -> Iterator[tuple[type[BaseModel], int]]:
    """Models in an annotation, with the number of mappings and lists around each."""
    origin = get_origin(annotation)
    if isinstance(annotation, type) and origin is None:
        if issubclass(annotation, BaseModel):
            yield annotation, depth
        return
    holds = isinstance(origin, type) and issubclass(origin, Mapping | list | tuple)
    for argument in get_args(annotation):
        yield from _models_in(argument, depth + holds)
