"""Numbers of pairs that were read from products of each kind, by need, for the report; no result depends on them."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar

from reid_dist.engine.reductions.costs import TABLE

ScreenedPairs = dict[str, int]
"""Pairs by need and kind of product, as ``"ranks, int8"`` or ``"lists, float32 on NVIDIA H200"``.

Kinds are the columns of the table of `reid_dist.engine.reductions.costs`.
"""

# Counts of the task that runs in a thread; None outside of tasks that are counted.
_COUNTS: ContextVar[ScreenedPairs | None] = ContextVar("counts of screened pairs", default=None)


@contextlib.contextmanager
def count_screened() -> Iterator[ScreenedPairs]:
    """Count the pairs that are screened in this thread; the yielded counts are complete at the end."""
    counts: ScreenedPairs = {}
    before = _COUNTS.set(counts)
    try:
        yield counts
    finally:
        _COUNTS.reset(before)


def note_screened(need: str, kind: str, n_pairs: int) -> None:
    """Add pairs that were read from products of a kind for a need: ranks, lists and so on."""
    counts, key = _COUNTS.get(), f"{need}, {kind}"
    if counts is not None and n_pairs:
        counts[key] = counts.get(key, 0) + n_pairs


def add_screened(parts: Iterable[Mapping[str, int]]) -> ScreenedPairs:
    """Add counts."""
    return dict(sum(map(Counter, parts), Counter()))


def _order(kind: str) -> tuple[str, int]:
    """Kinds of this machine's processors come first, from the narrowest."""
    name, _, device = kind.partition(" on ")
    return device, [column.name for column in TABLE.values()].index(name)


def screened_words(counts: Mapping[str, int]) -> str:
    """Shares of the kinds in words, for each need unless they are the same for all; empty without pairs.

    Pairs that were read in both kinds, as integers left too many of them open, count in both.
    """
    words: dict[str, str] = {}
    for need in sorted({key.partition(", ")[0] for key in counts}):
        found = {key.removeprefix(f"{need}, ") for key, n in counts.items() if n and key.startswith(f"{need}, ")}
        own = {kind: counts[f"{need}, {kind}"] for kind in sorted(found, key=_order)}
        if len(own) < 2:
            words[need] = "".join(own)
        else:
            total = sum(own.values())
            words[need] = ", ".join(f"{kind} for {100 * n / total:.3g}%" for kind, n in own.items()) + " of the pairs"
    if len({*words.values()}) < 2:
        return "".join({*words.values()})
    return "; ".join(f"{need}: {each}" for need, each in words.items())
