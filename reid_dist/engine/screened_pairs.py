"""Numbers of pairs that were screened by products of each kind, for the report; no result depends on them."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

KINDS: Final = ("int8", "float32")

ScreenedPairs = dict[str, int]
"""Pairs by kind of product."""


class _Counts(threading.local):
    """Counts of the task that runs in a thread; None outside of tasks that are counted."""

    current: Counter[str] | None = None


_COUNTS = _Counts()


@contextlib.contextmanager
def count_screened() -> Iterator[ScreenedPairs]:
    """Count the pairs that are screened in this thread; the yielded counts are complete at the end."""
    counts: ScreenedPairs = {}
    before, _COUNTS.current = _COUNTS.current, Counter()
    try:
        yield counts
        counts.update(_COUNTS.current)
    finally:
        _COUNTS.current = before


def note_screened(kind: str, n_pairs: int) -> None:
    """Add pairs that were screened by products of a kind."""
    if _COUNTS.current is not None and n_pairs:
        _COUNTS.current[kind] += n_pairs


def add_screened(parts: Iterable[Mapping[str, int]]) -> ScreenedPairs:
    """Add counts."""
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(total)


def screened_words(counts: Mapping[str, int]) -> str:
    """Shares of the kinds in words; empty without pairs.

    Pairs that were screened in both kinds, as integers decided too few of them, count in both.
    """
    total = sum(counts.values())
    shares = {kind: counts.get(kind, 0) / total for kind in KINDS if counts.get(kind)}
    if len(shares) < 2:
        return "".join(shares)
    return ", ".join(f"{kind} for {100 * share:.3g} %" for kind, share in shares.items()) + " of the pairs"
