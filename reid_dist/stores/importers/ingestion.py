"""Read features of any known format: one side into memory, or all of it into stores in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from numpy.typing import DTypeLike

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet, MemorySet, Progress
from reid_dist.stores.importers.label_options import LabelFields, LabelOptions
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
    finite: bool,
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
            finite=finite,
        )
        report.advance(len(part.kept), uri)
        list_left_out(parts, options)
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
    progress: Progress | None = None,
    **labels: Unpack[LabelFields],
) -> list[FeatureSet]:
    """Read a source in bounded memory and write it to feature stores.

    A source with query and gallery becomes ``output/query.zarr`` and ``output/gallery.zarr``; text identities are
    numbered over both.  A single set with ``num_query`` or with columns ``is_query`` and ``is_gallery`` is split in the
    same way.  Any other single set becomes one store at `output`.  On an error, no files remain.

    Parameters
    ----------
    source
        A file or store of any supported format, or a folder or glob of files.
    output
        Where to write.
    names
        Names of the arrays, if they differ from the common ones.
    format_name
        The format; None detects it from the content or the suffix of the file.
    pids_file, camids_file
        ``.npy``, or text with one label per line, for a source with a single set.  Do not also name an array for the
        same label.
    labels_file
        A table of labels with one row per feature row: CSV, parquet or any supported format, a pandas or polars data
        frame, or an Arrow table.  Its columns have common names (``label``, ``path``, ``camera``, ``split``,
        ``is_query``, ``is_gallery``).
    names_file
        Text with one image name per line; labels are read from the names.
    layout
        Data set whose naming rules and lists apply, from ``reid-dist list layouts``; None for ``"market1501"``.  Its
        folders and lists also split query and gallery, if they contain both.
    pattern
        Instead of a layout: a regular expression with the groups ``pid`` and ``camid``, searched in the base name of an
        image, or in its path if the expression contains a ``/``.  Any other group becomes a column of integer labels.
    words
        For each group of the layout or pattern, a mapping from text to integers, such as
        ``{"modality": {"rgb": 1, "ir": 2}}``, or ``{"pid": {"unknown": -1}}`` for junk.
    lists
        Label lists of the data set, in the format of the layout.  Images are looked up by name; without names, the
        records must be in row order.
    query_lists, gallery_lists
        Lists of the query images and of the gallery images.  If only one side has a list, the other side is all other
        images.
    query_folders, gallery_folders
        Folders of the query images and of the gallery images, in the same way; ``"test/C"`` is a folder ``C`` in a
        folder ``test``.
    num_query
        Number of queries at the beginning of a single set; None reads the entry ``num_query``, if there is one.
    chunk_rows
        As in `FeatureSet.save`.
    dtype
        ``"float32"`` or ``"float16"``; None keeps float16 and converts all others to float32.
    drop_pids
        Identities to leave out; a note gives the number of rows.
    exclude
        Lists of rows to leave out, by number, item id or image path; see `reid_dist.stores.importers.exclusion`.  Notes
        give the number of rows, and entries that match no row.
    drop_duplicates
        ``"item_ids"``, ``"image_paths"`` or ``"features"``: keep the first of all rows of a set that share an item id
        or an image path, or whose features are bit-identical, and leave out the others; a note gives their number.
        Repeats with a different identity or camera are refused.
    left_out
        CSV file to write, with all rows that ``exclude`` and ``drop_duplicates`` leave out and all entries that match
        no row.
    allow_zero
        Keep rows of zeros; they are refused otherwise.
    overwrite
        Replace complete stores, once all new stores are complete; not on object storage.
    progress
        Called after every block of rows.

    Returns
    -------
    list of FeatureSet
        Query and gallery, or the one store.

    Raises
    ------
    StoreNotFoundError, StoreExistsError, StoreError, InputError
        If the source cannot be read or the stores cannot be written; InputError also for zero rows without
        `allow_zero`.
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
        list_left_out(parts, options)
        # Query and gallery of two models, each of them whole, would be evaluated, and to a wrong number.
        commit_writers(writers)
        on_error.pop_all()
    return [FeatureSet.open(target) for target in targets]


def list_left_out(parts: Sequence[LabelledPart], options: LabelOptions) -> None:
    """Write the table of the rows that are left out, where one is asked for: last of all, for what fails has none."""
    options.exclusion.write([(part.role or "", part.left_out) for part in parts if part.left_out is not None])


def origin_of(uri: str, options: LabelOptions) -> dict[str, Any]:
    """Where the rows of a store come from, and which of them were left out."""
    dropped = {} if options.drop_duplicates is None else {"drop_duplicates": options.drop_duplicates}
    lists = [os.fspath(each) for each in options.exclusion.lists]
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
