"""Features of a source with their labels: from its arrays, from files beside it, or from names of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import first_few
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_options import LabelOptions, Location
from reid_dist.stores.importers.name_layouts import first_file_name, labels_of_names
from reid_dist.stores.importers.names import ArrayNames, Part, Role, find_parts, find_table, option_of, unread_notes
from reid_dist.stores.importers.source import RowArray, Source, open_source
from reid_dist.stores.importers.text_files import file_of_labels, read_lines, read_names
from reid_dist.stores.labels import Labels, as_column, label_arguments, make_labels, number_jointly
from reid_dist.stores.rows import FIRST_OFFENDERS

_BLOCK_BYTES = 8 << 20
_TRAIN = "train"
_NUM_QUERY = "num_query"
SIDE_LABELS = ("is_query", "is_gallery", "split")
"""Columns that assign rows to sides; not stored."""
_TRUE = ("true", "1", "1.0", "t", "yes")
_FALSE = ("false", "0", "0.0", "f", "no", "", "nan", "none", "null")

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class LabelledPart:
    """One set of a source: features (n, dim), which rows are kept (n,), the labels of these, and notes."""

    role: Role | None
    features: RowArray
    kept: Mask
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

    def whole(self) -> NDArray[Any]:
        """Return the kept rows, memory-mapped where the format allows it and they are consecutive."""
        features = self.features.whole()
        rows = np.flatnonzero(self.kept)
        if rows[-1] - rows[0] + 1 == rows.size:
            return features[rows[0] : rows[-1] + 1]
        return features[self.kept]


@dataclass
class _Read:
    """Labels of one part, in preparation."""

    part: Part
    features: RowArray
    labels: dict[str, NDArray[Any]]
    notes: list[str]

    @property
    def n_rows(self) -> int:
        return self.features.shape[0]


def label_parts(source: Source, options: LabelOptions) -> list[LabelledPart]:
    """Read one set of a source, or its query and gallery; identities and cameras are numbered over both at once."""
    options.check()
    table, table_notes = _read_table(options)
    parts = find_parts(source, _beside(options.names, table), _elsewhere(options, table))
    if len(parts) > 1 and options.of_single_sets:
        raise InputError(
            f"{source.uri} holds query and gallery; files with labels (--pids-file, --camids-file, --names, --labels) "
            f"and --num-query go with a single set, and {' and '.join(options.of_single_sets)} was given"
        )
    reads = [_read_part(source, part, options, table) for part in parts]
    reads[0].notes[:0] = [*unread_notes(source, parts), *table_notes]
    for read in reads:
        _take_from_names(read, options)
        _check_pids(read, source)
    vocabularies = _number(reads, source)
    made: list[LabelledPart] = []
    for read in reads:
        sides = None if read.part.role else _sides(source, read, options)
        flags = {name: read.labels.pop(name) for name in SIDE_LABELS if name in read.labels}
        if sides is None:
            made.append(_drop(read, read.part.role, _not_train(read, flags), vocabularies, options.drop_pids))
        else:
            made += [_drop(read, role, rows, vocabularies, options.drop_pids) for role, rows in sides.items()]
    return made


def _elsewhere(options: LabelOptions, table: Mapping[str, NDArray[Any]]) -> set[str]:
    """Labels that do not come from arrays of the source."""
    return {*table, *options.files, *(options.layout.labels if options.reads_names else ())}


def _beside(names: ArrayNames, table: Mapping[str, NDArray[Any]]) -> ArrayNames:
    """The names that belong to the source, and not to the table beside it."""
    return replace(names, **{what: None for what in names.given(None) if what in table})


def _read_table(options: LabelOptions) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Read the labels of a table."""
    if options.labels_file is None:
        return {}, []
    path = file_of_labels(options.labels_file)
    with open_source(str(path)) as table:
        found = find_table(table, options.names)
        arrays = {what: _column(table.arrays[name], what, name) for what, name in found.items()}
    return arrays, [f"labels come from {path.name}: {', '.join(f'{what} ({name})' for what, name in found.items())}"]


