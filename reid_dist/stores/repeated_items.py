"""Items that rows name twice: rows of one set, as those that pad the last batch of a sampler, and rows of two sets.

Three facts identify a query row with a gallery row: both sets are the same, row by row (one content
digest); the two rows have one item id; they have one image path.  The first of them that holds of any row is taken.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, caution
from reid_dist.core.formatting import shortened
from reid_dist.core.segments import entry_owners
from reid_dist.errors import InputError
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.stores.labels import LabelledSet, join_item_ids
from reid_dist.stores.objects import SCHEME

Int64 = NDArray[np.int64]
By = Literal["content", "item_ids", "image_paths"]
Name = Literal["item_ids", "image_paths"]
Repeated = Literal["item_ids", "image_paths", "features"]
NAMES: Final[tuple[Name, ...]] = ("item_ids", "image_paths")
"""Labels that name an item."""
REPEATABLE: Final[tuple[Repeated, ...]] = (*NAMES, "features")
"""What rows may repeat of an earlier one; features are compared bit by bit."""

_ROWS_AT_ONCE: Final = 1 << 15
_LONGEST: Final = 80
# Pairs that are compared at once: texts of so many pairs fit in memory.
_PAIRS_AT_ONCE: Final = 1 << 18


def repeated_rows(values: NDArray[Any]) -> NDArray[np.int64]:
    """Rows whose value an earlier row has, ascending; numbers, texts or hashes of rows, shape (n,)."""
    keys = values
    if values.dtype.kind == "U":
        keys = _checksums(values)
    elif values.dtype.kind == "V":
        keys = np.ascontiguousarray(values).view(np.uint64)[:: values.itemsize // 8]
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return np.empty(0, np.int64)
    # Different values may share a key.
    rows = np.flatnonzero(np.isin(keys, again))
    is_first = np.zeros(len(rows), np.bool_)
    is_first[np.unique(values[rows], return_index=True)[1]] = True
    return rows[~is_first]


def first_rows(values: NDArray[Any]) -> tuple[Int64, Int64]:
    """Rows whose value an earlier row has, ascending, and the first row that has it, for each of them."""
    again = repeated_rows(values)
    if not len(again):
        return again, again
    # Repeats are mostly few, and a whole set of texts is slow to sort.
    repeated = np.unique(values[again])
    rows = np.flatnonzero(np.isin(values, repeated))
    place = np.searchsorted(repeated, values[rows])
    first = rows[np.unique(place, return_index=True)[1]]
    return again, first[np.searchsorted(repeated, values[again])]


def _checksums(texts: NDArray[np.str_]) -> NDArray[np.uint64]:
    """Numbers of texts, (n,) uint64, equal for equal texts: a small part of the time that sorting texts takes."""
    width = texts.dtype.itemsize // 4
    # Odd, so that texts that differ in one character differ.
    factors = stream_outputs(0, np.arange(width)) | np.uint64(1)
    found = np.empty(len(texts), np.uint64)
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        some = np.ascontiguousarray(texts[start : start + _ROWS_AT_ONCE].astype(f"=U{width}", copy=False))
        # Sums modulo 2^64 are meant.
        found[start : start + len(some)] = some.view(np.uint32).reshape(len(some), width).astype(np.uint64) @ factors
    return found


def repeat_notes(labels: LabelledSet, side: str) -> list[Finding]:
    """Note rows that name an item which an earlier row of a set (``query set``, ``gallery`` or ``set``) names."""
    for by in NAMES:
        names: NDArray[Any] | None = getattr(labels, by)
        if names is not None and len(rows := repeated_rows(names)):
            found = {"n": len(rows), "n_rows": labels.n_rows, "by": by, "row": int(rows[0])}
            first = shortened(str(names[rows[0]]), _LONGEST)
            return [caution("repeated_items", side=side, **found, first=first, source=_source_of(labels))]
    return []


def _source_of(labels: LabelledSet) -> str | None:
    """What is ingested again for a set: its file or store, a word for one of several, None for arrays in memory."""
    place = labels._shown
    if place.startswith(("/", SCHEME)):
        return place.partition("#")[0]
    return "SOURCE" if labels.is_made_of_sets else None


# ---- rows of two sets ------------------------------------------------------------------------------------------------


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
