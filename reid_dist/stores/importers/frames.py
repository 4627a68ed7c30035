"""Data frames with features: one column of lists or arrays, or several columns of numbers, and labels beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_tables import LabelTable
from reid_dist.stores.importers.names import SIDE_LABELS, ArrayNames, find_parts
from reid_dist.stores.importers.parquet import open_frame
from reid_dist.stores.importers.source import Frame
from reid_dist.stores.labels import COLUMN_PREFIX, label_arguments

_MOST_KNOWN = 10


def arrays_of_frame(
    frame: Frame,
    features: str | Sequence[str] | None,
    labels: Mapping[str, str | None],
    columns: Mapping[str, str] | Sequence[str],
) -> dict[str, Any]:
    """Arguments of `FeatureSet.from_arrays` for a data frame.

    Parameters are those of `FeatureSet.from_frame`, with the columns of labels by what they are.
    """
    listed = (columns,) if isinstance(columns, str) else columns
    further = listed if isinstance(listed, Mapping) else {name: name for name in listed}
    with open_frame(frame, features=features) as source:
        for name in [*filter(None, labels.values()), *further.values()]:
            if name in source.refused:
                raise InputError(f"column {name!r} of {source.uri} cannot be read: it is {source.refused[name]}")
            if name not in source.arrays:
                raise unknown_name("column", name, source.arrays, _MOST_KNOWN, details=(source.contents(),))
        names = ArrayNames.of({**labels, "features": None if features is None else "features"})
        # Columns that choose the sides of a file say nothing about one set.
        part, *_ = find_parts(source, names, elsewhere=SIDE_LABELS)
        if "pids" not in part.labels:
            raise InputError(
                f"found no identities in {source.uri}; name their column with pid (pid='person'); {source.contents()}"
            )
        found = {**part.labels, **{COLUMN_PREFIX + what: name for what, name in further.items()}}
        table = LabelTable.of(source, found)
        return {"features": source.arrays[part.features].whole(), **label_arguments(table.columns)}
