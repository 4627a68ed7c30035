"""Messages on declarative files: every problem, its place, and the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_origin

from pydantic import BaseModel, ValidationError

from reid_dist.core.formatting import first_few
from reid_dist.core.parameters import shown
from reid_dist.core.registry import nearest_hint
from reid_dist.core.yaml_text import Document, Path
from reid_dist.errors import InputError, refusal

_MOST_KNOWN = 12

Known = Iterable[str] | type[BaseModel]
"""Names of keys, or the model of the whole file, whose keys depend on the place."""


class Problem(NamedTuple):
    """One fault of a file: keys and positions that lead to the value, and what is wrong with it."""

    path: Path
    text: str


def file_refusal(what: str, problems: Iterable[Problem], document: Document) -> InputError:
    """Return one error on the file `what` with all of its problems, in the order of their lines."""
    in_order = sorted(problems, key=lambda each: document.line(each.path) or 0)
    return refusal([*dict.fromkeys(f"{document.place(each.path)}: {each.text}" for each in in_order)], what)


def problems_of(error: ValidationError, known: Known, others: Iterable[str] = ()) -> list[Problem]:
    """Return all problems that pydantic found; `others` are field names of other kinds of file."""
    given, elsewhere = known if isinstance(known, type) else list(known), set(others)
    problems = []
    for problem in error.errors(include_url=False):
        path = problem["loc"]
        if problem["type"] == "extra_forbidden":
            key = str(path[-1])
            if key in elsewhere and len(path) == 1:
                texts = ["unknown key for this kind, though others have it; leave it out"]
            else:
                texts = [f"unknown key{_advice(key, given, path[:-1])}"]
        elif problem["type"] == "missing":
            texts = ["missing"]
        elif problem["type"] in ("model_type", "dict_type"):
            texts = [f"must be a mapping of keys to values, found {shown(problem['input'])}"]
        elif isinstance(own := problem.get("ctx", {}).get("error"), InputError):
            texts = [*own.faults]
        else:
            # What a check of this package raised, or what pydantic itself found.
            text = str(own) if isinstance(own, ValueError) else problem["msg"]
            texts = [f"{text[:1].lower()}{text[1:]}, found {shown(problem['input'])}"]
        problems += [Problem(path, text) for text in texts]
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
