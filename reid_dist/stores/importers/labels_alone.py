"""Read the labels of one side and leave the features, if there are any, alone."""

from __future__ import annotations

import os

import numpy as np

from reid_dist.errors import StoreNotFoundError
from reid_dist.stores.featureset import FeatureSet
from reid_dist.stores.importers.names import Role, find_labels
from reid_dist.stores.importers.sides import SIDE_LABELS, sides_of
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.labelled import LabelledRows, LabelledSet
from reid_dist.stores.labels import COLUMN_PREFIX, as_column
from reid_dist.stores.locations import State, at_location, canonical_uri, holds, state_of

__all__ = ["open_labels"]


def open_labels(location: str | os.PathLike[str], role: Role) -> LabelledSet:
    """Open the labels of one side.

    Parameters
    ----------
    location
        A feature store, a folder with ``query.zarr`` and ``gallery.zarr``, or a file of any known format that holds
        arrays such as ``query_pids`` or ``pids``, with or without features; label columns of one's own are called
        ``query_columns/NAME`` or ``columns/NAME``.  Columns ``is_query`` and ``is_gallery`` say whose a row is.
    role
        Which side.

    Raises
    ------
    StoreNotFoundError, StoreError, InputError
        As reading does.
    """
    uri = canonical_uri(location)
    state = state_of(uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no labels at {uri}: nothing is there")
    if state in (State.COMPLETE, State.WRITING):
        return FeatureSet.open(uri)
    if holds(uri, f"{role}.zarr"):
        return FeatureSet.open(at_location(uri, f"{role}.zarr"))
    with open_source(uri, None) as source:
        arrays = {what: source.arrays[name].whole() for what, name in find_labels(source, role).items()}
    sides = sides_of(arrays)
    if sides is not None:
        arrays.setdefault("item_ids", np.arange(len(arrays["pids"])))
        arrays = {
            what: as_column(values, what)[sides[role]] for what, values in arrays.items() if what not in SIDE_LABELS
        }
    columns = {name.removeprefix(COLUMN_PREFIX): arrays[name] for name in arrays if name.startswith(COLUMN_PREFIX)}
    return LabelledRows(
        arrays["pids"],
        arrays.get("camids"),
        arrays.get("item_ids"),
        columns=columns,
        image_paths=arrays.get("image_paths"),
        uri=uri,
    )
