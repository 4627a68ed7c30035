"""Features of a source with their labels: from its arrays, from files beside it, or from names of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.errors import InputError
from reid_dist.stores.importers.label_options import LabelOptions, Location
from reid_dist.stores.importers.name_layouts import Coded, Records, read_names_file
from reid_dist.stores.importers.named_labels import first_file_name, named_labels, read_records
from reid_dist.stores.importers.names import ArrayNames, Part, find_parts, find_table, option_of, unread_notes
from reid_dist.stores.importers.sides import (
    SIDE_LABELS,
    Mask,
    chosen_sides,
    queries_first,
    rows_left_out,
    sides_of,
    sides_of_sets,
)
from reid_dist.stores.importers.source import RowArray, Source, open_source
from reid_dist.stores.importers.text_files import file_of_labels, read_column, read_lines
from reid_dist.stores.kept_rows import FIRST_OFFENDERS, check_shape
from reid_dist.stores.labels import (
    COLUMN_PREFIX,
    Labels,
    Role,
    label_arguments,
    make_labels,
    number_in_digits,
    number_jointly,
)
from reid_dist.stores.repeated_items import NAMES, Name, repeated_rows, spoken

_BLOCK_BYTES = 8 << 20
_TRAIN = "train"
_MOST_WORDS = 10
_LONGEST_WORD = 80


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
    # Labels in names of images, not yet numbers, and the sets of the rows by the layout of the names.
    coded: dict[str, Coded] = field(default_factory=dict)
    sets: Coded | None = None

    @property
    def n_rows(self) -> int:
        return self.features.shape[0]


def label_parts(source: Source, options: LabelOptions) -> list[LabelledPart]:
    """Read one set of a source, or its query and gallery; identities and cameras are numbered over both at once."""
    options.check()
    table, table_notes = _read_table(options)
    records = read_records(options)
    parts = find_parts(source, _beside(options.names, table), _elsewhere(options, table, records))
    if len(parts) > 1 and options.of_single_sets:
        raise InputError(
            f"{source.uri} holds query and gallery; files with labels (--pids-file, --camids-file, --names, --labels, "
            "--list) and what chooses sides (--num-query, --query-list, --query-folder, …) go with a single set, and "
            f"{' and '.join(options.of_single_sets)} was given"
        )
    reads = [_read_part(source, part, options, table) for part in parts]
    reads[0].notes[:0] = [*unread_notes(source, parts), *table_notes]
    for read in reads:
        _take_from_names(read, records, options)
        _check_pids(read, source, options)
    vocabularies = _number(reads, source)
    made: list[LabelledPart] = []
    for read in reads:
        sides = None if read.part.role else _sides(source, read, options)
        flags = {name: read.labels.pop(name) for name in SIDE_LABELS if name in read.labels}
        if sides is None:
            made.append(_drop(read, read.part.role, _not_train(read, flags, options), vocabularies, options))
        else:
            made += [_drop(read, role, rows, vocabularies, options) for role, rows in sides.items()]
    return made


def _elsewhere(options: LabelOptions, table: Mapping[str, NDArray[Any]], records: Records) -> set[str]:
    """Labels that do not come from arrays of the source."""
    named = options.name_layout.labels if options.chooses_layout else ()
    return {*table, *options.files, *named, *(records.keys() - {"image_paths"})}


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
        arrays = {what: label_column(table.arrays[name], what, name) for what, name in found.items()}
    return arrays, [f"labels come from {path.name}: {', '.join(f'{what} ({name})' for what, name in found.items())}"]


def label_column(array: RowArray, what: str, name: str | None = None) -> NDArray[Any]:
    """Read a label, (n,) numbers, text or flags, that errors call `name`."""
    is_flag = what in SIDE_LABELS and array.dtype.kind == "b"
    return array.whole().reshape(-1) if is_flag else array.column(name or what)


def _read_part(source: Source, part: Part, options: LabelOptions, table: Mapping[str, NDArray[Any]]) -> _Read:
    features = source.arrays[part.features]
    check_shape(features.shape, f"features {part.features!r}")
    labels = {what: label_column(source.arrays[name], what, name) for what, name in part.labels.items()}
    read = _Read(part, features, labels, [])
    if table:
        labels |= _rows_of_table(read, table)
    if options.names_file is not None:
        own = {*options.files, *options.names.given(None)} - {"image_paths"}
        listed = read_names_file(options.names_file, options.name_layout)
        labels |= {what: values for what, values in listed.items() if what not in own}
    for what, file in options.files.items():
        if what != "image_paths":
            labels[what] = _labels_of_file(file)
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


def _labels_of_file(location: Location) -> NDArray[Any]:
    path = file_of_labels(location)
    if path.suffix.lower() == ".npy":
        return read_column(path)
    return read_lines(path)


def _take_from_names(read: _Read, records: Records, options: LabelOptions) -> None:
    """Read labels by a layout where that was chosen, or where there are no identities otherwise."""
    names = read.labels.get("image_paths")
    if not options.chooses_layout and (names is None or "pids" in read.labels):
        return
    if names is not None and names.dtype.kind != "U":
        raise InputError(f"names of images must be text, not {names.dtype}")
    if names is not None and len(names) != read.n_rows:
        raise InputError(
            f"there are {len(names)} names of images for {read.n_rows} rows of {read.part.features!r}; give one per row"
        )
    found = named_labels(names, read.n_rows, read.labels, records, options)
    read.labels |= found.listed
    read.coded, read.sets = found.coded, found.sets
    read.notes += found.notes


def _check_pids(read: _Read, source: Source, options: LabelOptions) -> None:
    """Refuse missing identities, and names of files in their place."""
    role = read.part.role
    option = f"{role}_pids" if role else "pids"
    if "pids" not in read.labels and "pids" not in read.coded:
        if options.layout is not None:
            held, needed = ("lists", "other lists") if options.lists else ("names", "the lists")
            raise InputError(
                f"{held} of the layout {options.layout} hold no identities; give {needed} of the data set with --list "
                "(lists), see `reid-dist list layouts`"
            )
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
    vocabularies: dict[str, NDArray[np.str_]] = {}
    for what, names_key in (("pids", "pid_names"), ("camids", "camid_names")):
        having = [read for read in reads if what in read.labels or what in read.coded]
        if not having:
            continue
        # Of names of images, the distinct texts are numbered, and every row has the number of its text.
        coded = [read.coded.pop(what, None) for read in having]
        columns = [read.labels[what] if code is None else code.texts for read, code in zip(having, coded, strict=True)]
        numbers, texts = number_jointly(columns, what)
        for read, values, code in zip(having, numbers, coded, strict=True):
            read.labels[what] = values if code is None else values[code.codes]
        own = all(code is None and what in read.part.labels for read, code in zip(having, coded, strict=True))
        if texts is not None:
            vocabularies[names_key] = texts
        elif own and names_key in source.vocabularies:
            vocabularies[names_key] = source.vocabularies[names_key]
    for read in reads:
        for what, code in read.coded.items():
            if what == "item_ids":
                read.labels[what] = code.texts[code.codes]
                continue
            read.labels[what] = _numbers(code.texts, what.removeprefix(COLUMN_PREFIX))[code.codes]
        read.coded.clear()
    return vocabularies


def _numbers(texts: NDArray[np.str_], group: str) -> NDArray[np.int64]:
    """The numbers of texts in digits."""
    numbers = [number_in_digits(text) for text in texts.tolist()]
    words = [text[:_LONGEST_WORD] for text, number in zip(texts.tolist(), numbers, strict=True) if number is None]
    if words:
        shown = first_few(list(map(repr, words)), _MOST_WORDS)
        raise InputError(
            f"{group} must be whole numbers, and names of images hold {shown}; "
            f"give the number that each denotes, such as --word {group}:{words[0]}=1 (words)"
        )
    return np.array(numbers, dtype=np.int64)


def _sides(source: Source, read: _Read, options: LabelOptions) -> dict[Role, Mask] | None:
    """The rows of query and gallery in a single set; None if it is one set."""
    for name in SIDE_LABELS:
        if name in read.labels:
            _check_length(read, name)
    if options.num_query is not None:
        return queries_first(source, options.num_query, read.n_rows)
    sides = _named_sides(source, read, options)
    if sides is None:
        return queries_first(source, None, read.n_rows)
    both = sides["query"] & sides["gallery"]
    if both.any() and "item_ids" not in read.labels:
        read.labels["item_ids"] = np.arange(read.n_rows)
        read.notes.append(f"{both.sum()} rows are query and gallery; item ids are the row numbers of the source")
    left = int((~sides["query"] & ~sides["gallery"]).sum())
    if left:
        read.notes.append(f"left out {left} of {read.n_rows} rows: neither query nor gallery")
    return sides


def _named_sides(source: Source, read: _Read, options: LabelOptions) -> dict[Role, Mask] | None:
    """The rows of query and gallery by folders and lists of the options, by columns, or by the layout of names."""
    names = read.labels.get("image_paths")
    if options.of_sides:
        if names is None or names.dtype.kind != "U":
            raise InputError(f"{options.of_sides[0]} chooses rows by names of images, and there are none; give --names")
        return chosen_sides(names, read.sets, options)
    sides = sides_of(read.labels)
    if sides is not None or read.sets is None:
        return sides
    layout = options.name_layout.name
    sides = sides_of_sets(read.sets, names, layout, is_chosen=options.layout is not None)
    first = queries_first(source, None, read.n_rows)
    if sides is not None and first is not None and any((sides[role] != first[role]).any() for role in sides):
        raise InputError(
            f"the entry num_query of {source.uri} makes the first {int(first['query'].sum())} rows queries, and the "
            f"layout {layout} other ones; give --num-query, or --query-folder and --gallery-folder"
        )
    return sides


def _not_train(read: _Read, flags: Mapping[str, NDArray[Any]], options: LabelOptions) -> Mask:
    """Rows that are not marked as training rows, nor of a set that the chosen layout does not evaluate."""
    if read.sets is not None and options.layout is not None:
        left = rows_left_out(read.sets)
        if left.any() and not left.all():
            sets = sorted({str(name) for name in read.sets.texts[np.unique(read.sets.codes[left])]})
            read.notes.append(f"left out {int(left.sum())} of {read.n_rows} rows: {', '.join(sets)}")
            return ~left
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
    options: LabelOptions,
) -> LabelledPart:
    for what in read.labels:
        _check_length(read, what)
    pids, drop_pids = read.labels["pids"], options.drop_pids
    kept = rows & ~np.isin(pids, np.array(list(drop_pids), dtype=np.int64))
    if not kept.any():
        raise InputError(f"no row of {read.part.features!r} is left after dropping {len(drop_pids)} identities")
    notes = [*read.notes, _drop_note(pids[rows], drop_pids)] if drop_pids else list(read.notes)
    if options.drop_duplicates is not None:
        again = _repeats(read, kept, options.drop_duplicates)
        notes.append(f"left out {len(again)} of {counted(int(kept.sum()), 'row', separator='')}, whose "
                     f"{spoken(options.drop_duplicates)} an earlier row has")  # fmt: skip
        kept[again] = False
    taken = read.labels if kept.all() else {what: _kept(values, kept) for what, values in read.labels.items()}
    made = make_labels(int(kept.sum()), **label_arguments(taken), names=vocabularies)
    return LabelledPart(role, read.features, kept, made, tuple(notes))


def _repeats(read: _Read, kept: Mask, by: Name) -> NDArray[np.int64]:
    """Rows of the part, among those that are kept, whose item id or image path an earlier one has."""
    if by not in read.labels:
        having = [name for name in NAMES if name in read.labels]
        raise InputError(
            f"{read.part.features!r} has no {by}, by which duplicates would be dropped (--drop-duplicates, "
            f"drop_duplicates); {f'drop them by {having[0]}' if having else 'name them, or leave the option out'}"
        )
    rows = np.flatnonzero(kept)
    return rows[repeated_rows(read.labels[by][rows])]


def _kept(values: NDArray[Any], kept: Mask) -> NDArray[Any]:
    """The kept labels, read-only, so that they are not copied again."""
    taken = values[kept]
    taken.flags.writeable = False
    return taken


def _drop_note(pids: NDArray[Any], drop_pids: Sequence[int]) -> str:
    """Note on the dropped rows, and on pids that no row has and that would go unnoticed."""
    held, wanted = set(pids.tolist()), list(dict.fromkeys(int(pid) for pid in drop_pids))
    there, absent = [pid for pid in wanted if pid in held], [pid for pid in wanted if pid not in held]
    note = f"left out {np.isin(pids, there).sum()} of {len(pids)} rows" + (f": {_listed(there)}" if there else "")
    return f"{note}; no row has {_listed(absent)}" if absent else note


def _listed(pids: list[int]) -> str:
    return f"pid {first_few(list(map(str, pids)), FIRST_OFFENDERS)}"
