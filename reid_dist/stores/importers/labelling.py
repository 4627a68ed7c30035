"""Features of a source with their labels: from its arrays, from files beside it, and from names of images."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, first_few
from reid_dist.errors import InputError
from reid_dist.stores.importers.exclusion import Items, LeftOut, left_out
from reid_dist.stores.importers.image_names import (
    labels_of_names,
    read_lists,
    read_name_list,
    read_names_file,
    sides_by_folder,
)
from reid_dist.stores.importers.label_options import LabelOptions, Location
from reid_dist.stores.importers.label_tables import (
    EVALUATED,
    ROLES,
    Coded,
    Column,
    LabelTable,
    Mask,
    rows_in_list,
)
from reid_dist.stores.importers.name_layouts import MARKET1501, NameLayout
from reid_dist.stores.importers.names import SIDE_LABELS, Part, find_parts, option_of, unread_notes
from reid_dist.stores.importers.shards import open_shards
from reid_dist.stores.importers.source import RowArray, Source, open_source
from reid_dist.stores.importers.text_files import files_of_labels, read_column, read_lines
from reid_dist.stores.kept_rows import FIRST_OFFENDERS, check_shape, natural_dtype
from reid_dist.stores.labels import (
    COLUMN_PREFIX,
    NUMBERED,
    HeldLabels,
    Labels,
    Role,
    label_arguments,
    make_labels,
    number_in_digits,
    number_jointly,
)

_BLOCK_BYTES = 8 << 20
_NUM_QUERY = "num_query"
_IMAGE = re.compile(r".*[.](?:jpe?g|png|bmp|webp|tiff?|ppm|gif)", re.IGNORECASE | re.DOTALL)
_MOST_SHOWN = 10
_LONGEST_WORD = 80


def rows_at_once(features: RowArray) -> int:
    """Rows of features to read at a time."""
    return max(1, _BLOCK_BYTES // max(1, features.shape[1] * features.dtype.itemsize))


@dataclass(frozen=True)
class LabelledPart:
    """One set of a source: features (n, dim), which rows are kept (n,), the labels of these, and notes.

    Of the other rows, `left_out` are those that lists exclude, and repeats.
    """

    role: Role | None
    features: RowArray
    kept: Mask
    labels: Labels
    notes: tuple[str, ...] = ()
    left_out: LeftOut | None = None

    @property
    def n_rows(self) -> int:
        """Number of kept rows."""
        return int(self.kept.sum())

    @property
    def block_rows(self) -> int:
        """Rows to read at a time."""
        return rows_at_once(self.features)

    def whole(self) -> NDArray[Any]:
        """Return the kept rows, memory-mapped where the format allows it and they are consecutive."""
        features = self.features.whole()
        rows = np.flatnonzero(self.kept)
        if rows[-1] - rows[0] + 1 == rows.size:
            return features[rows[0] : rows[-1] + 1]
        return features[self.kept]


@dataclass(frozen=True)
class _Set:
    """One set of a source, whose labels are being gathered: its arrays, features (n, dim), and the labels so far."""

    part: Part
    features: RowArray
    table: LabelTable

    @property
    def n_rows(self) -> int:
        return self.features.shape[0]


def label_parts(source: Source, options: LabelOptions) -> list[LabelledPart]:
    """Read one set of a source, or its query and gallery; identities and cameras are numbered over both at once."""
    options.check()
    beside = _table_beside(options)
    records = read_lists(options.lists, options.name_layout) if options.lists else LabelTable()
    # Names that the table beside the source has are not those of arrays of the source.
    names = replace(options.names, **{what: None for what in options.names.given(None) if what in beside.columns})
    of_names = options.name_layout.labels if options.chooses_layout else ()
    elsewhere = {*beside.columns, *options.files, *of_names, *(records.columns.keys() - {"image_paths"})}
    elsewhere |= set() if records.side is None else {"split"}
    parts = find_parts(source, names, elsewhere)
    if len(parts) > 1 and options.of_single_sets:
        raise InputError(
            f"{source.uri} holds query and gallery, and these are for a single set: "
            f"{', '.join(options.of_single_sets)}; leave them out",
            details=(
                "for a single set: files with labels (--pids-file, --camids-file, --names, --labels, --list), and what "
                "chooses sides (--num-query, --query-list, --query-folder, …)",
            ),
        )
    sets = [_own_labels(source, part, options, beside) for part in parts]
    sets = [_with_layout(each, records, options) for each in sets]
    for each in sets:
        _check_pids(each, source, options)
    sets, vocabularies = _numbered(sets, source)
    exclusion = options.exclusion
    items = [_items(each, vocabularies) for each in sets] if exclusion else []
    listed = exclusion.listed([(each.part.role, held) for each, held in zip(sets, items, strict=False)])
    notes = (*unread_notes(source, parts), *listed.note)
    made: list[LabelledPart] = []
    for place, each in enumerate(sets):
        sided = None if each.part.role else _with_sides(source, each, options)
        if sided is None:
            table, kept = _without_training(each, options)
            chosen: list[tuple[Role | None, Mask]] = [(each.part.role, kept)]
        else:
            table, chosen = sided, [(role, sided.of_role(role)) for role in ROLES]
        table = replace(table.without(SIDE_LABELS), notes=(*notes, *table.notes))
        notes = ()
        for role, rows in chosen:
            kept = _without_dropped(table, rows, each, options)
            found: LeftOut | None = None
            own_notes = [_drop_note(table.plain("pids")[rows], options.drop_pids)] if options.drop_pids else []
            if exclusion:
                held = replace(items[place], allowed=kept)
                found = left_out(exclusion.for_side(held, items), held, listed.masks[place], role or held.uri)
                found = replace(found, unmatched=() if made else listed.unmatched)
                kept, own_notes = kept & ~found.mask, [*own_notes, *found.notes]
            taken = table if kept.all() else table.select(kept)
            labels = make_labels(int(kept.sum()), **label_arguments(taken.columns), names=vocabularies)
            made.append(LabelledPart(role, each.features, kept, labels, (*table.notes, *own_notes), found))
    return made


# ---- labels from arrays and files ------------------------------------------------------------------------------------


def _table_beside(options: LabelOptions) -> LabelTable:
    """Read the table of labels beside the features; no columns where there is none."""
    if options.labels_file is None:
        return LabelTable()
    if not isinstance(options.labels_file, str | os.PathLike):
        return LabelTable.from_frame(options.labels_file, options.names)
    place, (first, *others) = os.fspath(options.labels_file), files_of_labels(options.labels_file)
    with open_shards(place, [first, *others]) if others else open_source(str(first)) as source:
        return LabelTable.of_table(source, options.names)


def _own_labels(source: Source, part: Part, options: LabelOptions, beside: LabelTable) -> _Set:
    """Read the labels of a set that are given as such: in arrays of the source, in the table, and in other files."""
    features = source.arrays[part.features]
    check_shape(features.shape, f"features {part.features!r}")
    table, rows = LabelTable.of(source, part.labels), _rows_beside(beside, features.shape[0])
    table = table.with_columns(rows.columns, *rows.notes)
    if options.names_file is not None:
        own = {*options.files, *options.names.given(None), "split"} - {"image_paths"}
        table = table.with_columns(read_names_file(options.names_file, options.name_layout).without([*own]).columns)
    of_files = {what: _labels_of_file(file) for what, file in options.files.items() if what != "image_paths"}
    return _Set(part, features, table.with_columns(of_files))


def _rows_beside(table: LabelTable, n_rows: int) -> LabelTable:
    """Rows of a table that belong to so many of features: all, or those that are not for training."""
    evaluated = ~table.for_training
    if table.n_rows == n_rows or evaluated.sum() != n_rows:
        return table
    left = f"left out {table.n_rows - n_rows} of {table.n_rows} rows of labels: split train"
    return table.select(evaluated).with_columns({}, left)


def _labels_of_file(location: Location) -> NDArray[Any]:
    files = files_of_labels(location)
    return np.concatenate([read_column(path) if path.suffix.lower() == ".npy" else read_lines(path) for path in files])


def _check_pids(each: _Set, source: Source, options: LabelOptions) -> None:
    """Refuse missing identities, and names of files in their place."""
    role = each.part.role
    option = f"{role}_pids" if role else "pids"
    if "pids" not in each.table.columns:
        if options.layout is not None:
            held, needed = ("lists", "other lists") if options.lists else ("names", "the lists")
            raise InputError(
                f"{held} of the layout {options.layout} hold no identities; give {needed} of the data set with --list "
                "(lists), see `reid-dist list layouts`"
            )
        flags = option_of(option) if role else "--pids or --pids-file"
        more = "" if role else ", or give names of images (--names) or a table of labels (--labels)"
        raise InputError(
            f"found features {each.part.features!r} but no identities; name them with {flags} of `reid-dist ingest`"
            f"{more}",
            details=(f"Python: {option if role else 'pids, pids_file'}", source.contents()),
        )
    for what in ("pids", "camids"):
        values = each.table.columns.get(what)
        row = _first_file_name(values) if isinstance(values, np.ndarray) and values.dtype.kind == "U" else None
        if values is not None and row is not None:
            raise InputError(
                f"{what} are names of files and no labels: row {row} holds {str(each.table.plain(what)[row])[:80]!r}; "
                "give them with --names FILE (names_file), or name the array with --image-paths, and labels are read "
                "from them"
            )


def _first_file_name(values: NDArray[np.str_]) -> int | None:
    """Return the first row whose label is the name of an image file, which no identity is; None if there is none."""
    texts = values.tolist()
    if texts and all(MARKET1501.patterns[0].search(text) for text in texts):
        return 0
    return next((row for row, text in enumerate(texts) if _IMAGE.fullmatch(text)), None)


# ---- labels by a layout ----------------------------------------------------------------------------------------------


def _with_layout(each: _Set, records: LabelTable, options: LabelOptions) -> _Set:
    """Read labels by a layout where that was chosen, or where there are no identities otherwise.

    Labels that are not there already come from the records of lists, then from the names of images.
    """
    table, layout, names = each.table, options.name_layout, each.table.names
    if not options.chooses_layout and (names is None or "pids" in table.columns):
        return each
    if names is not None and names.dtype.kind != "U":
        raise InputError(f"names of images must be text, not {names.dtype}")
    if names is not None and len(names) != each.n_rows:
        raise InputError(
            f"there are {len(names)} names of images for {each.n_rows} rows of {each.part.features!r}; give one per row"
        )
    if records.columns:
        table = _with_records(table, each.n_rows, records, options)
        names = table.names
    missing = [what for what in layout.labels if what not in table.columns]
    if missing and names is None and not records.columns:
        raise InputError(
            f"{layout.name} reads names of images, and there are none; give --names FILE, or name the array with "
            "--image-paths"
        )
    if missing and names is not None:
        found = labels_of_names(names, layout)
        taken = {what: found[what] for what in missing}
        example = ", ".join(f"{what} {coded.texts[coded.codes[0]]}" for what, coded in taken.items())
        note = f"labels come from names of images, layout {layout.name}: {str(names[0])!r} is {example}"
        table = table.with_columns(taken, note, *_camera_notes(taken.get("camids"), layout))
        if table.side is None and "camid" in layout.sets and "camids" in found:
            table = replace(table, side=found["camids"].mapped(layout.sets["camid"], EVALUATED))
    if table.side is None and layout.folders and names is not None:
        table = replace(table, side=sides_by_folder(names, layout.folders))
    return replace(each, table=table)


def _with_records(table: LabelTable, n_rows: int, records: LabelTable, options: LabelOptions) -> LabelTable:
    """Add the labels and sides of records: by name, or in the order of the rows where one of both has no names."""
    where, layout = first_few([Path(location).name for location in options.lists], _MOST_SHOWN), options.name_layout
    if table.names is not None and records.names is not None:
        taken, how = records.join(table.names, where, stems=layout.stems), "by name"
    else:
        taken, how = _in_order(records, n_rows, where), "in the order of the rows"
    taken = taken.without([*table.columns])
    listed = ", ".join(what for what in taken.columns if what != "image_paths")
    note = f"labels come from {where}, layout {layout.name}, {how}: {listed}"
    return replace(table.with_columns(taken.columns, note), side=taken.side)


def _in_order(records: LabelTable, n_rows: int, where: str) -> LabelTable:
    """Return the records of the rows: all, or all that are evaluated."""
    kept = ~records.left_out
    if records.n_rows == n_rows:
        return records
    if kept.sum() == n_rows:
        return records.select(kept)
    evaluated = f", {kept.sum()} of them evaluated," if not kept.all() else ""
    raise InputError(
        f"{where} {'holds' if ',' not in where else 'hold'} {counted(records.n_rows, 'record')}{evaluated} for "
        f"{counted(n_rows, 'row')} of features; give the lists of these rows in their order, or names of their images "
        "(--names), by which records are found"
    )


def _camera_notes(camids: Coded | None, layout: NameLayout) -> list[str]:
    """A note on cameras below the first one of the layout, which other code has counted anew."""
    if camids is None or layout.first_camera is None:
        return []
    below = sorted(text for text in camids.texts.tolist() if text.isdecimal() and int(text) < layout.first_camera)
    if not below:
        return []
    return [f"cameras of the layout {layout.name} begin at {layout.first_camera}; names hold camera {', '.join(below)}"]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def _numbered(sets: Sequence[_Set], source: Source) -> tuple[list[_Set], dict[str, NDArray[np.str_]]]:
    """Number texts of identities and cameras over all sets; return the texts of the numbers, too."""
    vocabularies: dict[str, NDArray[np.str_]] = {}
    columns: list[dict[str, Column]] = [dict(each.table.columns) for each in sets]
    for what, names_key in NUMBERED.items():
        having = [at for at, held in enumerate(columns) if what in held]
        if not having:
            continue
        given = [columns[at][what] for at in having]
        # Of names of images, the distinct texts are numbered, and every row has the number of its text.
        numbers, texts = number_jointly([held.texts if isinstance(held, Coded) else held for held in given], what)
        for at, held, values in zip(having, given, numbers, strict=True):
            columns[at][what] = values[held.codes] if isinstance(held, Coded) else values
        if texts is not None:
            vocabularies[names_key] = texts
        elif names_key in source.vocabularies and all(
            what in sets[at].part.labels and not isinstance(held, Coded) for at, held in zip(having, given, strict=True)
        ):
            vocabularies[names_key] = source.vocabularies[names_key]
    for held_columns in columns:
        for what, held in held_columns.items():
            if isinstance(held, Coded):
                is_id = what == "item_ids"
                held_columns[what] = held.decoded() if is_id else _numbers(held, what.removeprefix(COLUMN_PREFIX))
    made = [
        replace(each, table=each.table.with_columns(numbered)) for each, numbered in zip(sets, columns, strict=True)
    ]
    return made, vocabularies


def _numbers(column: Coded, group: str) -> NDArray[np.int64]:
    """The numbers of texts in digits."""
    texts = column.texts.tolist()
    numbers = [number_in_digits(text) for text in texts]
    words = [text[:_LONGEST_WORD] for text, number in zip(texts, numbers, strict=True) if number is None]
    if words:
        raise InputError(
            f"{group} must be whole numbers, and names of images hold {first_few([*map(repr, words)], _MOST_SHOWN)}; "
            f"give the number that each denotes, such as --word {group}:{words[0]}=1 (words)"
        )
    return np.array(numbers, dtype=np.int64)[column.codes]


# ---- sides -----------------------------------------------------------------------------------------------------------


def _with_sides(source: Source, each: _Set, options: LabelOptions) -> LabelTable | None:
    """Labels with the side of every row, if a single set holds query and gallery; None if it is one set.

    By the number of queries, by folders and lists of the options, by columns, or by the layout of names.
    """
    table = each.table
    table.check_length(each.n_rows, each.part.features, SIDE_LABELS)
    if options.num_query is not None:
        return _queries_first(source, table, each.n_rows, options.num_query)
    if options.of_sides:
        sided: LabelTable | None = _chosen_sides(table, options)
    else:
        sided = table.marked() or _sides_of_layout(source, table, options)
    if sided is None:
        return _queries_first(source, table, each.n_rows)
    sided = sided.with_item_ids()
    left = int((~sided.of_role("query") & ~sided.of_role("gallery")).sum())
    note = f"left out {left} of {each.n_rows} rows: neither query nor gallery"
    return sided.with_columns({}, *([note] if left else []))


def _queries_first(source: Source, table: LabelTable, n_rows: int, given: int | None = None) -> LabelTable | None:
    """Set sides where queries come first: `given` many, or as the entry ``num_query`` says; None without either."""
    count = _entry(source) if given is None else given
    if count is None:
        return None
    if not 1 <= count < n_rows:
        what = f"the entry {_NUM_QUERY} of {source.uri}" if given is None else "--num-query (num_query)"
        raise InputError(f"{what} is {count}, and must be at least 1 and less than the {n_rows} rows of features")
    first = np.arange(n_rows) < count
    return table.with_sides(first, ~first)


def _entry(source: Source) -> int | None:
    if _NUM_QUERY in source.values:
        return source.values[_NUM_QUERY]
    array = source.arrays.get(_NUM_QUERY)
    if array is None or set(array.shape) != {1} or array.dtype.kind not in "iuf":
        return None
    value = array.whole().reshape(-1)[0]
    return int(value) if value == int(value) else None


def _chosen_sides(table: LabelTable, options: LabelOptions) -> LabelTable:
    """Set sides by the lists and folders of the options; a side without any has all other rows.

    Rows of sets of the layout that are not evaluated are no other rows.
    """
    names, layout = table.names, options.name_layout
    if names is None or names.dtype.kind != "U":
        raise InputError(f"{options.of_sides[0]} chooses rows by names of images, and there are none; give --names")
    folders = dict(zip(ROLES, (options.query_folders, options.gallery_folders), strict=True))
    lists = dict(zip(ROLES, (options.query_lists, options.gallery_lists), strict=True))
    by_folder = sides_by_folder(names, {folder: role for role in ROLES for folder in folders[role]})
    sides = dict[Role, Mask]()
    for role in ROLES:
        if not (folders[role] or lists[role]):
            continue
        rows = by_folder.among([role])
        if folders[role] and not rows.any():
            held = {name.replace("\\", "/").rpartition("/")[0] or "none" for name in names.tolist()}
            raise InputError(
                f"no image is in the {role} folder {' or '.join(folders[role])}; the folders are "
                f"{first_few(sorted(held), _MOST_SHOWN)}: give one of them (--{role}-folder)"
            )
        for location in lists[role]:
            listed = read_name_list(location, layout)
            rows = rows | rows_in_list(names, listed, Path(location).name, stems=layout.stems)
        sides[role] = rows
    for role, other in (ROLES, ROLES[::-1]):
        if role not in sides:
            sides[role] = ~sides[other] & ~table.left_out
            if not sides[role].any():
                raise InputError(
                    f"all rows are of the {other} side, and none is left for the {role}; give --{role}-list or "
                    f"--{role}-folder"
                )
    return table.with_sides(sides["query"], sides["gallery"])


def _sides_of_layout(source: Source, table: LabelTable, options: LabelOptions) -> LabelTable | None:
    """Return the table if it has both sides by its layout, else None.

    InputError if the layout is chosen, and rows are in one of them and others in none.
    """
    if table.side is None:
        return None
    layout, neither = options.name_layout.name, table.side.among([EVALUATED])
    if neither.any() and any(table.of_role(role).any() for role in ROLES):
        if options.layout is None:
            return None
        names = table.names
        shown = ", ".join(
            f"row {row}" + ("" if names is None else f": {str(names[row])[:80]!r}")
            for row in np.flatnonzero(neither)[:_MOST_SHOWN].tolist()
        )
        raise InputError(
            f"{counted(int(neither.sum()), 'row')} of {len(neither)} {'is' if neither.sum() == 1 else 'are'} in no set "
            f"of the layout {layout}, and others are of query or gallery; say which rows are the queries",
            details=(shown, "--query-folder and --gallery-folder, --query-list and --gallery-list, or --num-query"),
        )
    if not all(table.of_role(role).any() for role in ROLES):
        return None
    first = _queries_first(source, table, len(neither))
    if first is not None and any((table.of_role(role) != first.of_role(role)).any() for role in ROLES):
        raise InputError(
            f"the entry num_query of {source.uri} makes the first {int(first.of_role('query').sum())} rows queries, "
            f"and the layout {layout} other ones; give --num-query, or --query-folder and --gallery-folder"
        )
    return table


def _without_training(each: _Set, options: LabelOptions) -> tuple[LabelTable, Mask]:
    """Rows of one set that are neither of a set which the chosen layout does not evaluate, nor marked for training."""
    side = each.table.side
    if side is not None and options.layout is not None:
        left = each.table.left_out
        if left.any() and not left.all():
            sets = sorted({str(name) for name in side.texts[np.unique(side.codes[left])]})
            note = f"left out {int(left.sum())} of {each.n_rows} rows: {', '.join(sets)}"
            return each.table.with_columns({}, note), ~left
    left = each.table.for_training
    if left.any() and not left.all():
        note = f"left out {int(left.sum())} of {each.n_rows} rows: split train"
        return each.table.with_columns({}, note), ~left
    return each.table, np.ones(each.n_rows, dtype=np.bool_)


# ---- rows ------------------------------------------------------------------------------------------------------------


def _without_dropped(table: LabelTable, rows: Mask, each: _Set, options: LabelOptions) -> Mask:
    """Rows of a side without the identities that are dropped."""
    table.check_length(each.n_rows, each.part.features)
    kept = rows & ~np.isin(table.plain("pids"), np.array(list(options.drop_pids), dtype=np.int64))
    if not kept.any():
        raise InputError(f"no row of {each.part.features!r} is left after dropping {len(options.drop_pids)} identities")
    return kept


def _items(each: _Set, vocabularies: Mapping[str, NDArray[np.str_]]) -> Items:
    """Rows of a set, as far as a selection needs them."""
    each.table.check_length(each.n_rows, each.part.features)
    held = {what: each.table.plain(what) for what in each.table.columns}
    dtype = natural_dtype(each.features.dtype)
    return Items(
        HeldLabels(repr(each.part.features), each.n_rows, {**held, **vocabularies}),
        lambda start, stop: each.features.read(start, stop).astype(dtype, copy=False),
        rows_at_once(each.features),
        np.ones(each.n_rows, np.bool_),
    )


def _drop_note(pids: NDArray[Any], drop_pids: Sequence[int]) -> str:
    """Note on the dropped rows, and on pids that no row has and that would go unnoticed."""
    held, wanted = set(pids.tolist()), list(dict.fromkeys(int(pid) for pid in drop_pids))
    there, absent = [pid for pid in wanted if pid in held], [pid for pid in wanted if pid not in held]
    note = f"left out {np.isin(pids, there).sum()} of {len(pids)} rows" + (f": {_listed(there)}" if there else "")
    return f"{note}; no row has {_listed(absent)}" if absent else note


def _listed(pids: list[int]) -> str:
    return f"pid {first_few(list(map(str, pids)), FIRST_OFFENDERS)}"
