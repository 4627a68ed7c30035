"""One side of an evaluation: a store is opened, and a file of any other known format is read into memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from numpy.typing import ArrayLike

from reid_dist.core.formatting import counted
from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.stores.featureset import FeatureSet, Progress
from reid_dist.stores.labels import LabelledRows, LabelledSet, Role
from reid_dist.stores.locations import (
    State,
    at_location,
    canonical_uri,
    cut_short_note,
    holds,
    is_glob,
    local_path,
    state_of,
)
from reid_dist.stores.objects import SCHEME, is_object_uri

if TYPE_CHECKING:
    from typing import Unpack

    from reid_dist.stores.importers.label_options import LabelFields
    from reid_dist.stores.importers.names import ArrayNames

FeatureSource: TypeAlias = FeatureSet | str | os.PathLike[str] | tuple[ArrayLike, ...]
"""A feature set; arrays ``(features, pids)``, ``(features, pids, camids)`` or ``(features, pids, camids, item_ids)``,
as `FeatureSet.from_arrays` takes them; or path or URI of a store, or of any source that `ingest` reads: a file, a
folder, or a glob of files."""

LabelSource: TypeAlias = LabelledSet | str | os.PathLike[str] | tuple[ArrayLike, ...]
"""Labels of one side; arrays ``(pids,)``, ``(pids, camids)`` or ``(pids, camids, item_ids)``; or path or URI of a
store, or of any file that holds them."""

_LABELS: Final = ("pids", "camids", "item_ids")
Made = TypeVar("Made")


def open_features(
    location: str | os.PathLike[str],
    role: str | None = None,
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    allow_zero: bool = False,
    progress: Progress | None = None,
    finite: bool = True,
    **labels: Unpack[LabelFields],
) -> FeatureSet:
    """Open a store, or read any known format into a set in memory (memory-mapped where the format allows it).

    `role` is the side, if the location holds both; `finite` is as of `MemorySet`; other options are those of `ingest`,
    and for files alone.
    """
    if role not in (None, "query", "gallery"):
        raise unknown_name("role", str(role), ("query", "gallery"))
    uri = canonical_uri(location)
    if (stored := _stored(uri, role, "features")) is not None:
        return stored
    # Few runs need readers of other formats.
    from reid_dist.stores.importers.ingestion import read_features

    return read_features(
        uri, role, names, format_name=format_name, allow_zero=allow_zero, progress=progress, finite=finite, **labels
    )


def stores_at(location: str | os.PathLike[str]) -> list[str]:
    """Return the URIs of the stores at a place: itself, or the stores of both sides in a directory."""
    uri = canonical_uri(location)
    sides = [] if state_of(uri) is not State.FOREIGN else [f"{side}.zarr" for side in ("query", "gallery")]
    return [at_location(uri, name) for name in sides if holds(uri, name)] or [uri]


def open_labels(location: str | os.PathLike[str], role: Role) -> LabelledSet:
    """Open the labels of one side: of a store, of a folder of two, or of a file with or without features."""
    uri = canonical_uri(location)
    if (stored := _stored(uri, role, "labels")) is not None:
        return stored
    from reid_dist.stores.importers.ingestion import read_labels

    return read_labels(uri, role)


def as_feature_set(source: FeatureSource, role: Role | None = None) -> FeatureSet:
    """Open a path, make a set of arrays, and return a feature set as it is."""
    if isinstance(source, str | os.PathLike):
        return open_features(source, role=role)
    if isinstance(source, tuple):
        return _of_arrays(FeatureSet.from_arrays, source, ("features", *_LABELS), role or "features")
    if not isinstance(source, FeatureSet):
        raise InputError(
            f"{role or 'features'} must be a FeatureSet, a path or a tuple (features, pids, camids), found "
            f"{type(source).__name__}; use FeatureSet.open or .from_arrays"
        )
    return source


def as_labelled_set(source: LabelSource, role: Role) -> LabelledSet:
    """Open the labels at a path, make labels of arrays, and return labels as they are."""
    if isinstance(source, str | os.PathLike):
        return open_labels(source, role)
    if isinstance(source, tuple):
        return _of_arrays(LabelledRows, source, _LABELS, role)
    if not isinstance(source, LabelledSet):
        raise InputError(
            f"{role} must be labels, found {type(source).__name__}; use LabelledRows, a FeatureSet, a path or a tuple "
            "(pids, camids)"
        )
    return source


def _of_arrays(make: Callable[..., Made], arrays: tuple[ArrayLike, ...], names: tuple[str, ...], side: str) -> Made:
    """Make a set of a tuple of arrays; the names are those of a whole one, and the last two may be left out."""
    if not len(names) - 2 <= len(arrays) <= len(names):
        raise InputError(
            f"{side} is a tuple of {counted(len(arrays), 'entry')}; give ({', '.join(names[:-1])}) or "
            f"({', '.join(names)})"
        )
    try:
        return make(*arrays)
    except InputError as error:
        raise InputError(f"{side}: {error}", details=error.details) from None


def recorded_place(described: Mapping[str, Any], role: Role, key: str = "uri") -> str | None:
    """Where a side that a report describes is opened again, with its role; None for arrays that were in memory.

    A side of a file that holds both is recorded as ``FILE#ROLE``.
    """
    uri = str(described.get(key, described.get("uri", "")))
    # Locations are recorded whole: anything else is the kind of an array, or says what a set is made of.
    return uri.removesuffix(f"#{role}") if uri.startswith(("/", SCHEME)) else None


def _stored(uri: str, role: str | None, what: str) -> FeatureSet | None:
    """Open the store at a URI, or that of one side in a folder there; None for any other file, and for a glob."""
    state = state_of(uri)
    if state is State.NOTHING and is_glob(uri):
        return None
    if state is State.NOTHING:
        if not is_object_uri(uri) and local_path(uri).is_dir():
            raise StoreNotFoundError(f"no {what} in {uri}: the directory is empty{cut_short_note(uri)}")
        raise StoreNotFoundError(f"no such file or store: {uri}{cut_short_note(uri)}")
    if state in (State.COMPLETE, State.WRITING):
        return FeatureSet.open(uri)
    side = None if role is None else at_location(uri, f"{role}.zarr")
    if side is not None and (holds(uri, f"{role}.zarr") or cut_short_note(side)):
        return FeatureSet.open(side)
    return None
