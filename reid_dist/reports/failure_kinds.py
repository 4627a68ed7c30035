"""Kinds of failures of queries, read from the nearest items of their lists.

An item is *kept* if it is there and not junk.  A list may have several kinds, or none.  Labels of both sides are
compared under one numbering; without them, only kinds that need none are known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import UNKNOWN_CAMERA
from reid_dist.reports.topk_entries import TopK

LABEL_ITEMS: Final = 5
"""Nearest kept items that are compared with the label of a query."""

LABEL_AGREEING: Final = 4
"""How many of them must agree on another identity."""

NEARLY_EQUAL: Final = 1e-3
"""Distance of duplicates, as a share of the typical distance at the end of a list (the median over all lists)."""

# Junk and, by custom, distractors: of many identities.
NO_IDENTITY: Final = (-1, 0)

_BLOCK_ROWS: Final = 8192


@dataclass(frozen=True)
class FailureKind:
    """A kind of failure: its name, a label, and its definition in one sentence."""

    name: str
    label: str
    definition: str


KINDS: Final = (
    FailureKind(
        "look_alike",
        "look-alike",
        "The nearest kept item is wrong: another identity, from a camera other than the query's.",
    ),
    FailureKind(
        "same_camera",
        "same camera",
        "The nearest kept item is wrong: another identity, from the query's own camera.",
    ),
    FailureKind(
        "not_listed",
        "not in the list",
        "The query has relevant items, but its list contains none of them.",
    ),
    FailureKind(
        "label_suspect",
        "label suspect",
        f"The {LABEL_ITEMS} nearest kept items have other identities, and at least {LABEL_AGREEING} of them share one "
        "(not -1 or 0), in two or more cameras if cameras are known; or a duplicate has another identity.",
    ),
    FailureKind(
        "duplicate",
        "duplicate",
        f"A kept item lies at distance 0, or within {NEARLY_EQUAL:g} of the usual distance at the end of a list.",
    ),
)
"""All kinds, in the order in which they are shown."""


@dataclass(frozen=True)
class CommonLabels:
    """Identities and cameras of both sides, shapes (n_query,) and (n_gallery,), under one numbering each."""

    query_pids: NDArray[np.int64]
    gallery_pids: NDArray[np.int64]
    query_camids: NDArray[np.int64] | None = None
    gallery_camids: NDArray[np.int64] | None = None


def find_failures(topk: TopK, valid: NDArray[np.bool_], labels: CommonLabels | None) -> dict[str, NDArray[np.bool_]]:
    """Find the kinds of failures of all queries.

    Parameters
    ----------
    topk
        The lists, with relevance assigned; without it, nothing is found.
    valid
        Whether a query has relevant items, shape (n_query,).  Of the others, only duplicates and suspect labels are
        failures.
    labels
        Labels of both sides; None if they are not known.

    Returns
    -------
    Arrays of shape (n_query,) by the name of the kind, in the order of `KINDS`, those that can be known.
    """
    n_query = len(topk.index)
    if topk.relevant is None:
        return {}
    relevant = topk.relevant
    known = {"not_listed", "duplicate"} if labels is None else {kind.name for kind in KINDS}
    if labels is None or labels.query_camids is None or labels.gallery_camids is None:
        known -= {"same_camera"}
    found = {kind.name: np.zeros(n_query, np.bool_) for kind in KINDS if kind.name in known}
    limit = duplicate_limit(topk)
    for start in range(0, n_query, _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        for name, values in _block(topk, relevant[rows], rows, valid[rows], labels, limit).items():
            if name in found:
                found[name][rows] = values
    return found


def _block(
    topk: TopK,
    right: NDArray[np.bool_],
    rows: slice,
    valid: NDArray[np.bool_],
    labels: CommonLabels | None,
    limit: float,
) -> dict[str, NDArray[np.bool_]]:
    """Kinds of the queries of some rows, shape (rows,)."""
    index = topk.index[rows]
    kept = index >= 0
    if topk.junk is not None:
        kept = kept & ~topk.junk[rows]
    twin = kept & (topk.distance[rows] <= limit)
    missed = valid & ~np.any(right & kept, axis=1)
    found: dict[str, NDArray[np.bool_]] = {"not_listed": missed, "duplicate": np.any(twin, axis=1)}
    if labels is None or not topk.k:
        return found
    items = np.maximum(index, 0)
    other = kept & ~right & (labels.gallery_pids[items] != labels.query_pids[rows, np.newaxis])
    # The nearest kept item of every list, then the next ones.
    order = np.argsort(~kept, axis=1, kind="stable")[:, :LABEL_ITEMS]
    near = {
        "kept": np.take_along_axis(kept, order, axis=1),
        "other": np.take_along_axis(other, order, axis=1),
    }
    near_items = np.take_along_axis(items, order, axis=1)
    pids = labels.gallery_pids[near_items]
    cameras = None if labels.gallery_camids is None else labels.gallery_camids[near_items]
    wrong_first = valid & near["other"][:, 0]
    own = np.zeros(len(index), np.bool_)
    if cameras is not None and labels.query_camids is not None:
        cameras_of_queries = labels.query_camids[rows]
        own = (cameras[:, 0] == cameras_of_queries) & (cameras_of_queries != UNKNOWN_CAMERA)
    suspect: NDArray[np.bool_] = np.any(twin & other, axis=1)
    if near["kept"].shape[1] == LABEL_ITEMS:
        suspect |= near["other"].all(axis=1) & _agree(pids, cameras)
    return found | {
        "look_alike": wrong_first & ~own,
        "same_camera": wrong_first & own,
        "label_suspect": suspect,
    }


def _agree(pids: NDArray[np.int64], cameras: NDArray[np.int64] | None) -> NDArray[np.bool_]:
    """Whether enough of some items, shape (rows, LABEL_ITEMS), have one identity in two cameras or more."""
    agree = np.zeros(len(pids), np.bool_)
    # An identity of so many items is that of one of the first items.
    for place in range(LABEL_ITEMS - LABEL_AGREEING + 1):
        same = (pids == pids[:, [place]]) & ~np.isin(pids, NO_IDENTITY)
        enough = same.sum(axis=1) >= LABEL_AGREEING
        if cameras is not None:
            known, ends = same & (cameras != UNKNOWN_CAMERA), np.iinfo(cameras.dtype)
            first = cameras.min(axis=1, where=known, initial=ends.max)
            enough &= first < cameras.max(axis=1, where=known, initial=ends.min)
        agree |= enough
    return agree


def duplicate_limit(topk: TopK) -> float:
    """Largest distance of duplicates; below every distance where 0 is not the least one."""
    last = np.max(topk.distance, axis=1, initial=-np.inf, where=np.isfinite(topk.distance))
    last = last[np.isfinite(last)]
    limit = NEARLY_EQUAL * median_of(last) if len(last) else -np.inf
    # Sums in floating point may fall below 0 by their rounding.
    return limit if np.min(topk.distance, initial=0.0) >= -abs(limit) else -np.inf


def median_of(values: NDArray[np.float64]) -> float:
    """Median of some values, whose sum may be out of range."""
    ordered, middle = np.sort(values), len(values) // 2
    return float(ordered[middle] if len(values) % 2 else ordered[middle - 1] / 2.0 + ordered[middle] / 2.0)
