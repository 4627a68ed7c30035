"""Query and gallery rows of a single set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.stores.importers.names import Role
from reid_dist.stores.importers.source import Source

SIDE_LABELS = ("is_query", "is_gallery", "split")
"""Columns that assign rows to sides; not stored."""

_ENTRY = "num_query"
_TRUE = ("true", "1", "1.0", "t", "yes")
_FALSE = ("false", "0", "0.0", "f", "no", "", "nan", "none", "null")

Mask = NDArray[np.bool_]


def as_flags(values: NDArray[Any], name: str) -> Mask:
    """Read true and false in the notations of data frames; what is missing is false."""
    column = values.reshape(-1)
    if column.dtype.kind != "U":
        return np.asarray(np.nan_to_num(column.astype(np.float64), nan=0.0) != 0, dtype=np.bool_)
    texts = [text.strip().lower() for text in column.tolist()]
    wrong = next((row for row, text in enumerate(texts) if text not in _TRUE and text not in _FALSE), None)
    if wrong is not None:
        raise InputError(f"{name} must be true or false in every row: row {wrong} holds {str(column[wrong])[:80]!r}")
    return np.array([text in _TRUE for text in texts], dtype=np.bool_)


def queries_first(source: Source, given: int | None, n_rows: int) -> dict[Role, Mask] | None:
    """Return the rows of both sides where `given` queries come first, or as many as the entry ``num_query`` says."""
    count = _entry(source) if given is None else given
    if count is None:
        return None
    if not 1 <= count < n_rows:
        what = f"the entry {_ENTRY} of {source.uri}" if given is None else "--num-query (num_query)"
        raise InputError(f"{what} is {count}, and must be at least 1 and less than the {n_rows} rows of features")
    first = np.arange(n_rows) < count
    return {"query": first, "gallery": ~first}


def _entry(source: Source) -> int | None:
    if _ENTRY in source.values:
        return source.values[_ENTRY]
    array = source.arrays.get(_ENTRY)
    if array is None or set(array.shape) != {1} or array.dtype.kind not in "iuf":
        return None
    value = array.whole().reshape(-1)[0]
    return int(value) if value == int(value) else None


def sides_of(labels: Mapping[str, NDArray[Any]]) -> dict[Role, Mask] | None:
    """Return the rows of both sides by ``is_query`` and ``is_gallery``, or by ``split``; None if there are neither."""
    if "is_query" in labels:
        query = as_flags(labels["is_query"], "is_query")
        gallery = as_flags(labels["is_gallery"], "is_gallery") if "is_gallery" in labels else ~query
    elif "split" in labels and {"query", "gallery"} <= set(labels["split"].tolist()):
        query, gallery = labels["split"] == "query", labels["split"] == "gallery"
    else:
        return None
    for what, rows in (("query", query), ("gallery", gallery)):
        if not rows.any():
            raise InputError(f"no row is of the {what} side by is_query and is_gallery; leave these columns out")
    return {"query": query, "gallery": gallery}
