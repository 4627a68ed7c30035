"""Relevance: which gallery items are relevant to a query and which are junk, from labels or from lists made by hand.

Assignment by labels costs a sort of the gallery's identities and never touches features.  Pairs are sparse: positives
and the junk of a single query are listed.  Junk of all queries (pid -1) is a flag of the gallery row, and junk that a
query shares with others (every item of its camera) is one label that is hidden from it.  An unknown camera is equal to
no camera, so that its items are junk for no query's camera.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import UNKNOWN_CAMERA, GalleryMask, Hidden, Labels, Relevance, cut_rows
from reid_dist.core.segments import entry_keys, entry_owners, owner_offsets, range_entries
from reid_dist.core.sorted_values import is_among, places_among
from reid_dist.errors import InputError
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.protocols import NOT, NOT_COUNTED, REASONS, JunkRule, Protocol

Int64 = NDArray[np.int64]

_NO_POSITIVE = REASONS.index("no_positive_in_gallery")
_ONLY_SAME_CAMERA = REASONS.index("only_same_camera_positives")
_ALL_JUNK = REASONS.index("all_junk")

# Camid of queries of unknown camera: that of no row.
_NO_ROW: Final = np.iinfo(np.int64).min

# Labels that are compared at a time: no copy of all labels of a gallery is made.
_ROWS_AT_ONCE = 1 << 20


def whole_label(protocol: Protocol) -> str | None:
    """Return the label by which a query hides items of every identity, such as ``camid``."""
    return next((rule[0] for rule in protocol.junk if len(rule) == 1 and rule[0] not in ("pid", "item_id")), None)


def in_rules(values: Int64, name: str, protocol: Protocol, *, of_query: bool) -> Int64:
    """Return values of a label, (n,), as junk rules compare them with those of the other side.

    Cameras at one place have the number of the first, and unknown ones of queries a number that no gallery row has.
    """
    if name == "camid":
        for group in protocol.merged_cameras:
            values = np.where(np.isin(values, group), group[0], values)
        if of_query:
            values = np.where(values == UNKNOWN_CAMERA, _NO_ROW, values)
    return values


class GalleryIndex:
    """The labels of a gallery, sorted once so that every block of queries finds its pairs by bisection.

    Without a protocol no row is junk for all queries, and none is hidden by a label.  `query_pids` are the pids of all
    queries; without them pairs of any pid are found.  `same_rows` is an index of the same labels under another
    protocol, whose order of the rows is used.
    """

    def __init__(
        self,
        labels: Labels,
        protocol: Protocol | None,
        query_pids: Int64 | None = None,
        *,
        same_rows: GalleryIndex | None = None,
    ) -> None:
        self.labels = labels
        self._query_pids = query_pids
        self._same_rows = same_rows
        self.n_gallery = len(labels.pids)
        name = None if protocol is None else whole_label(protocol)
        # The label that may hide items of every identity from a query, of every gallery row.
        self.label = (
            None if name is None or protocol is None else in_rules(labels.get(name), name, protocol, of_query=False)
        )
        self.mask = GalleryMask(junk_rows(labels, protocol), self.label)
        self.n_junk_row = int(self.mask.junk_row.sum())

    @cached_property
    def _by_pid(self) -> tuple[NDArray[np.signedinteger], Int64]:
        """Gallery rows with pids of queries in the order of these, and those pids."""
        if self._same_rows is not None:
            return self._same_rows._by_pid
        # The rows of other pids, which are most of a large gallery, would stay in every process while the job runs.
        wanted = self._query_pids
        rows = np.arange(self.n_gallery) if wanted is None else rows_with_pids(self.labels.pids, wanted)
        rows = rows[np.argsort(self.labels.pids[rows], kind="stable")]
        # Half the memory, where row numbers allow it.
        kept = rows.astype(np.int32) if self.n_gallery <= np.iinfo(np.int32).max else rows
        return kept, self.labels.pids[rows]

    def same_pid(self, pids: Int64) -> tuple[Int64, Int64]:
        """List all pairs with equal pids, by query and then by gallery row: positions of queries, gallery rows."""
        order, ordered = self._by_pid
        return _ranges(np.searchsorted(ordered, pids, "left"), np.searchsorted(ordered, pids, "right"), order)

    def same_item(self, item_ids: NDArray[np.generic]) -> tuple[Int64, Int64]:
        """List all pairs with equal item ids, in the order of `same_pid`."""
        order, ordered = self._by_item
        return _ranges(np.searchsorted(ordered, item_ids, "left"), np.searchsorted(ordered, item_ids, "right"), order)

    @cached_property
    def _by_item(self) -> tuple[Int64, NDArray[np.generic]]:
        """Gallery rows in the order of their item ids, and those ids."""
        if self._same_rows is not None:
            return self._same_rows._by_item
        if self.labels.item_ids is None:
            raise InputError("the gallery has no item ids")
        order = np.argsort(self.labels.item_ids, kind="stable")
        return order, self.labels.item_ids[order]

    def hidden_by_label(self, values: Int64) -> Int64:
        """Count the gallery rows, junk of all queries aside, that carry each of the given labels."""
        kinds, counts = self._label_counts
        # The place of labels that no row has is -1, that of the 0.
        return np.append(counts, 0)[places_among(kinds, values)]

    @cached_property
    def _label_counts(self) -> tuple[Int64, Int64]:
        if self.label is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        kinds, counts = np.unique(self.label[~self.mask.junk_row], return_counts=True)
        return kinds, counts


def rows_with_pids(pids: Int64, wanted: Int64) -> Int64:
    """Rows with any of some pids, ascending, shape (n,), int64."""
    kinds = np.unique(wanted)
    found = [np.empty(0, np.int64)]
    for cut in cut_rows(len(pids) if len(kinds) else 0, _ROWS_AT_ONCE):
        found.append(np.flatnonzero(np.isin(pids[cut.start : cut.stop], kinds)) + cut.start)
    return np.concatenate(found)


def junk_rows(labels: Labels, protocol: Protocol | None) -> NDArray[np.bool_]:
    """Whether gallery rows are junk for every query, shape (n,)."""
    junk = np.zeros(len(labels.pids), bool)
    if protocol is None:
        return junk
    for pid in protocol.junk_pids:
        junk |= labels.pids == pid
    if protocol.gallery_cameras is not None:
        if labels.camids is None:
            raise InputError(f"protocol {protocol.name!r} counts some cameras, and the gallery has no camids")
        junk |= ~np.isin(labels.camids, protocol.gallery_cameras)
    return junk


def _ranges(start: Int64, stop: Int64, order: NDArray[np.signedinteger]) -> tuple[Int64, Int64]:
    """Pairs of each query with the entries ``order[start:stop]``."""
    indptr, place = range_entries(start, stop - start)
    return entry_owners(indptr), order[place].astype(np.int64, copy=False)


def _shared(
    rule: JunkRule, protocol: Protocol, query: Labels, gallery: Labels, pairs: tuple[Int64, Int64]
) -> NDArray[np.bool_]:
    """Whether pairs with equal pids share all other labels of a rule, or differ in them; shape (n_pair,), bool."""
    shared = np.ones(len(pairs[0]), bool)
    for name in rule:
        if name == "pid":
            continue
        label = name.removeprefix(NOT)
        near, far = query.get(label)[pairs[0]], gallery.get(label)[pairs[1]]
        same = in_rules(near, label, protocol, of_query=True) == in_rules(far, label, protocol, of_query=False)
        shared &= same if label == name else ~same
    return shared


def assign_relevance(protocol: Protocol, query: Labels, gallery: GalleryIndex) -> Relevance:
    """Assign relevant and junk items to every query of a block, by labels."""
    n_query = len(query.pids)
    _refuse_missing(protocol, query, gallery.labels)
    pairs = gallery.same_pid(query.pids)
    matches = np.bincount(pairs[0], minlength=n_query)
    # Rows that are junk for all queries are hidden by `GalleryMask.junk_row`.
    seen = ~gallery.mask.junk_row[pairs[1]]
    pair_query, pair_row = pairs[0][seen], pairs[1][seen]

    junk = np.zeros(len(pair_row), bool)
    by_label = np.zeros(len(pair_row), bool)
    same_camera = np.zeros(n_query, np.int64)
    own = np.zeros(n_query, np.int64)
    extra_query = extra_row = np.empty(0, np.int64)
    label = whole_label(protocol)
    for rule in protocol.junk:
        if rule == ("item_id",):
            own_query, own_row = gallery.same_item(_item_ids(query))
            outside = (query.pids[own_query] != gallery.labels.pids[own_row]) & ~gallery.mask.junk_row[own_row]
            extra_query, extra_row = own_query[outside], own_row[outside]
            own_pairs = own_query * gallery.n_gallery + own_row
            shared = np.isin(pair_query * gallery.n_gallery + pair_row, own_pairs)
            own = np.bincount(pair_query[shared], minlength=n_query)
        else:
            shared = _shared(rule, protocol, query, gallery.labels, (pair_query, pair_row))
        if "camid" in rule:
            same_camera += np.bincount(pair_query[shared & ~junk], minlength=n_query)
        by_label |= shared & (rule == (label,))
        junk |= shared

    relevant_query, relevant_row = pair_query[~junk], pair_row[~junk]
    n_relevant = np.bincount(relevant_query, minlength=n_query)
    hidden_label = None
    n_junk = gallery.n_junk_row + np.bincount(pair_query[junk & ~by_label], minlength=n_query)
    if label is not None:
        hidden_label = in_rules(query.get(label), label, protocol, of_query=True)
        n_junk = n_junk + gallery.hidden_by_label(hidden_label)
        if len(extra_row):
            # What the label hides already is not counted twice.
            far = in_rules(gallery.labels.get(label)[extra_row], label, protocol, of_query=False)
            fresh = far != hidden_label[extra_query]
            extra_query, extra_row = extra_query[fresh], extra_row[fresh]
    n_junk = n_junk + np.bincount(extra_query, minlength=n_query)
    hidden_query = np.concatenate([pair_query, extra_query])
    hidden_row = np.concatenate([pair_row, extra_row])
    if len(extra_row):
        order = np.lexsort((hidden_row, hidden_query))
        hidden_query, hidden_row = hidden_query[order], hidden_row[order]
    n_kept = gallery.n_gallery - n_junk

    reason = np.zeros(n_query, np.uint8)
    empty = n_relevant == 0
    reason[empty] = _NO_POSITIVE
    reason[empty & (same_camera > 0)] = _ONLY_SAME_CAMERA
    # Matching rows that are neither the query itself nor of its camera are junk by another rule.
    reason[empty & (same_camera == 0) & (matches > own)] = _ALL_JUNK
    # For a query whose camera holds the whole gallery, the reason is that its identity is there.
    reason[(n_kept == 0) & (same_camera == 0)] = _ALL_JUNK
    if protocol.query_cameras is not None and query.camids is not None:
        outside = ~np.isin(query.camids, protocol.query_cameras)
        reason[outside] = NOT_COUNTED
        counted = ~outside[relevant_query]
        relevant_query, relevant_row = relevant_query[counted], relevant_row[counted]
    return Relevance(
        relevant_indptr=owner_offsets(relevant_query, n_query),
        relevant_row=relevant_row,
        hidden=Hidden(owner_offsets(hidden_query, n_query), hidden_row, hidden_label, len(extra_row) > 0),
        n_kept=n_kept.astype(np.int64),
        n_junk=n_junk.astype(np.int64),
        mated=np.bincount(pair_query, minlength=n_query) > 0,
        reason=reason,
    )


def _item_ids(query: Labels) -> NDArray[np.generic]:
    if query.item_ids is None:
        raise InputError("the query set has no item ids")
    return query.item_ids


def _refuse_missing(protocol: Protocol, query: Labels, gallery: Labels) -> None:
    for name in ("camid", *protocol.label_columns):
        needed = protocol.needs_camids if name == "camid" else True
        if needed and not (query.has(name) and gallery.has(name)):
            advice = (
                "; for sets without cameras use the protocol 'same_set' if queries are gallery rows as well, otherwise "
                "'no_cameras'"
                if name == "camid"
                else ""
            )
            raise InputError(f"protocol {protocol.name!r} needs {name}s in query and gallery{advice}")


def assign_listed_relevance(protocol: Protocol, truth: GroundTruth, n_gallery: int) -> Relevance:
    """Assign relevant and junk items to every query of a block, by lists."""
    relevant_query, relevant_row = _listed(truth, protocol.relevant_lists)
    junk_query, junk_row = _listed(truth, protocol.junk_lists)
    n_query = truth.n_query
    hidden_query = np.concatenate([relevant_query, junk_query])
    hidden_row = np.concatenate([relevant_row, junk_row])
    order = np.lexsort((hidden_row, hidden_query))
    n_junk = np.bincount(junk_query, minlength=n_query)
    reason = np.zeros(n_query, np.uint8)
    empty = np.bincount(relevant_query, minlength=n_query) == 0
    reason[empty] = _NO_POSITIVE
    reason[n_junk == n_gallery] = _ALL_JUNK
    return Relevance(
        relevant_indptr=owner_offsets(relevant_query, n_query),
        relevant_row=relevant_row,
        hidden=Hidden(owner_offsets(hidden_query, n_query), hidden_row[order], None, True),
        n_kept=(n_gallery - n_junk).astype(np.int64),
        n_junk=n_junk.astype(np.int64),
        mated=~empty,
        reason=reason,
    )


def _listed(truth: GroundTruth, names: tuple[str, ...]) -> tuple[Int64, Int64]:
    """Pairs of the named lists, by query and then by gallery row."""
    found = truth.union(*names)
    return entry_owners(found.indptr), found.rows


def flag_listed(
    relevance: Relevance, gallery: GalleryIndex, index: Int64
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether gallery rows (n_query, k) of lists are relevant, and whether they are junk; both False for -1."""
    listed = np.arange(len(index))[:, None] * gallery.n_gallery + index
    present = index >= 0

    def among(indptr: Int64, rows: Int64) -> NDArray[np.bool_]:
        # Mostly sorted already, unlike the lists, which `numpy.isin` would sort as well.
        return is_among(np.sort(entry_keys(indptr, rows, gallery.n_gallery)), listed) & present

    relevant = among(relevance.relevant_indptr, relevance.relevant_row)
    hidden = among(relevance.hidden.indptr, relevance.hidden.row)
    junk = (hidden & ~relevant) | (gallery.mask.junk_row[index] & present)
    if relevance.hidden.label is not None and gallery.label is not None:
        junk |= (gallery.label[index] == relevance.hidden.label[:, None]) & present
    return relevant, junk
