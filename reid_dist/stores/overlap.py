"""Items that two label sets share: rows of the query set that are rows of the gallery as well.

Three facts identify a query row with a gallery row: both sets are the same, row by row (one content
digest); the two rows have one item id; they have one image path.  The first of them that holds of any row is taken.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.stores.labelled import LabelledSet
from reid_dist.stores.labels import join_item_ids

Int64 = NDArray[np.int64]
By = Literal["content", "item_ids", "image_paths"]

# Pairs that are compared at once: texts of so many pairs fit in memory.
_PAIRS_AT_ONCE: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class SharedItems:
    """Query rows that are gallery rows as well, and the fact by which: ``content`` means that row i is row i."""

    by: By
    n_query: int


def shared_items(query: LabelledSet, gallery: LabelledSet) -> SharedItems | None:
    """Count the query rows that are gallery rows as well; None if there are none."""
    if query.content_digest == gallery.content_digest:
        return SharedItems("content", query.n_rows)
    for by, near, far in _names(query, gallery):
        n_query = int(np.isin(near, far).sum())
        if n_query:
            return SharedItems(by, n_query)
    return None


def own_queries(query: LabelledSet, gallery: LabelledSet, indptr: Int64, row: Int64) -> SharedItems | None:
    """Count the queries that are one item with a gallery row of their list; None if there are none.

    The list of query ``i`` is ``row[indptr[i]:indptr[i + 1]]``, such as its relevant rows.
    """
    if query.content_digest == gallery.content_digest:
        numbers = np.arange(query.n_rows)
        return _own("content", numbers, numbers, indptr, row)
    for by, near, far in _names(query, gallery):
        own = _own(by, near, far, indptr, row)
        if own is not None:
            return own
    return None


def _own(by: By, near: NDArray[np.generic], far: NDArray[np.generic], indptr: Int64, row: Int64) -> SharedItems | None:
    # Mostly none of them is in the gallery, and then no pair needs to be compared.
    listed = np.isin(near, far)
    if not listed.any():
        return None
    owner = np.repeat(np.arange(len(near)), np.diff(indptr))
    place = np.flatnonzero(listed[owner])
    is_own = np.zeros(len(near), np.bool_)
    for start in range(0, len(place), _PAIRS_AT_ONCE):
        some = place[start : start + _PAIRS_AT_ONCE]
        is_own[owner[some[near[owner[some]] == far[row[some]]]]] = True
    return SharedItems(by, int(is_own.sum())) if is_own.any() else None


def _names(query: LabelledSet, gallery: LabelledSet) -> list[tuple[By, NDArray[np.generic], NDArray[np.generic]]]:
    """Labels that name items on both sides, in one kind; shape (n_query,) and (n_gallery,)."""
    found: list[tuple[By, NDArray[np.generic], NDArray[np.generic]]] = []
    if query.item_ids is not None and gallery.item_ids is not None:
        # Numbers against texts of which none is equal are refused.
        with contextlib.suppress(InputError):
            found.append(("item_ids", *join_item_ids(query.item_ids, gallery.item_ids)))
    paths = query.image_paths, gallery.image_paths
    if paths[0] is not None and paths[1] is not None:
        found.append(("image_paths", paths[0], paths[1]))
    return found
