"""Read one side of any known format into memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet, MemorySet, Progress
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions
from reid_dist.stores.importers.labelling import label_column, label_parts
from reid_dist.stores.importers.names import ArrayNames, find_labels
from reid_dist.stores.importers.sides import SIDE_LABELS, sides_of
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.labels import LabelledRows, Role, label_arguments

if TYPE_CHECKING:
    from typing import Unpack


class RowsReporter:
    """Counts rows over all parts for the progress callback."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def advance(self, rows: int, what: str) -> None:
        """Add rows of what is read."""
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total, what)


def read_features(
    uri: str,
    role: str | None,
    names: ArrayNames | Mapping[str, str | None] | None,
    *,
    format_name: str | None,
    allow_zero: bool,
    progress: Progress | None,
    **labels: Unpack[LabelFields],
) -> FeatureSet:
    """Features with their labels; arguments as of `reid_dist.stores.opening.open_features`."""
    options = LabelOptions(names=ArrayNames.of(names), **labels)
    with open_source(uri, format_name) as opened:
        parts = label_parts(opened, options)
        if len(parts) > 1 and role is None:
            raise InputError(f"{uri} holds query and gallery; choose one of them")
        part = next((part for part in parts if part.role == role), parts[0])
        report = RowsReporter(progress, len(part.kept))
        report.advance(0, uri)
        made = MemorySet(
            part.whole(),
            part.labels,
            allow_zero=allow_zero,
            notes=(*opened.notes, *part.notes),
            uri=uri if part.role is None else f"{uri}#{part.role}",
        )
        report.advance(len(part.kept), uri)
    return made


def read_labels(uri: str, role: Role) -> LabelledRows:
    """Labels of one side of a file with or without features."""
    with open_source(uri, None) as source:
        arrays = {what: label_column(source.arrays[name], what) for what, name in find_labels(source, role).items()}
    sides = sides_of(arrays)
    if sides is not None:
        arrays.setdefault("item_ids", np.arange(len(arrays["pids"])))
        arrays = {what: values[sides[role]] for what, values in arrays.items() if what not in SIDE_LABELS}
    return LabelledRows(**label_arguments(arrays), uri=uri)
