"""Read features of any known format: into stores, in bounded memory, or straight into a feature set."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.registry import did_you_mean
from reid_dist.stores.featureset import FeatureSet, Progress
from reid_dist.stores.importers.names import ArrayNames, Part, Role, find_parts, option_of, unread_notes
from reid_dist.stores.importers.source import RowArray, Source, open_source
from reid_dist.stores.labels import COLUMN_PREFIX, Labels, as_column, make_labels, number_jointly
from reid_dist.stores.locations import (
    State,
    at_location,
    canonical_uri,
    holds,
    local_path,
    refuse_unless_free,
    state_of,
    told_of_cut_short,
)
from reid_dist.stores.memory import hold
from reid_dist.stores.objects import is_object_uri
from reid_dist.stores.rows import FIRST_OFFENDERS, kept_dtype, natural_dtype
from reid_dist.stores.writer import FeatureWriter
from reid_dist.stores.writer_commit import commit_together

__all__ = ["ingest", "open_features"]

_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class LabelledPart:
    """One set of a source with its labels read.

    Attributes
    ----------
    role
        Query, gallery, or None for a single set.
    features
        (n, dim), read by rows.
    kept
        (n,) bool: False where a row is dropped.
    labels
        Of the kept rows.
    notes
        What of the source was left out, one line each.
    """

    role: Role | None
    features: RowArray
    kept: NDArray[np.bool_]
    labels: Labels
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> int:
        """Number of kept rows."""
        return int(self.kept.sum())

    @property
    def block_rows(self) -> int:
        """Rows to read at a time."""
        return max(1, _BLOCK_BYTES // max(1, self.features.shape[1] * self.features.dtype.itemsize))


def ingest(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    pids_file: str | os.PathLike[str] | None = None,
    camids_file: str | os.PathLike[str] | None = None,
    chunk_rows: int | None = None,
    shard_rows: int | None = None,
    dtype: DTypeLike | None = None,
    drop_pids: Sequence[int] = (),
    allow_zero: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> list[FeatureSet]:
    """Read a source in bounded memory and write it to feature stores.

    A source with a query and a gallery becomes ``output/query.zarr`` and ``output/gallery.zarr``, text identities
    numbered over both; one with a single set becomes one store at `output`.  On any error nothing is left behind.

    Parameters
    ----------
    source
        A file or store of any known format.
    output
        Where to write.
    names
        Names of the arrays, where they are not customary ones.
    format_name
        The format; told from the suffix when None.
    pids_file, camids_file
        ``.npy``, or text with one label per line, for a source that holds a single set; in place of an array, hence
        not together with its name.
    chunk_rows, shard_rows
        As in `FeatureSet.save`.
    dtype
        ``"float32"`` or ``"float16"``; float16 sources stay float16 when None, all others become float32.
    drop_pids
        Identities whose rows are left out; a note says how many rows these were.
    allow_zero
        Keep rows of zeros; they are refused otherwise.
    overwrite
        Replace complete stores, all of them once all successors are complete.
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
    with open_source(os.fspath(source), format_name) as opened, ExitStack() as on_error:
        parts = _label_parts(opened, ArrayNames.of(names), pids_file, camids_file, drop_pids)
        targets = [at_location(root, f"{part.role}.zarr") if part.role else root for part in parts]
        if len(parts) > 1 and state_of(root) in (State.COMPLETE, State.WRITING):
            raise InputError(f"{root} is a feature store and cannot hold query.zarr and gallery.zarr; write elsewhere")
        for target in targets:
            refuse_unless_free(target, overwrite=overwrite)
        if not is_object_uri(root) and not local_path(root).exists():
            on_error.callback(_remove_if_empty, local_path(root))
        report = _Reporter(progress, sum(len(part.kept) for part in parts))
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
                source={"uri": opened.uri, "drop_pids": [int(pid) for pid in drop_pids]},
            )
            on_error.callback(writer.abort)
            _copy_rows(part, writer, allow_zero, report)
            writers.append(writer)
        # Query and gallery of two models, each of them whole, would be evaluated, and to a wrong number.
        commit_together(writers)
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
        block = part.features.read(start, stop)
        kept = part.kept[start:stop]
        writer.append(block if kept.all() else block[kept])
        report.advance(stop - start, writer.uri)
    zero = writer.faults.zero
    if zero and not allow_zero:
        raise InputError(
            f"{part.role or 'features'} holds {zero} of zeros, which have no direction; "
            "leave them out, or keep them with --allow-zero (allow_zero=True)"
        )
    writer.set_labels(part.labels)
    writer.finish()


