"""Protocols: which gallery items are relevant to a query, which are junk, and what a query without positives means.

A protocol looks at labels alone, so judging costs a sort of the gallery's identities and never touches features.
Pairs are sparse: positives and the junk of a single query are listed, junk of all queries (pid -1) is a mark on the
gallery row.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.model import Judgement, Labels
from reid_dist.registry import Registry

__all__ = ["JUNK_PID", "PROTOCOLS", "REASONS", "GalleryIndex", "Protocol", "judge"]

Int64 = NDArray[np.int64]

JUNK_PID = -1

# Index 0 stands for a valid query.  The order is part of the meaning of `Judgement.reason`.
REASONS = ("", "no_positive_in_gallery", "only_same_camera_positives", "all_junk")
_NO_POSITIVE, _ONLY_SAME_CAMERA, _ALL_JUNK = 1, 2, 3


@dataclass(frozen=True)
class Protocol:
    """An evaluation protocol, composed of its parts.

    Attributes
    ----------
    name, summary, source
        For people.
    same_camera_is_junk
        Whether items with the pid *and* the camid of the query are junk; such a protocol needs camids.
    own_row_is_junk
        Whether the gallery item with the query's item id is junk; for query set = gallery set.
    invalid_query
        What a query without relevant items is worth: it is ``left out`` of every mean.
    cmc_family, ap_family
        The curve and the average precision that the protocol reports.
    """

    name: str
    summary: str
    source: str
    same_camera_is_junk: bool = False
    own_row_is_junk: bool = False
    invalid_query: str = "left out"
    cmc_family: str = "CMC"
    ap_family: str = "mAP"

    @property
    def needs_camids(self) -> bool:
        """Whether both sets must have camids."""
        return self.same_camera_is_junk

    @property
    def needs_item_ids(self) -> bool:
        """Whether items are matched by item id."""
        return self.own_row_is_junk

    @property
    def relevant(self) -> str:
        """Which items are relevant, in words."""
        if self.same_camera_is_junk:
            return "same pid, other camid"
        return "same pid, not itself" if self.own_row_is_junk else "same pid"

    @property
    def junk(self) -> str:
        """Which items are invisible to the ranking, in words."""
        parts = ["same pid and camid"] if self.same_camera_is_junk else []
        parts += ["the query's own row"] if self.own_row_is_junk else []
        return "; ".join([*parts, f"pid {JUNK_PID}"])

    def describe(self) -> dict[str, str]:
        """Return what a report says of it."""
        return {
            "name": self.name,
            "summary": self.summary,
            "source": self.source,
            "relevant": self.relevant,
            "junk": self.junk,
            "invalid_query": self.invalid_query,
            "cmc_family": self.cmc_family,
            "ap_family": self.ap_family,
        }


PROTOCOLS: Registry[Protocol] = Registry("protocol")

PROTOCOLS.register(
    Protocol(
        name="market1501",
        summary="cross-camera search: items of the query's own camera with its pid are junk, as is pid -1",
        source="Zheng et al., ICCV 2015, as torchreid and fast-reid compute it",
        same_camera_is_junk=True,
    )
)
PROTOCOLS.register(
    Protocol(
        name="no_cameras",
        summary="every item of the query's pid is relevant; for sets without cameras",
        source="general image retrieval; pid -1 is junk as in Market-1501",
    )
)
PROTOCOLS.register(
    Protocol(
        name="same_set",
        summary="query set = gallery set: the query's own row, known by its item id, is junk",
        source="leave-one-out retrieval, as on CUB-200, SOP or VeRi subsets",
        own_row_is_junk=True,
    )
)


class GalleryIndex:
    """The labels of a gallery, sorted once so that every block of queries finds its pairs by bisection.

    Parameters
    ----------
    labels
        Labels of all gallery rows.
    """

    def __init__(self, labels: Labels) -> None:
        self.labels = labels
        self.n_gallery = len(labels.pids)
        order = np.argsort(labels.pids, kind="stable")
        self._sorted_pids = labels.pids[order]
        # Half the memory, where row numbers allow it: this stays in every process as long as the job runs.
        self._by_pid = order.astype(np.int32) if len(order) <= np.iinfo(np.int32).max else order
        self.junk_row = labels.pids == JUNK_PID
        self.n_junk_row = int(self.junk_row.sum())

    def same_pid(self, pids: Int64) -> tuple[Int64, Int64]:
        """List all pairs with equal pids.

        Returns
        -------
        Position of the query and gallery row of each pair, by query and then by gallery row, both int64.
        """
        return _ranges(
            np.searchsorted(self._sorted_pids, pids, "left"),
            np.searchsorted(self._sorted_pids, pids, "right"),
            self._by_pid,
        )

    def same_item(self, item_ids: NDArray[np.generic]) -> tuple[Int64, Int64]:
        """List all pairs with equal item ids, in the order of `same_pid`."""
        order, ordered = self._by_item
        return _ranges(np.searchsorted(ordered, item_ids, "left"), np.searchsorted(ordered, item_ids, "right"), order)

    @cached_property
    def _by_item(self) -> tuple[Int64, NDArray[np.generic]]:
        """Gallery rows in the order of their item ids, and those ids."""
        if self.labels.item_ids is None:
            raise InputError("the gallery has no item ids")
        order = np.argsort(self.labels.item_ids, kind="stable")
        return order, self.labels.item_ids[order]


def _ranges(start: Int64, stop: Int64, order: NDArray[np.signedinteger]) -> tuple[Int64, Int64]:
    """Pairs of each query with the entries ``order[start:stop]``."""
    sizes = stop - start
    query = np.repeat(np.arange(len(sizes)), sizes)
    ends = np.cumsum(sizes)
    place = np.arange(ends[-1] if len(ends) else 0) - np.repeat(ends - sizes, sizes) + np.repeat(start, sizes)
    return query, order[place].astype(np.int64, copy=False)


def _indptr(query: Int64, n_query: int) -> Int64:
    """Start offsets of the queries in a list of pairs that is sorted by query."""
    indptr = np.zeros(n_query + 1, np.int64)
    np.cumsum(np.bincount(query, minlength=n_query), out=indptr[1:])
    return indptr


def judge(protocol: Protocol, query: Labels, gallery: GalleryIndex) -> Judgement:
    """Say of every query who is relevant and who is junk.

    Parameters
    ----------
    protocol
        The rules.
    query
        Labels of a block of queries.
    gallery
        The indexed gallery.

    Raises
    ------
    InputError
        If labels that the protocol needs are missing.
    """
    n_query = len(query.pids)
    pair_query, pair_row = gallery.same_pid(query.pids)
    matches = np.bincount(pair_query, minlength=n_query)
    # Rows with pid -1 are hidden from everybody by their column; only a query with pid -1 would meet them here.
    seen = ~gallery.junk_row[pair_row]
    pair_query, pair_row = pair_query[seen], pair_row[seen]

    junk = np.zeros(len(pair_row), bool)
    same_camera = np.zeros(n_query, np.int64)
    extra_query = extra_row = np.empty(0, np.int64)
    if protocol.same_camera_is_junk:
        if query.camids is None or gallery.labels.camids is None:
            raise InputError(
                f"protocol {protocol.name!r} needs camids in query and gallery; use the protocol 'no_cameras' for "
                "sets without cameras"
            )
        junk |= query.camids[pair_query] == gallery.labels.camids[pair_row]
        same_camera = np.bincount(pair_query[junk], minlength=n_query)
    own = np.zeros(n_query, np.int64)
    if protocol.own_row_is_junk:
        if query.item_ids is None:
            raise InputError(f"protocol {protocol.name!r} needs item ids in query and gallery")
        own_query, own_row = gallery.same_item(query.item_ids)
        outside = (query.pids[own_query] != gallery.labels.pids[own_row]) & ~gallery.junk_row[own_row]
        extra_query, extra_row = own_query[outside], own_row[outside]
        own_pairs = own_query * gallery.n_gallery + own_row
        is_own = np.isin(pair_query * gallery.n_gallery + pair_row, own_pairs)
        own = np.bincount(pair_query[is_own], minlength=n_query)
        junk |= is_own

    relevant_query, relevant_row = pair_query[~junk], pair_row[~junk]
    n_relevant = np.bincount(relevant_query, minlength=n_query)
    hidden_query = np.concatenate([pair_query, extra_query])
    hidden_row = np.concatenate([pair_row, extra_row])
    if len(extra_row):
        order = np.lexsort((hidden_row, hidden_query))
        hidden_query, hidden_row = hidden_query[order], hidden_row[order]
    n_junk = (
        gallery.n_junk_row
        + np.bincount(pair_query[junk], minlength=n_query)
        + np.bincount(extra_query, minlength=n_query)
    )
    n_kept = gallery.n_gallery - n_junk

    reason = np.zeros(n_query, np.uint8)
    empty = n_relevant == 0
    reason[empty] = _NO_POSITIVE
    reason[empty & (same_camera > 0)] = _ONLY_SAME_CAMERA
    # Matching rows that are neither the query itself nor of its camera have pid -1.
    reason[empty & (same_camera == 0) & (matches > own)] = _ALL_JUNK
    reason[n_kept == 0] = _ALL_JUNK
    return Judgement(
        relevant_indptr=_indptr(relevant_query, n_query),
        relevant_row=relevant_row,
        hidden_indptr=_indptr(hidden_query, n_query),
        hidden_row=hidden_row,
        n_kept=n_kept.astype(np.int64),
        n_junk=n_junk.astype(np.int64),
        reason=reason,
    )


def flag_listed(
    judgement: Judgement, gallery: GalleryIndex, index: Int64
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Say which listed gallery rows are relevant and which are junk.

    Parameters
    ----------
    judgement
        Of the queries that the lists belong to.
    gallery
        The indexed gallery.
    index
        Gallery rows, shape (n_query, k), int64; -1 for none.

    Returns
    -------
    Two arrays of that shape, bool: relevant, junk.  An absent entry is neither.
    """
    listed = np.arange(len(index))[:, None] * gallery.n_gallery + index

    def among(indptr: Int64, rows: Int64) -> NDArray[np.bool_]:
        owner = np.repeat(np.arange(len(index)), np.diff(indptr))
        return np.isin(listed, owner * gallery.n_gallery + rows) & (index >= 0)

    relevant = among(judgement.relevant_indptr, judgement.relevant_row)
    hidden = among(judgement.hidden_indptr, judgement.hidden_row)
    return relevant, (hidden & ~relevant) | (gallery.junk_row[index] & (index >= 0))
