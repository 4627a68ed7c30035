"""Registries of named definitions: an addition is one definition in its file.

Whatever enumerates (help texts, ``reid-dist list``, documentation, tests) reads the registry, and an unknown name
is reported with the nearest known one.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from reid_dist.core.formatting import first_few
from reid_dist.errors import LONGEST_MESSAGE, UnknownNameError


class Named(Protocol):
    """Fields of every definition."""

    @property
    def name(self) -> str:
        """The name in commands, pipelines and reports."""

    @property
    def summary(self) -> str:
        """One line for ``reid-dist list``."""

    @property
    def source(self) -> str:
        """The paper or the program that the definition comes from."""


_MOST_IN_MESSAGE = 4

T = TypeVar("T", bound=Named)


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Return `` did you mean NAME?`` with the nearest known name; empty if none is near."""
    folded = {candidate.lower(): candidate for candidate in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.5)
    return f" did you mean {folded[near[0]]!r}?" if near else ""


def unknown_name(
    kind: str, name: str, known: Iterable[str], most: int | None = None, *, details: Sequence[str] = ()
) -> UnknownNameError:
    """Return the error on an unknown name: the nearest known one, or some, and all of them or the first `most`.

    All are in the message where they are few, else before the other details.
    """
    names = sorted(known)
    unknown, hint = f"unknown {kind} {name!r}", nearest_hint(name, names)
    listed = f"known: {first_few(names, len(names) if most is None else most)}"
    short = f"{unknown};{hint} {listed}"
    if len(short) <= LONGEST_MESSAGE:
        return UnknownNameError(short, details=details)
    some = hint or f" known: {first_few(names, _MOST_IN_MESSAGE)}"
    return UnknownNameError(f"{unknown};{some}", details=(listed, *details))


class Registry(Generic[T]):
    """Definitions of one kind by name, in the order in which they were made.

    `modules` make definitions; they are imported, in this order, at the first look-up.
    """

    def __init__(self, kind: str, modules: Sequence[str] = ()) -> None:
        self.kind = kind
        self._made: dict[str, T] = {}
        self._modules = tuple(modules)

    @property
    def _entries(self) -> dict[str, T]:
        # Forgotten only when all are imported: another thread that looks up meanwhile waits for each of them, too.
        for module in self._modules:
            importlib.import_module(module)
        self._modules = ()
        return self._made

    def register(self, entry: T) -> T:
        """Add a definition and return it."""
        if entry.name in self._made:
            raise ValueError(f"{self.kind} {entry.name!r} is defined twice")
        self._made[entry.name] = entry
        return entry

    def get(self, name: str) -> T:
        """Look a definition up."""
        if not isinstance(name, str) or name not in self._entries:
            raise unknown_name(self.kind, str(name), self._entries)
        return self._entries[name]

    def names(self) -> list[str]:
        """Return the names in the order of definition."""
        return list(self._entries)

    def __iter__(self) -> Iterator[T]:
        return iter(self._entries.values())

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)
