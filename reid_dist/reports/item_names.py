"""Item ids and image paths of the queries of a report, and of the gallery rows in its lists."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.reports.digest import arrays_digest
from reid_dist.stores import LabelledSet

_NAMES: Final = {"item_id": "item_ids", "image_path": "image_paths"}
_ROW: Final = "gallery_row"
_GALLERY: Final = "gallery_"

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, kw_only=True, eq=False)
class ItemNames:
    """Names of items, as far as the sets have them; no part of the result digest.

    Attributes
    ----------
    query
        ``item_id`` and ``image_path`` of every query, (n_query,): whole numbers or text, and text.
    rows
        (m,) int64, ascending: the gallery rows that any list holds.
    gallery
        ``item_id`` and ``image_path`` of these rows, (m,).
    """

    query: Columns
    rows: NDArray[np.int64]
    gallery: Columns

    @classmethod
    def of(cls, query: LabelledSet, gallery: LabelledSet, index: NDArray[np.int64] | None) -> ItemNames | None:
        """Names of two sets, with those of the gallery for lists of gallery rows, (n_query, k); None if there are none.

        An absent item of a list has the row -1.
        """
        rows = np.empty(0, np.int64) if index is None else np.unique(index)
        rows = rows[rows >= 0]
        far = {name: values[rows] for name, values in _names_of(gallery).items()} if len(rows) else {}
        near = _names_of(query)
        return cls(query=near, rows=rows if far else rows[:0], gallery=far) if near or far else None

    @property
    def list_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays that are saved with the lists: rows and names of the gallery."""
        found = {_GALLERY + name: values for name, values in self.gallery.items()}
        return {_ROW: self.rows, **found} if found else {}

    @classmethod
    def taken_from(cls, per_query: dict[str, NDArray[Any]], lists: dict[str, NDArray[Any]]) -> ItemNames:
        """Names among the arrays of saved queries and lists, which are removed from both."""
        query = {name: per_query.pop(name) for name in _NAMES if name in per_query}
        rows = lists.pop(_ROW, np.empty(0, np.int64))
        gallery = {name: lists.pop(_GALLERY + name) for name in _NAMES if _GALLERY + name in lists}
        return cls(query=query, rows=rows, gallery=gallery)

    @property
    def digest(self) -> str:
        """SHA-256 of the arrays, 64 hexadecimal digits; see :mod:`reid_dist.reports.digest`."""
        return arrays_digest({"query": self.query, "lists": self.list_arrays})

    def of_entries(self, query_rows: NDArray[np.int64], gallery_rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Names of both items of some entries of lists, (n,) each, as columns of a table."""
        place = np.searchsorted(self.rows, gallery_rows)
        return {
            **{f"query_{name}": values[query_rows] for name, values in self.query.items()},
            **{f"gallery_{name}": values[place] for name, values in self.gallery.items()},
        }


def _names_of(labels: LabelledSet) -> dict[str, NDArray[Any]]:
    return {name: held for name, what in _NAMES.items() if (held := getattr(labels, what)) is not None}
