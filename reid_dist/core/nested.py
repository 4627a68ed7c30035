"""Nested mappings field by field: their leaves, and where several of them differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

ABSENT: Final = "absent"
"""Text of a field that a mapping does not have."""

PROSE: Final = frozenset({"summary", "source", "definition"})
"""Fields of a description about itself: another wording is no difference."""


class DifferingField(NamedTuple):
    """A field, by the names that lead to it, and its text in each mapping."""

    path: tuple[str, ...]
    texts: tuple[str, ...]

    @property
    def name(self) -> str:
        """The names, joined by dots."""
        return ".".join(self.path)

    @property
    def is_prose(self) -> bool:
        """Whether the field describes another one."""
        return self.path[-1] in PROSE


def leaves(values: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield path and value of every field that is no mapping, or an empty one, in their order."""
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from (((name, *path), leaf) for path, leaf in leaves(value))
        else:
            yield (name,), value


def differing_fields(mappings: Sequence[Mapping[str, Any]], write: Callable[[Any], str]) -> list[DifferingField]:
    """Return the fields whose texts by `write` are not the same in all mappings, in the order of their occurrence."""
    found = [{path: write(value) for path, value in leaves(each)} for each in mappings]
    paths = dict.fromkeys(path for each in found for path in each)
    fields = (DifferingField(path, tuple(each.get(path, ABSENT) for each in found)) for path in paths)
    return [field for field in fields if len(set(field.texts)) > 1]
