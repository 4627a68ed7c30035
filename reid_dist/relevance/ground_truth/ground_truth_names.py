"""Entries of queries, names of items, and the account of what is wrong with a source."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import refuse

ItemIds = NDArray[np.generic]

# Comparing a name with very many others takes seconds; then only its neighbours in the alphabet are compared.
_MOST_COMPARED: Final = 100_000
# Faults that one message shows.
_MOST_WORDED: Final = 10


@dataclass(frozen=True, slots=True)
class Entry:
    """What the source has for one query, and what messages call the query."""

    where: str
    lists: object


class Faults:
    """Everything that is wrong with a source: the first faults in words, the others by number."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._worded: list[str] = []
        self._count = 0
        self._has_names = False

    def add(self, message: str) -> None:
        """Note a fault."""
        self._count += 1
        if len(self._worded) < _MOST_WORDED:
            self._worded.append(message)

    def add_name(self, where: str, names: ItemNames, name: str) -> None:
        """Note a name that denotes no row or several; the search for a similar one is made only once."""
        self.add(f"{where}: {names.explain(name, with_nearest=not self._has_names)}")
        self._has_names = True

    def refuse(self) -> None:
        """Raise one error with all faults, if there was any."""
        if self._count > len(self._worded):
            self._worded.append(f"and {self._count - len(self._worded)} more")
        refuse(self._worded, self.origin, count=self._count)


class ItemNames:
    """The names of the items of a set, `what` in messages; `item_ids` (n,) int64 or text."""

    def __init__(self, item_ids: ItemIds, what: str) -> None:
        self.what = what
        self.texts = [str(item) for item in np.asarray(item_ids).tolist()]
        self._exact = _rows_by_name(self.texts)

    @cached_property
    def _by_bare_name(self) -> dict[str, tuple[int, ...]]:
        return _rows_by_name(map(bare_name, self.texts))

    def find(self, name: str) -> tuple[int, ...]:
        """Rows that a name may denote: one, none, or the first two of several."""
        return self._exact.get(name) or self._by_bare_name.get(bare_name(name), ())

    def explain(self, name: str, *, with_nearest: bool) -> str:
        """Reason why a name does not denote one row."""
        rows = self.find(name)
        if rows:
            first, second = rows
            return (
                f"{name!r} is {self.what} row {first} ({self.texts[first]!r}) as well as row {second} "
                f"({self.texts[second]!r}); item ids must be distinct"
            )
        near = ""
        if self.texts and with_nearest:
            known = sorted(set(self.texts))
            most = max(0, len(known) - _MOST_COMPARED)
            at = min(max(0, bisect_left(known, name) - _MOST_COMPARED // 2), most)
            near = difflib.get_close_matches(name, known[at : at + _MOST_COMPARED], n=1, cutoff=0.0)[0]
            near = f"; the nearest known is {near!r}"
        return f"no {self.what} item has the id {name!r}{near}; correct the name or the item ids of the {self.what} set"


def _rows_by_name(names: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """The first two rows of every name."""
    rows: dict[str, tuple[int, ...]] = {}
    for row, name in enumerate(names):
        rows[name] = (*rows.get(name, ()), row)[:2]
    return rows


def bare_name(name: str) -> str:
    """A name without directory and ``.jpg``."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return last[:-4] if last.lower().endswith(".jpg") else last