def open_features(
    location: str | os.PathLike[str],
    role: str | None = None,
    names: ArrayNames | Mapping[str, str | None] | None = None,
    *,
    format_name: str | None = None,
    pids_file: str | os.PathLike[str] | None = None,
    camids_file: str | os.PathLike[str] | None = None,
    drop_pids: Sequence[int] = (),
    allow_zero: bool = False,
    progress: Progress | None = None,
) -> FeatureSet:
    """Open a store, or read any known format into a set in memory (memory-mapped where the format allows it).

    Parameters
    ----------
    location
        A store, a folder that holds ``query.zarr`` and ``gallery.zarr``, or a file of any known format.
    role
        ``"query"`` or ``"gallery"``: which side, if the location holds both.
    names, format_name, pids_file, camids_file, drop_pids
        As in `ingest`; not for stores.
    allow_zero
        Say that rows of zeros in a file are meant; a store has said so itself.
    progress
        Called before and after the rows of a file are read; opening a store reads none.

    Raises
    ------
    StoreNotFoundError, StoreError, InputError
        As reading does; an InputError also if the location holds both sides and `role` is None.
    """
    if role not in (None, "query", "gallery"):
        raise InputError(did_you_mean("role", str(role), ("query", "gallery")))
    uri = canonical_uri(location)
    state = state_of(uri)
    if state is State.NOTHING:
        raise StoreNotFoundError(f"no features at {uri}: nothing is there{told_of_cut_short(uri)}")
    if state in (State.COMPLETE, State.WRITING):
        return FeatureSet.open(uri)
    side = None if role is None else at_location(uri, f"{role}.zarr")
    if side is not None and (holds(uri, f"{role}.zarr") or told_of_cut_short(side)):
        return FeatureSet.open(side)
    with open_source(uri, format_name) as opened:
        parts = _label_parts(opened, ArrayNames.of(names), pids_file, camids_file, drop_pids)
        if len(parts) > 1 and role is None:
            raise InputError(f"{uri} holds query and gallery; say which of them is meant")
        part = next((part for part in parts if part.role == role), parts[0])
        report = _Reporter(progress, len(part.kept))
        report.advance(0, uri)
        features = part.features.whole()
        rows = hold(
            features if part.kept.all() else features[part.kept],
            part.labels,
            allow_zero=allow_zero,
            notes=(*opened.notes, *part.notes),
            uri=uri if part.role is None else f"{uri}#{part.role}",
        )
        report.advance(len(part.kept), uri)
    return FeatureSet(rows)


def _label_parts(
    source: Source,
    names: ArrayNames,
    pids_file: str | os.PathLike[str] | None,
    camids_file: str | os.PathLike[str] | None,
    drop_pids: Sequence[int],
) -> list[LabelledPart]:
    """Read all labels of a source; identities and cameras are numbered over both sides at once."""
    for what, file in (("pids", pids_file), ("camids", camids_file)):
        named = names.given(None).get(what)
        if named is not None and file is not None:
            raise InputError(
                f"{what} are named twice: the array {named!r} ({option_of(what)}, {what}) and the file {file} "
                f"({option_of(what)}-file, {what}_file); give one of them"
            )
    parts = find_parts(source, names)
    if len(parts) > 1 and (pids_file is not None or camids_file is not None):
        raise InputError(
            f"{source.uri} holds query and gallery; files with labels (--pids-file, --camids-file) go with a single set"
        )
    read: list[dict[str, NDArray[Any]]] = [_read_labels(source, part) for part in parts]
    if pids_file is not None:
        read[0]["pids"] = _labels_of_file(pids_file)
    if camids_file is not None:
        read[0]["camids"] = _labels_of_file(camids_file)
    for part, labels in zip(parts, read, strict=True):
        option = f"{part.role}_pids" if part.role else "pids"
        if "pids" not in labels:
            flags = option_of(option) if part.role else "--pids or --pids-file"
            raise InputError(f"found features {part.features!r} but no identities; name them with {flags} of "
                             f"`reid-dist ingest` ({option if part.role else 'pids, pids_file'}); "
                             f"{source.contents()}")  # fmt: skip
    vocabularies = dict(source.vocabularies)
    for what, names_key in (("pids", "pid_names"), ("camids", "camid_names")):
        columns = [labels[what] for labels in read if what in labels]
        if columns:
            numbers, texts = number_jointly(columns, what)
            for labels, values in zip((labels for labels in read if what in labels), numbers, strict=True):
                labels[what] = values
            if texts is not None:
                vocabularies[names_key] = texts
    # Multi-query belongs to the query, which comes first.
    notes = [unread_notes(source, parts), *[()] * (len(parts) - 1)]
    return [
        _drop(part, source.arrays[part.features], labels, vocabularies, drop_pids, told)
        for part, labels, told in zip(parts, read, notes, strict=True)
    ]


