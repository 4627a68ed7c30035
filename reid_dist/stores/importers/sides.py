"""Query and gallery in a single set: by columns, by the first rows, by folders and lists, or by the layout of names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_options import LabelOptions, Location
from reid_dist.stores.importers.name_layouts import EVALUATED, Coded, read_name_list, rows_in_list, sets_by_folder
from reid_dist.stores.importers.source import Source
from reid_dist.stores.labels import Role

SIDE_LABELS = ("is_query", "is_gallery", "split")
"""Columns that assign rows to sides; not stored."""
_TRUE = ("true", "1", "1.0", "t", "yes")
_FALSE = ("false", "0", "0.0", "f", "no", "", "nan", "none", "null")
_NUM_QUERY = "num_query"
_BOTH: tuple[Role, Role] = ("query", "gallery")
_MOST_SHOWN = 10

Mask = NDArray[np.bool_]


def sides_of(labels: Mapping[str, NDArray[Any]]) -> dict[Role, Mask] | None:
    """Return the rows of both sides by ``is_query`` and ``is_gallery``, or by ``split``; None if there are neither."""
    if "is_query" in labels:
        query = _as_flags(labels["is_query"], "is_query")
        gallery = _as_flags(labels["is_gallery"], "is_gallery") if "is_gallery" in labels else ~query
    elif "split" in labels and {"query", "gallery"} <= set(labels["split"].tolist()):
        query, gallery = labels["split"] == "query", labels["split"] == "gallery"
    else:
        return None
    for what, rows in (("query", query), ("gallery", gallery)):
        if not rows.any():
            raise InputError(f"no row is of the {what} side by is_query and is_gallery; leave these columns out")
    return {"query": query, "gallery": gallery}


def _as_flags(values: NDArray[Any], name: str) -> Mask:
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
    """Return the rows of both sides where queries come first: `given`, or as the entry ``num_query`` has it."""
    count = _entry(source) if given is None else given
    if count is None:
        return None
    if not 1 <= count < n_rows:
        what = f"the entry {_NUM_QUERY} of {source.uri}" if given is None else "--num-query (num_query)"
        raise InputError(f"{what} is {count}, and must be at least 1 and less than the {n_rows} rows of features")
    first = np.arange(n_rows) < count
    return {"query": first, "gallery": ~first}


def _entry(source: Source) -> int | None:
    if _NUM_QUERY in source.values:
        return source.values[_NUM_QUERY]
    array = source.arrays.get(_NUM_QUERY)
    if array is None or set(array.shape) != {1} or array.dtype.kind not in "iuf":
        return None
    value = array.whole().reshape(-1)[0]
    return int(value) if value == int(value) else None


def chosen_sides(names: NDArray[np.str_], sets: Coded | None, options: LabelOptions) -> dict[Role, Mask]:
    """Return the rows of both sides by the lists and folders of the options; a side without any has all other rows.

    `sets` are those of the layout: rows of sets that are not evaluated are no other rows.
    """
    folders: dict[Role, Sequence[str]] = {"query": options.query_folders, "gallery": options.gallery_folders}
    lists: dict[Role, Sequence[Location]] = {"query": options.query_lists, "gallery": options.gallery_lists}
    by_folder = sets_by_folder(names, {folder: role for role in _BOTH for folder in folders[role]})
    layout, sides = options.name_layout, dict[Role, Mask]()
    for role in _BOTH:
        if not (folders[role] or lists[role]):
            continue
        rows = rows_of_set(by_folder, role)
        if folders[role] and not rows.any():
            raise InputError(
                f"no image is in the {role} folder {' or '.join(folders[role])}; the folders are "
                f"{_folders_of(names)}: give one of them (--{role}-folder)"
            )
        for location in lists[role]:
            listed = read_name_list(location, layout)
            rows = rows | rows_in_list(names, listed, Path(location).name, stems=layout.stems)
        sides[role] = rows
    for role, other in (_BOTH, _BOTH[::-1]):
        if role not in sides:
            sides[role] = ~sides[other] & (True if sets is None else ~rows_left_out(sets))
            if not sides[role].any():
                raise InputError(
                    f"all rows are of the {other} side, and none is left for the {role}; give --{role}-list or "
                    f"--{role}-folder"
                )
    return {role: sides[role] for role in _BOTH}


def _folders_of(names: NDArray[np.str_]) -> str:
    folders = {name.replace("\\", "/").rpartition("/")[0] or "none" for name in names.tolist()}
    return first_few(sorted(folders), _MOST_SHOWN)


def rows_of_set(sets: Coded, name: str) -> Mask:
    """Return the rows of a set, (n,)."""
    return np.asarray((sets.texts == name)[sets.codes], dtype=np.bool_)


def rows_left_out(sets: Coded) -> Mask:
    """Return the rows of sets that are not evaluated, such as the one for training, (n,)."""
    return np.asarray(~np.isin(sets.texts, [EVALUATED, *_BOTH])[sets.codes], dtype=np.bool_)


def sides_of_sets(
    sets: Coded, names: NDArray[np.str_] | None, layout: str, *, is_chosen: bool
) -> dict[Role, Mask] | None:
    """Return the rows of both sides by the sets of a layout; None if there are not both of them.

    InputError if the layout is chosen, and rows are in one of them and others in none.
    """
    sides = {role: rows_of_set(sets, role) for role in _BOTH}
    neither = rows_of_set(sets, EVALUATED)
    if neither.any() and any(rows.any() for rows in sides.values()):
        if not is_chosen:
            return None
        shown = ", ".join(
            f"row {row}" + ("" if names is None else f": {str(names[row])[:80]!r}")
            for row in np.flatnonzero(neither)[:_MOST_SHOWN].tolist()
        )
        raise InputError(
            f"{counted(int(neither.sum()), 'row')} of {len(neither)} {'is' if neither.sum() == 1 else 'are'} in no set "
            f"of the layout {layout}, and others are of query or gallery: {shown}; give --query-folder and "
            "--gallery-folder, --query-list and --gallery-list, or --num-query"
        )
    return sides if all(rows.any() for rows in sides.values()) else None
