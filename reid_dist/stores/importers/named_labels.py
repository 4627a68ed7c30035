"""Labels by a layout: from the lists of a data set, and from names of images."""

from __future__ import annotations

import re
from collections.abc import Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_options import LabelOptions
from reid_dist.stores.importers.name_layouts import (
    MARKET1501,
    Coded,
    NameLayout,
    Records,
    labels_of_names,
    read_lists,
    records_of_names,
    sets_by_folder,
    sets_by_label,
)
from reid_dist.stores.importers.sides import rows_left_out

_IMAGE = re.compile(r".*[.](?:jpe?g|png|bmp|webp|tiff?|ppm|gif)", re.IGNORECASE | re.DOTALL)
_MOST_SHOWN = 10


@dataclass
class NamedLabels:
    """Labels of n rows by what they are, those of lists, (n,), and those of names; the sets of the rows; notes."""

    listed: Records = field(default_factory=dict)
    coded: dict[str, Coded] = field(default_factory=dict)
    sets: Coded | None = None
    notes: list[str] = field(default_factory=list)


def first_file_name(values: NDArray[Any]) -> int | None:
    """Return the first row whose label is the name of an image file, which no identity is; None if there is none."""
    if values.dtype.kind != "U":
        return None
    texts = values.tolist()
    if texts and all(MARKET1501.patterns[0].search(text) for text in texts):
        return 0
    return next((row for row, text in enumerate(texts) if _IMAGE.fullmatch(text)), None)


def read_records(options: LabelOptions) -> Records:
    """Read the lists of the options; no columns where there are none."""
    return read_lists(options.lists, options.name_layout) if options.lists else {}


def named_labels(
    names: NDArray[np.str_] | None, n_rows: int, held: Container[str], records: Records, options: LabelOptions
) -> NamedLabels:
    """Read the labels that are not `held` from the records of lists, then from the names of images, (n,)."""
    layout, made = options.name_layout, NamedLabels()
    if records:
        _take_records(made, names, n_rows, held, records, options)
        names = made.listed.get("image_paths", names)
    missing = [what for what in layout.labels if what not in held and what not in made.listed]
    if missing and names is None and not records:
        raise InputError(
            f"{layout.name} reads names of images, and there are none; give --names FILE, or name the array with "
            "--image-paths"
        )
    if missing and names is not None:
        found = labels_of_names(names, layout)
        made.coded = {what: found[what] for what in missing}
        example = ", ".join(f"{what} {coded.texts[coded.codes[0]]}" for what, coded in made.coded.items())
        made.notes.append(f"labels come from names of images, layout {layout.name}: {str(names[0])!r} is {example}")
        made.notes += _camera_notes(made.coded.get("camids"), layout)
        if made.sets is None and "camid" in layout.sets and "camids" in found:
            made.sets = sets_by_label(found["camids"], layout.sets["camid"])
    if made.sets is None and layout.folders and names is not None:
        made.sets = sets_by_folder(names, layout.folders)
    return made


def _take_records(
    made: NamedLabels,
    names: NDArray[np.str_] | None,
    n_rows: int,
    held: Container[str],
    records: Records,
    options: LabelOptions,
) -> None:
    """Take the records of the names; those in the order of the rows where one of both has no names."""
    where, layout = first_few([Path(each).name for each in options.lists], _MOST_SHOWN), options.name_layout
    sets = _sets_of_split(records, layout)
    if names is not None and "image_paths" in records:
        rows = records_of_names(names, records, where, stems=layout.stems)
        how = "by name"
    else:
        rows = _rows_in_order(len(next(iter(records.values()))), sets, n_rows, where)
        how = "in the order of the rows"
    taken = {what: values[rows] for what, values in records.items() if what not in held and what != "split"}
    if names is not None:
        taken.pop("image_paths", None)
    made.listed = taken
    if sets is not None:
        made.sets = sets._replace(codes=sets.codes[rows])
    listed = [what for what in taken if what != "image_paths"]
    made.notes.append(f"labels come from {where}, layout {layout.name}, {how}: {', '.join(listed)}")


def _sets_of_split(records: Records, layout: NameLayout) -> Coded | None:
    if "split" not in records:
        return None
    texts, codes = np.unique(records["split"].astype(np.str_), return_inverse=True)
    split = Coded(texts, codes.astype(np.int32))
    return sets_by_label(split, layout.sets["split"]) if "split" in layout.sets else split


def _rows_in_order(n_records: int, sets: Coded | None, n_rows: int, where: str) -> NDArray[np.int64]:
    """Return the records of the rows: all, or all that are evaluated."""
    if n_records == n_rows:
        return np.arange(n_rows)
    kept = np.arange(n_records) if sets is None else np.flatnonzero(~rows_left_out(sets))
    if len(kept) == n_rows:
        return kept
    evaluated = f", {len(kept)} of them evaluated," if len(kept) < n_records else ""
    raise InputError(
        f"{where} {'holds' if ',' not in where else 'hold'} {counted(n_records, 'record')}{evaluated} for "
        f"{counted(n_rows, 'row')} of features; give the lists of these rows in their order, or names of their images "
        "(--names), by which records are found"
    )


def _camera_notes(camids: Coded | None, layout: NameLayout) -> list[str]:
    """A note on cameras below the first one of the layout, which other code has counted anew."""
    if camids is None or layout.first_camera is None:
        return []
    below = sorted(text for text in camids.texts.tolist() if text.isdecimal() and int(text) < layout.first_camera)
    if not below:
        return []
    return [f"cameras of the layout {layout.name} begin at {layout.first_camera}; names hold camera {', '.join(below)}"]
