"""Lists of pairs: two columns that name a row each, and whether the rows are of one identity.

Files are those of `open_source` with customary names, or ``.txt`` with two or three values between blanks a line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.sorted_values import places_among
from reid_dist.errors import InputError
from reid_dist.stores.importers.source import listed, open_source, text_rows
from reid_dist.stores.importers.text_files import file_of_labels, read_text
from reid_dist.stores.labels import LabelledSet, as_whole_numbers, join_item_ids

LEFT: Final = ("left", "first", "row1", "id1", "path1", "template1", "t1", "a", "query")
RIGHT: Final = ("right", "second", "row2", "id2", "path2", "template2", "t2", "b", "gallery")
SAME: Final = ("same", "is_same", "issame", "label", "labels", "genuine", "target")
_WHOLE: Final = ("pairs",)
"""Customary names of the columns, in any case."""

_SAME_WORDS: Final = {
    "1": True,
    "true": True,
    "same": True,
    "0": False,
    "-1": False,
    "false": False,
    "different": False,
}


class PairList(NamedTuple):
    """Row numbers of pairs, (n, 2) int64, and whether they are of one identity, (n,); None where no label is given."""

    rows: NDArray[np.int64]
    same: NDArray[np.bool_] | None


def read_pair_list(
    location: str | os.PathLike[str], left: LabelledSet, right: LabelledSet, *, by: str = "rows"
) -> PairList:
    """Read a list of pairs, and find the rows that it names in two sets: by ``rows``, ``item_ids`` or ``image_paths``.

    InputError if the file has no such columns, or names a row that a set lacks or has twice.
    """
    where = os.fspath(location)
    columns = _text_columns(where) if Path(where).suffix.lower() == ".txt" else _source_columns(where)
    names = [columns["left"], columns["right"]]
    if by == "rows":
        rows = [row_numbers(values, where) for values in names]
    else:
        rows = [rows_named(values, each, by, where) for values, each in zip(names, (left, right), strict=True)]
    same = columns.get("same")
    return PairList(np.column_stack(rows), None if same is None else _same(same, where))


def _text_columns(where: str) -> dict[str, NDArray[Any]]:
    path = file_of_labels(where)
    try:
        # A tenth of the time and of the memory of texts; most lists hold numbers alone.
        columns = [*np.loadtxt(path, np.int64, ndmin=2).T] if path.stat().st_size else []
    except ValueError:
        columns = _texts_between_blanks(read_text(path), where)
    if len(columns) not in (2, 3):
        raise InputError(
            f"{where} must hold two rows and perhaps a label a line, between blanks; found {len(columns)} values a line"
        )
    return dict(zip(("left", "right", "same"), columns, strict=False))


def _texts_between_blanks(text: str, where: str) -> list[NDArray[Any]]:
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    lines = [line for line in lines if line]
    uneven = next((number for number, line in enumerate(lines) if len(line) != len(lines[0])), None)
    if uneven is not None:
        raise InputError(
            f"{where} must hold as many values in every line, between blanks; pair 1 has {len(lines[0])}, and pair "
            f"{uneven + 1} has {len(lines[uneven])}"
        )
    return [text_rows(list(texts), where) for texts in zip(*lines, strict=True)]


def _source_columns(where: str) -> dict[str, NDArray[Any]]:
    with open_source(where) as source:
        arrays = {name.lower(): array for name, array in source.arrays.items()}
        whole = next((arrays[name] for name in _WHOLE if name in arrays), None)
        if whole is None and len(arrays) == 1:
            whole = next(iter(arrays.values()))
        columns: dict[str, NDArray[Any]] = {}
        if whole is not None and len(whole.shape) == 2 and whole.shape[1] in (2, 3):
            columns = dict(zip(("left", "right", "same"), whole.whole().T, strict=False))
        for what, customary in (("left", LEFT), ("right", RIGHT), ("same", SAME)):
            found = next((arrays[name] for name in customary if name in arrays), None)
            if found is not None:
                columns[what] = found.whole().reshape(-1)
        _refuse_unless_columns(columns, where, source.contents())
    return columns


def _refuse_unless_columns(columns: Mapping[str, NDArray[Any]], where: str, contents: str) -> None:
    if not {"left", "right"} <= columns.keys():
        raise InputError(
            f"{where} is no list of pairs: it needs an array pairs of shape (n, 2) or (n, 3), or columns such as left, "
            f"right and same; {contents}"
        )
    if len({len(values) for values in columns.values()}) > 1:
        raise InputError(f"the columns of {where} differ in length; {contents}")


def row_numbers(values: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Whole numbers of any dtype as int64, shape (n,)."""
    try:
        if values.dtype.kind in "iuf":
            return as_whole_numbers(values, "row numbers")
        return values.astype(np.int64) if values.dtype.kind != "U" else np.array(values.tolist(), dtype=np.int64)
    except (ValueError, OverflowError, InputError) as error:
        raise InputError(
            f"{where} holds no row numbers ({error}); for item ids or image paths, give --by item_ids or "
            "--by image_paths"
        ) from None


def rows_named(values: NDArray[Any], features: LabelledSet, by: str, where: str) -> NDArray[np.int64]:
    """Row of each item id or image path in a set, (n,) int64."""
    known = features.item_ids if by == "item_ids" else features.image_paths
    if known is None:
        raise InputError(f"{where} gives {by}, and {features.uri} has none; give row numbers (--by rows)")
    wanted, held = join_item_ids(values, known)
    order = np.argsort(held, kind="stable")
    ordered = held[order]
    place = places_among(ordered, wanted)
    missing = np.flatnonzero(place < 0)
    if len(missing):
        raise InputError(
            f"{counted(len(missing), 'entry')} of {where} {'has' if len(missing) == 1 else 'have'} {by} that "
            f"{features.uri} lacks: {listed(map(repr, np.unique(wanted[missing]).tolist()))}"
        )
    twice = np.flatnonzero((np.searchsorted(ordered, wanted, "right") - np.searchsorted(ordered, wanted)) > 1)
    if len(twice):
        raise InputError(
            f"{features.uri} has several rows of {by} {listed(map(repr, np.unique(wanted[twice]).tolist()))}, which "
            f"{where} names; give row numbers (--by rows)"
        )
    return order[place]


def _same(values: NDArray[Any], where: str) -> NDArray[np.bool_]:
    kinds, code = np.unique(values, return_inverse=True)
    words = [
        str(int(kind) if isinstance(kind, float) and kind.is_integer() else kind).casefold() for kind in kinds.tolist()
    ]
    unknown = [word for word in words if word not in _SAME_WORDS]
    if unknown:
        raise InputError(
            f"{where} labels pairs {listed(unknown)}; a label is 1, true or same, or 0, -1, false or different"
        )
    return np.array([_SAME_WORDS[word] for word in words])[code]
