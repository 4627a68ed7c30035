"""Rows of a set whose item id or image path an earlier row has, as those that pad the last batch of a sampler."""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.credentials import command_line
from reid_dist.core.formatting import counted, have, shortened
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.stores.labelled import LabelledSet
from reid_dist.stores.object_errors import SCHEME

Name = Literal["item_ids", "image_paths"]
NAMES: Final[tuple[Name, ...]] = ("item_ids", "image_paths")
"""Labels that name an item."""

_ROWS_AT_ONCE: Final = 1 << 15
_LONGEST: Final = 80


def repeated_rows(values: NDArray[Any]) -> NDArray[np.int64]:
    """Rows whose value an earlier row has, ascending; numbers or texts, shape (n,)."""
    keys = _checksums(values) if values.dtype.kind == "U" else values
    ordered = np.sort(keys)
    again = ordered[1:][ordered[1:] == ordered[:-1]]
    if not len(again):
        return np.empty(0, np.int64)
    # Different texts may share a checksum.
    rows = np.flatnonzero(np.isin(keys, again))
    is_first = np.zeros(len(rows), np.bool_)
    is_first[np.unique(values[rows], return_index=True)[1]] = True
    return rows[~is_first]


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


def repeat_note(labels: LabelledSet, what: str) -> str:
    """Note rows that name an item which an earlier row of the set names, and the cure; empty if there are none."""
    for by, names in zip(NAMES, (labels.item_ids, labels.image_paths), strict=True):
        rows = np.empty(0, np.int64) if names is None else repeated_rows(names)
        if names is not None and len(rows):
            first = shortened(str(names[rows[0]]), _LONGEST)
            return (
                f"{what}: {len(rows):,} of {counted(labels.n_rows, 'row')} {have(len(rows))} the {spoken(by)} of an "
                f"earlier row (first: row {rows[0]}, {first!r}), as rows that pad the last batch of a distributed "
                f"sampler have, and {'is' if len(rows) == 1 else 'are'} counted again: {_remedy(labels, by)}"
            )
    return ""


def _remedy(labels: LabelledSet, by: Name) -> str:
    place = labels._shown
    if place.startswith(("/", SCHEME)):
        return keep_first(place.partition("#")[0], by)
    # A text with blanks names several sets, or rows of one.
    if " " in place.removesuffix(" array").removesuffix(" map"):
        return keep_first("SOURCE", by)
    return f"take the rows numpy.unique({by}, return_index=True)[1] alone, the first of each"


def keep_first(source: str, by: Name) -> str:
    """Say what keeps the first row of each item of a source."""
    command = command_line(["reid-dist", "ingest", source, "--drop-duplicates", by])
    return f"`{command} --output NEW` keeps the first row of each"


def spoken(by: Name) -> str:
    """One of the names, in words."""
    return by.removesuffix("s").replace("_", " ")
