"""The nearest gallery items of every query, as a report carries them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import described_lists
from reid_dist.errors import InputError
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import make_frame
from reid_dist.reports.item_names import ItemNames


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TopK:
    """The ``k`` nearest gallery items of each query, nearest first, junk included and flagged.

    All arrays have shape (n_query, k).  Where the gallery has fewer than ``k`` items, `index` is -1 and `distance` is
    inf; `junk` and `relevant` are None without labels.  `names` holds the names of the items, if the sets have any.
    """

    index: NDArray[np.int64]
    distance: NDArray[np.float64]
    junk: NDArray[np.bool_] | None = None
    relevant: NDArray[np.bool_] | None = None
    names: ItemNames | None = None

    def __post_init__(self) -> None:
        kinds: dict[str, tuple[str, type[np.generic]]] = {
            "index": ("iu", np.int64),
            "distance": ("f", np.float64),
            "junk": ("b", np.bool_),
            "relevant": ("b", np.bool_),
        }
        for name, (kind, dtype) in kinds.items():
            given = getattr(self, name)
            if given is None:
                continue
            array = np.asarray(given)
            if array.dtype.kind not in kind or array.ndim != 2 or array.shape != np.shape(self.index):
                raise InputError(
                    f"topk.{name} must be a 2-D array of kind {np.dtype(dtype).name} and of the shape of topk.index "
                    f"{np.shape(self.index)}, found {array.dtype} {array.shape}"
                )
            frozen = array.astype(dtype, copy=False).view()
            frozen.flags.writeable = False
            object.__setattr__(self, name, frozen)

    def __repr__(self) -> str:
        return described_lists("TopK", self.index.shape)

    @property
    def k(self) -> int:
        """The length of each list."""
        return int(self.index.shape[1])

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The available arrays, by name."""
        named = {"index": self.index, "distance": self.distance, "junk": self.junk, "relevant": self.relevant}
        return {name: array for name, array in named.items() if array is not None}

    def to_pandas(self) -> Any:
        """Return the lists as a `pandas.DataFrame` with one row per item of a list, the nearest of query 0 first.

        Its columns are ``query_row``, ``rank`` (from 1), ``gallery_row``, ``distance``, then ``relevant`` and ``junk``
        if known, and ``query_item_id``, ``query_image_path``, ``gallery_item_id`` and
        ``gallery_image_path`` if the sets have them.  Absent items have no row.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``).
        """
        query_rows, place = np.nonzero(self.index >= 0)
        held = {name: array[query_rows, place] for name, array in self.arrays.items()}
        gallery_rows = held.pop("index")
        flags: dict[str, Any] = {name: held[name] for name in ("relevant", "junk") if name in held}
        columns: dict[str, Any] = {
            "query_row": query_rows,
            "rank": place + 1,
            "gallery_row": gallery_rows,
            "distance": held["distance"],
            **flags,
            **({} if self.names is None else self.names.of_entries(query_rows, gallery_rows)),
        }
        return make_frame(columns)

    def marks(self, rows: slice) -> NDArray[np.str_]:
        """Marks of the items in some lists, shape (rows, k): right, wrong, junk or not assessed; "" if absent."""
        absent = self.index[rows] < 0
        if self.relevant is None:
            marks = np.where(absent, "", "not assessed")
        else:
            marks = np.select([absent, self.relevant[rows]], ["", "right"], "wrong")
        return marks if self.junk is None else np.where(self.junk[rows] & ~absent, "junk", marks)

    @property
    def digest(self) -> str:
        """SHA-256 of the arrays, 64 hexadecimal digits; see :mod:`reid_dist.reports.digest`."""
        return arrays_digest({"topk": self.arrays})