def _column(array: RowArray, what: str, name: str) -> NDArray[Any]:
    values = array.whole()
    return values.reshape(-1) if what in SIDE_LABELS and values.dtype.kind == "b" else as_column(values, name)


def _read_part(source: Source, part: Part, options: LabelOptions, table: Mapping[str, NDArray[Any]]) -> _Read:
    features = source.arrays[part.features]
    if len(features.shape) != 2 or 0 in features.shape:
        raise InputError(f"features {part.features!r} must be (n, dim) and not empty, not {features.shape}")
    labels = {what: _column(source.arrays[name], what, name) for what, name in part.labels.items()}
    read = _Read(part, features, labels, [])
    if table:
        labels |= _rows_of_table(read, table)
    for what, file in options.files.items():
        labels[what] = _labels_of_file(file, names=what == "image_paths")
    return read


def _rows_of_table(read: _Read, table: Mapping[str, NDArray[Any]]) -> Mapping[str, NDArray[Any]]:
    """Rows of a table that belong to the features: all, or those that are not for training."""
    n_table = max(len(values) for values in table.values())
    split = table.get("split")
    if n_table == read.n_rows or split is None or split.dtype.kind != "U":
        return table
    evaluated = np.char.lower(split) != _TRAIN
    if evaluated.sum() != read.n_rows:
        return table
    read.notes.append(f"left out {n_table - read.n_rows} of {n_table} rows of labels: split {_TRAIN}")
    return {what: values[evaluated] for what, values in table.items()}


def _labels_of_file(location: Location, *, names: bool) -> NDArray[Any]:
    path = file_of_labels(location)
    if path.suffix.lower() == ".npy":
        return as_column(open_source(str(path)).arrays["features"].whole(), path.name)
    return read_names(path) if names else read_lines(path)


def _take_from_names(read: _Read, options: LabelOptions) -> None:
    """Read labels from names of images where that was chosen, or where there are no identities otherwise."""
    names = read.labels.get("image_paths")
    if names is None:
        if options.reads_names:
            raise InputError(
                f"--pattern reads names of images, and {read.part.features!r} has none; give --names FILE, or name the "
                "array with --image-paths"
            )
        return
    if not options.reads_names and "pids" in read.labels:
        return
    if names.dtype.kind != "U":
        raise InputError(f"names of images must be text, not {names.dtype}")
    if len(names) != read.n_rows:
        raise InputError(
            f"there are {len(names)} names of images for {read.n_rows} rows of {read.part.features!r}; give one per row"
        )
    layout = options.layout
    found = {what: values for what, values in labels_of_names(names, layout).items() if what not in read.labels}
    read.labels |= found
    example = ", ".join(f"{what} {values[0]}" for what, values in found.items())
    read.notes.append(f"labels come from names of images, layout {layout.name}: {str(names[0])!r} is {example}")


def _check_pids(read: _Read, source: Source) -> None:
    """Refuse missing identities, and names of files in their place."""
    role = read.part.role
    option = f"{role}_pids" if role else "pids"
    if "pids" not in read.labels:
        flags = option_of(option) if role else "--pids or --pids-file"
        more = "" if role else ", or give names of images (--names) or a table of labels (--labels)"
        raise InputError(
            f"found features {read.part.features!r} but no identities; name them with {flags} of `reid-dist ingest` "
            f"({option if role else 'pids, pids_file'}){more}; {source.contents()}"
        )
    for what in ("pids", "camids"):
        row = first_file_name(read.labels[what]) if what in read.labels else None
        if row is not None:
            raise InputError(
                f"{what} are names of files and no labels: row {row} holds {str(read.labels[what][row])[:80]!r}; give "
                "them with --names FILE (names_file), or name the array with --image-paths, and labels are read from "
                "them"
            )


