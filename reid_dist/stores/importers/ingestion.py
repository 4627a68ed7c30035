"""Read features of any known format: one side into memory, or all of it into stores in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet, MemorySet, Progress
from reid_dist.stores.importers.exclusion import Exclusion, write_table
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions, Location
from reid_dist.stores.importers.label_tables import LabelTable
from reid_dist.stores.importers.labelling import LabelledPart, label_parts
from reid_dist.stores.importers.names import SIDE_LABELS, ArrayNames, find_labels
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.kept_rows import kept_dtype, natural_dtype
from reid_dist.stores.labels import LabelledRows, Role, label_arguments
from reid_dist.stores.locations import (
    State,
    at_location,
    canonical_uri,
    refuse_unless_free,
    state_of,
)
from reid_dist.stores.writer import FeatureWriter, commit_writers

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
        table = LabelTable.of(source, find_labels(source, role))
    table.check_length(len(table.columns["pids"]), uri, SIDE_LABELS)
    if (marked := table.marked()) is not None:
        marked.check_length(len(table.columns["pids"]), uri)
        table = marked.with_item_ids()
        table = table.select(table.of_role(role))
    return LabelledRows(**label_arguments(table.columns), uri=uri)


def ingest(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    chunk_rows: int | None = None,
    dtype: DTypeLike | None = None,
    allow_zero: bool = False,
    overwrite: bool = False,
    left_out: Location | None = None,
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
        A file or store of any known format, or a folder or glob of files.
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
        A table of labels, one row per row of features: CSV, parquet or any known format, a data frame of pandas or
        polars, or an Arrow table; its columns under customary names (``label``, ``path``, ``camera``, ``split``,
        ``is_query``, ``is_gallery``).
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
    chunk_rows
        As in `FeatureSet.save`.
    dtype
        ``"float32"`` or ``"float16"``; float16 sources stay float16 when None, all others become float32.
    drop_pids
        Identities whose rows are left out; a note gives their number.
    exclude
        Lists of rows to leave out, by number, item id or image path; see `reid_dist.stores.importers.exclusion`.  Notes
        give the number of rows, and entries that name none.
    drop_duplicates
        ``"item_ids"``, ``"image_paths"`` or ``"features"``: keep the first of all rows of a set that share an item id
        or an image path, or whose features are the same bits, and leave the others out; a note gives their number.
        Rows of several identities or cameras are no duplicates, and are refused.
    left_out
        Where every row that these two leave out, and every entry that names none, is written as CSV.
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
        if left_out is not None:
            write_table(left_out, [(part.role or "", part.left_out) for part in parts if part.left_out is not None])
        report = RowsReporter(progress, sum(part.n_rows for part in parts))
        writers: list[FeatureWriter] = []
        for part, target in zip(parts, targets, strict=True):
            writer = FeatureWriter(
                target,
                dim=part.features.shape[1],
                n_rows=part.n_rows,
                dtype=natural_dtype(part.features.dtype) if dtype is None else kept_dtype(dtype),
                chunk_rows=chunk_rows,
                allow_zero=allow_zero,
                overwrite=overwrite,
                notes=[*opened.notes, *part.notes],
                source=origin_of(opened.uri, options),
            )
            on_error.callback(writer.abort)
            copy_rows(part, opened.uri, writer, allow_zero, report)
            writers.append(writer)
        # Query and gallery of two models, each of them whole, would be evaluated, and to a wrong number.
        commit_writers(writers)
        on_error.pop_all()
    return [FeatureSet.open(target) for target in targets]


def origin_of(uri: str, options: LabelOptions) -> dict[str, Any]:
    """Where the rows of a store come from, and which of them were left out."""
    dropped = {} if options.drop_duplicates is None else {"drop_duplicates": options.drop_duplicates}
    lists = [os.fspath(each) for each in Exclusion(options.exclude).lists]
    excluded = {"exclude": lists} if lists else {}
    return {"uri": uri, "drop_pids": [int(pid) for pid in options.drop_pids], **dropped, **excluded}


def copy_rows(part: LabelledPart, source: str, writer: FeatureWriter, allow_zero: bool, report: RowsReporter) -> None:
    """Write the kept rows of a part and its labels, and finish the store, without committing it."""
    # Labels that do not fit are found before any row is read.
    writer.set_labels(part.labels)
    n_source = len(part.kept)
    for start in range(0, n_source, part.block_rows):
        stop = min(start + part.block_rows, n_source)
        kept = part.kept[start:stop]
        if kept.any():
            block = part.features.read(start, stop)
            writer.append(block if kept.all() else block[kept])
        report.advance(int(kept.sum()), writer.uri)
    writer.faults.refuse_non_finite(f"{f'{part.role} ' if part.role else ''}features of {source}")
    zero = writer.faults.zero
    if zero and not allow_zero:
        raise InputError(
            f"{part.role or 'features'} holds {zero} of zeros, which have no direction; "
            "leave them out, or keep them with --allow-zero (allow_zero=True)"
        )
    writer.finish()
