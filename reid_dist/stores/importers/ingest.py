"""Read features of any known format: into stores, in bounded memory, or straight into a feature set."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from reid_dist.core.registry import did_you_mean
from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.stores.featureset import FeatureSet, Progress
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions
from reid_dist.stores.importers.labelling import LabelledPart, label_parts
from reid_dist.stores.importers.names import ArrayNames, Role, find_labels
from reid_dist.stores.importers.sides import SIDE_LABELS, sides_of
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.labelled import LabelledRows, LabelledSet
from reid_dist.stores.labels import as_column, label_arguments
from reid_dist.stores.locations import (
    State,
    at_location,
    canonical_uri,
    cut_short_note,
    holds,
    local_path,
    refuse_unless_free,
    state_of,
)
from reid_dist.stores.memory import MemoryRows
from reid_dist.stores.object_errors import is_object_uri
from reid_dist.stores.rows import kept_dtype, natural_dtype
from reid_dist.stores.writer import FeatureWriter, commit_writers

if TYPE_CHECKING:
    from typing import Unpack

FeatureSource: TypeAlias = FeatureSet | str | os.PathLike[str]
"""A feature set, or path or URI of a store, or of any file that `ingest` reads."""

LabelSource: TypeAlias = LabelledSet | str | os.PathLike[str]
"""Labels of one side, or path or URI of a store, or of any file that holds them."""


def ingest(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    dtype: DTypeLike | None = None,
    allow_zero: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    **labels: Unpack[LabelFields],
) -> list[FeatureSet]:
    """Read a source in bounded memory and write it to feature stores.

    A source with a query and a gallery becomes ``output/query.zarr`` and ``output/gallery.zarr``, text identities
    numbered over both; so does a single set with a number of queries or with columns ``is_query`` and ``is_gallery``.
    One with a single set becomes one store at `output`.  On any error nothing is left behind.

    Parameters
    ----------
    source
        A file or store of any known format.
    output
        Where to write.
    names
        Names of the arrays, where they are not customary ones.
    format_name
        The format; found by the bytes of the file or by its suffix when None.
    pids_file, camids_file
        ``.npy``, or text with one label per line, for a source that holds a single set; in place of an array, hence
        not together with its name.
    labels_file
        A table of labels, one row per row of features: CSV, parquet or any known format, its columns under customary
        names (``label``, ``path``, ``camera``, ``split``, ``is_query``, ``is_gallery``).
    names_file
        Text with one name of an image per line; labels are read from the names.
    layout
        The data set whose names and lists these are, by its name in ``reid-dist list layouts``; ``"market1501"`` when
        None.  Its folders and lists also choose query and gallery, where they hold both.
    pattern
        In place of a layout: a regular expression with the groups ``pid`` and ``camid``, searched in the base name of
        an image, or in its path if it holds a ``/``.  Any other group is a label column of whole numbers.
    words
        By group of the layout or pattern: texts and the whole numbers that they denote, such as
        ``{"modality": {"rgb": 1, "ir": 2}}``, or ``{"pid": {"unknown": -1}}`` for junk.
    lists
        Lists of the data set with labels, in the form of the layout.  Images are found in them by name; where there
        are no names, their records are the rows in their order.
    query_lists, gallery_lists
        Lists of the images that are queries, and of those of the gallery; when one is empty, it is all others.
    query_folders, gallery_folders
        Folders of the images that are queries, and of those of the gallery, likewise; ``"test/C"`` is a folder ``C`` in
        a folder ``test``.
    num_query
        Number of queries of a single set, which come first; its entry ``num_query`` when None.
    chunk_rows, shard_rows
        As in `FeatureSet.save`.
    dtype
        ``"float32"`` or ``"float16"``; float16 sources stay float16 when None, all others become float32.
    drop_pids
        Identities whose rows are left out; a note gives their number.
    allow_zero
        Keep rows of zeros; they are refused otherwise.
    overwrite
        Replace complete stores, all of them once all successors are complete; not on object storage.
    progress
        Called after every block of rows.

    Returns
    -------
    list of FeatureSet
        Query and gallery, or the one store.

    Raises
    ------
    StoreNotFoundError, StoreExistsError, StoreError, InputError
        As reading and writing do; zero rows without `allow_zero` are an InputError.
    """
    root = canonical_uri(output)
    options = LabelOptions(names=ArrayNames.of(names), **labels)
    with open_source(os.fspath(source), format_name) as opened, ExitStack() as on_error:
        parts = label_parts(opened, options)
        targets = [at_location(root, f"{part.role}.zarr") if part.role else root for part in parts]
        if len(parts) > 1 and state_of(root) in (State.COMPLETE, State.WRITING):
            raise InputError(f"{root} is a feature store and cannot hold query.zarr and gallery.zarr; write elsewhere")
        for target in targets:
            refuse_unless_free(target, overwrite=overwrite)
        if not is_object_uri(root) and not local_path(root).exists():
            on_error.callback(_remove_if_empty, local_path(root))
        report = _Reporter(progress, sum(part.n_rows for part in parts))
        writers: list[FeatureWriter] = []
        for part, target in zip(parts, targets, strict=True):
            writer = FeatureWriter(
                target,
                dim=part.features.shape[1],
                n_rows=part.n_rows,
                dtype=natural_dtype(part.features.dtype) if dtype is None else kept_dtype(dtype),
                chunk_rows=chunk_rows,
                shard_rows=shard_rows,
                allow_zero=allow_zero,
                overwrite=overwrite,
                notes=[*opened.notes, *part.notes],
                source={"uri": opened.uri, "drop_pids": [int(pid) for pid in options.drop_pids]},
            )
            on_error.callback(writer.abort)
            _copy_rows(part, writer, allow_zero, report)
            writers.append(writer)
        # Query and gallery of two models, each of them whole, would be evaluated, and to a wrong number.
        commit_writers(writers)
        on_error.pop_all()
    return [FeatureSet.open(target) for target in targets]


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


class _Reporter:
    """Counts rows over all parts for the progress callback."""

    def __init__(self, progress: Callable[[int, int, str], None] | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def advance(self, rows: int, what: str) -> None:
        self._done += rows
        if self._progress is not None:
            self._progress(self._done, self._total, what)


def _copy_rows(part: LabelledPart, writer: FeatureWriter, allow_zero: bool, report: _Reporter) -> None:
    n_source = len(part.kept)
    for start in range(0, n_source, part.block_rows):
        stop = min(start + part.block_rows, n_source)
        kept = part.kept[start:stop]
        if kept.any():
            block = part.features.read(start, stop)
            writer.append(block if kept.all() else block[kept])
        report.advance(int(kept.sum()), writer.uri)
    zero = writer.faults.zero
    if zero and not allow_zero:
        raise InputError(
            f"{part.role or 'features'} holds {zero} of zeros, which have no direction; "
            "leave them out, or keep them with --allow-zero (allow_zero=True)"
        )
    writer.set_labels(part.labels)
    writer.finish()


def _stored(uri: str, role: str | None, what: str) -> FeatureSet | None:
    """Open the store at a URI, or that of one side in a folder there; None for any other file."""
    state = state_of(uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no {what} at {uri}: nothing is there{cut_short_note(uri)}")
    if state in (State.COMPLETE, State.WRITING):
        return FeatureSet.open(uri)
    side = None if role is None else at_location(uri, f"{role}.zarr")
    if side is not None and (holds(uri, f"{role}.zarr") or cut_short_note(side)):
        return FeatureSet.open(side)
    return None


def open_features(
    location: str | os.PathLike[str],
    role: str | None = None,
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    allow_zero: bool = False,
    progress: Progress | None = None,
    **labels: Unpack[LabelFields],
) -> FeatureSet:
    """Open a store, or read any known format into a set in memory (memory-mapped where the format allows it).

    `role` is the side, if the location holds both; other options are those of `ingest`, and for files alone.
    """
    if role not in (None, "query", "gallery"):
        raise InputError(did_you_mean("role", str(role), ("query", "gallery")))
    uri = canonical_uri(location)
    if (stored := _stored(uri, role, "features")) is not None:
        return stored
    options = LabelOptions(names=ArrayNames.of(names), **labels)
    with open_source(uri, format_name) as opened:
        parts = label_parts(opened, options)
        if len(parts) > 1 and role is None:
            raise InputError(f"{uri} holds query and gallery; choose one of them")
        part = next((part for part in parts if part.role == role), parts[0])
        report = _Reporter(progress, len(part.kept))
        report.advance(0, uri)
        rows = MemoryRows(
            part.whole(),
            part.labels,
            allow_zero=allow_zero,
            notes=(*opened.notes, *part.notes),
            uri=uri if part.role is None else f"{uri}#{part.role}",
        )
        report.advance(len(part.kept), uri)
    return FeatureSet(rows)


def open_labels(location: str | os.PathLike[str], role: Role) -> LabelledSet:
    """Open the labels of one side: of a store, of a folder of two, or of a file with or without features."""
    uri = canonical_uri(location)
    if (stored := _stored(uri, role, "labels")) is not None:
        return stored
    with open_source(uri, None) as source:
        arrays = {what: source.arrays[name].whole() for what, name in find_labels(source, role).items()}
    sides = sides_of(arrays)
    if sides is not None:
        arrays.setdefault("item_ids", np.arange(len(arrays["pids"])))
        arrays = {
            what: as_column(values, what)[sides[role]] for what, values in arrays.items() if what not in SIDE_LABELS
        }
    return LabelledRows(**label_arguments(arrays), uri=uri)


def as_feature_set(source: FeatureSource, role: Role | None = None) -> FeatureSet:
    """Open a path; return a feature set as it is."""
    if isinstance(source, str | os.PathLike):
        return open_features(source, role=role)
    if not isinstance(source, FeatureSet):
        raise InputError(
            f"{role or 'features'} must be a FeatureSet or a path, found {type(source).__name__}; use FeatureSet.open "
            "or .from_arrays"
        )
    return source


def as_labelled_set(source: LabelSource, role: Role) -> LabelledSet:
    """Open the labels at a path; return labels as they are."""
    if isinstance(source, str | os.PathLike):
        return open_labels(source, role)
    if not isinstance(source, LabelledSet):
        raise InputError(
            f"{role} must be labels, found {type(source).__name__}; use LabelledRows, a FeatureSet or a path"
        )
    return source