def _number(reads: list[_Read], source: Source) -> dict[str, NDArray[np.str_]]:
    """Number texts of identities and cameras over all parts; return the texts of the numbers."""
    vocabularies = dict(source.vocabularies)
    for what, names_key in (("pids", "pid_names"), ("camids", "camid_names")):
        having = [read.labels for read in reads if what in read.labels]
        if having:
            numbers, texts = number_jointly([labels[what] for labels in having], what)
            for labels, values in zip(having, numbers, strict=True):
                labels[what] = values
            if texts is not None:
                vocabularies[names_key] = texts
    return vocabularies


def _sides(source: Source, read: _Read, options: LabelOptions) -> dict[Role, Mask] | None:
    """The rows of query and gallery in a single set; None if it is one set."""
    for name in SIDE_LABELS:
        if name in read.labels:
            _check_length(read, name)
    if options.num_query is not None:
        return _queries_first(source, options.num_query, read.n_rows)
    sides = sides_of(read.labels)
    if sides is None:
        return _queries_first(source, None, read.n_rows)
    both = sides["query"] & sides["gallery"]
    if both.any() and "item_ids" not in read.labels:
        read.labels["item_ids"] = np.arange(read.n_rows)
        read.notes.append(f"{both.sum()} rows are query and gallery; item ids are the row numbers of the source")
    left = int((~sides["query"] & ~sides["gallery"]).sum())
    if left:
        read.notes.append(f"left out {left} of {read.n_rows} rows: neither query nor gallery")
    return sides


def _not_train(read: _Read, flags: Mapping[str, NDArray[Any]]) -> Mask:
    """Rows that are not marked as training rows."""
    split = flags.get("split")
    if split is None or split.dtype.kind != "U":
        return np.ones(read.n_rows, dtype=np.bool_)
    kept = np.asarray(np.char.lower(split) != _TRAIN, dtype=np.bool_)
    if kept.all() or not kept.any():
        return np.ones(read.n_rows, dtype=np.bool_)
    read.notes.append(f"left out {int((~kept).sum())} of {read.n_rows} rows: split {_TRAIN}")
    return kept


def _check_length(read: _Read, what: str) -> None:
    if len(read.labels[what]) != read.n_rows:
        raise InputError(
            f"{what} has {len(read.labels[what])} entries for {read.n_rows} rows of {read.part.features!r}; "
            "give one per row"
        )


def _drop(
    read: _Read,
    role: Role | None,
    rows: Mask,
    vocabularies: Mapping[str, NDArray[np.str_]],
    drop_pids: Sequence[int],
) -> LabelledPart:
    for what in read.labels:
        _check_length(read, what)
    pids = read.labels["pids"]
    kept = rows & ~np.isin(pids, np.array(list(drop_pids), dtype=np.int64))
    if not kept.any():
        raise InputError(f"no row of {read.part.features!r} is left after dropping {len(drop_pids)} identities")
    notes = [*read.notes, _drop_note(pids[rows], drop_pids)] if drop_pids else read.notes
    taken = read.labels if kept.all() else {what: values[kept] for what, values in read.labels.items()}
    made = make_labels(int(kept.sum()), **label_arguments(taken), names=vocabularies)
    return LabelledPart(role, read.features, kept, made, tuple(notes))


def _drop_note(pids: NDArray[Any], drop_pids: Sequence[int]) -> str:
    """Note on the dropped rows, and on pids that no row has and that would go unnoticed."""
    held, wanted = set(pids.tolist()), list(dict.fromkeys(int(pid) for pid in drop_pids))
    there, absent = [pid for pid in wanted if pid in held], [pid for pid in wanted if pid not in held]
    note = f"left out {np.isin(pids, there).sum()} of {len(pids)} rows" + (f": {_listed(there)}" if there else "")
    return f"{note}; no row has {_listed(absent)}" if absent else note


def _listed(pids: list[int]) -> str:
    return f"pid {first_few(list(map(str, pids)), FIRST_OFFENDERS)}"


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


def _queries_first(source: Source, given: int | None, n_rows: int) -> dict[Role, Mask] | None:
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