def _drop(
    part: Part,
    features: RowArray,
    labels: dict[str, NDArray[Any]],
    vocabularies: Mapping[str, NDArray[np.str_]],
    drop_pids: Sequence[int],
    notes: Sequence[str],
) -> LabelledPart:
    if len(features.shape) != 2 or 0 in features.shape:
        raise InputError(f"features {part.features!r} must be (n, dim) and not empty, not {features.shape}")
    n_rows = features.shape[0]
    for what, values in labels.items():
        if len(values) != n_rows:
            raise InputError(
                f"{what} has {len(values)} entries for {n_rows} rows of {part.features!r}; give one per row"
            )
    kept = ~np.isin(labels["pids"], np.array(list(drop_pids), dtype=np.int64))
    if not kept.any():
        raise InputError(f"no row of {part.features!r} is left after dropping {len(drop_pids)} identities")
    if drop_pids:
        notes = [*notes, _drop_note(labels["pids"], drop_pids)]
    taken = labels if kept.all() else {what: values[kept] for what, values in labels.items()}
    made = make_labels(
        int(kept.sum()),
        taken["pids"],
        taken.get("camids"),
        taken.get("item_ids"),
        {what.removeprefix(COLUMN_PREFIX): values for what, values in taken.items() if what.startswith(COLUMN_PREFIX)},
        taken.get("image_paths"),
        {key: texts for key, texts in vocabularies.items() if key.replace("_names", "s") in taken},
    )
    return LabelledPart(part.role, features, kept, made, tuple(notes))


def _drop_note(pids: NDArray[Any], drop_pids: Sequence[int]) -> str:
    """Say how many rows go, and which pids no row has: with a wrong number, all rows would stay in silence."""
    held, wanted = set(pids.tolist()), list(dict.fromkeys(int(pid) for pid in drop_pids))
    there, absent = [pid for pid in wanted if pid in held], [pid for pid in wanted if pid not in held]
    told = f"left out {np.isin(pids, there).sum()} of {len(pids)} rows" + (f": {_listed(there)}" if there else "")
    return f"{told}; no row has {_listed(absent)}" if absent else told


def _listed(pids: list[int]) -> str:
    shown = ", ".join(map(str, pids[:FIRST_OFFENDERS]))
    return f"pid {shown}" + (f" and {len(pids) - FIRST_OFFENDERS} more" if len(pids) > FIRST_OFFENDERS else "")


def _read_labels(source: Source, part: Part) -> dict[str, NDArray[Any]]:
    return {what: as_column(source.arrays[name].whole(), name) for what, name in part.labels.items()}


def _labels_of_file(location: str | os.PathLike[str]) -> NDArray[Any]:
    path = local_path(canonical_uri(location))
    if not path.is_file():
        raise StoreNotFoundError(f"no file with labels at {path}")
    if path.suffix.lower() == ".npy":
        return as_column(open_source(str(path)).arrays["features"].whole(), path.name)
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = [row for row in csv.reader(file) if row]
    wide = next((number for number, row in enumerate(rows) if len(row) != 1), None)
    if wide is not None:
        raise InputError(f"{path} must hold one label per line; line {wide + 1} holds {len(rows[wide])}")
    texts = [row[0].strip() for row in rows]
    if texts and texts[0].lower() in ("pid", "pids", "camid", "camids", "label", "labels"):
        texts = texts[1:]
    return np.array(texts, dtype=np.str_)
