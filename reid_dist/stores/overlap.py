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

from reid_dist.core.segments import entry_owners
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


def shared_items(
    query: LabelledSet, gallery: LabelledSet, lists: tuple[Int64, Int64] | None = None
) -> SharedItems | None:
    """Count the query rows that are gallery rows as well, of all or of lists; None if there are none.

    The list of query ``i``, such as its relevant rows, is ``row[indptr[i]:indptr[i + 1]]`` for `lists` (indptr, row).
    """
    for by, query_names, gallery_names in _names(query, gallery):
        is_shared = np.isin(query_names, gallery_names)
        # Mostly no row is, and then no pair needs to be compared.
        if lists is not None and is_shared.any():
            is_shared = _is_in_own_list(query_names, gallery_names, is_shared, *lists)
        if is_shared.any():
            return SharedItems(by, int(is_shared.sum()))
    return None


def named_by_paths(query: LabelledSet, gallery: LabelledSet) -> bool:
    """Whether image paths take the place of item ids: a side has none of these, and both have paths."""
    has_ids = query.item_ids is not None and gallery.item_ids is not None
    return not has_ids and query.image_paths is not None and gallery.image_paths is not None


def _is_in_own_list(
    query_names: NDArray[np.generic],
    gallery_names: NDArray[np.generic],
    is_shared: NDArray[np.bool_],
    indptr: Int64,
    row: Int64,
) -> NDArray[np.bool_]:
    """Whether the list of each query holds a row of its name, (n_query,)."""
    owner = entry_owners(indptr)
    place = np.flatnonzero(is_shared[owner])
    found = np.zeros(len(query_names), np.bool_)
    for start in range(0, len(place), _PAIRS_AT_ONCE):
        some = place[start : start + _PAIRS_AT_ONCE]
        found[owner[some[query_names[owner[some]] == gallery_names[row[some]]]]] = True
    return found


def _names(query: LabelledSet, gallery: LabelledSet) -> list[tuple[By, NDArray[np.generic], NDArray[np.generic]]]:
    """Labels that name items on both sides, in one kind; (n_query,) and (n_gallery,)."""
    if query.content_digest == gallery.content_digest:
        return [("content", np.arange(query.n_rows), np.arange(gallery.n_rows))]
    found: list[tuple[By, NDArray[np.generic], NDArray[np.generic]]] = []
    if query.item_ids is not None and gallery.item_ids is not None:
        # Numbers against texts of which none is equal are refused.
        with contextlib.suppress(InputError):
            found.append(("item_ids", *join_item_ids(query.item_ids, gallery.item_ids)))
    paths = query.image_paths, gallery.image_paths
    if paths[0] is not None and paths[1] is not None:
        found.append(("image_paths", paths[0], paths[1]))
    return found
