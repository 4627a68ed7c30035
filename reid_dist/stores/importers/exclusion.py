"""Rows that are left out of sets on request: those that lists name, and repeats of an earlier row.

A list is a file with one entry a line, ``.npy``, or ``.csv``: numbers of rows from 0 on, item ids, or image paths.  The
first line, or the header of a column, may say which: ``row``, ``item_id`` or ``image_path``.  Without it, numbers are
rows and texts are names; numbers are refused where item ids are numbers as well.  An image path may lack the first
folders of that of the set.  A column ``side`` says of which side an entry is; without it, names are of either side.

What is left out is a selection of rows: a mask over each set, before anything is read of it.  `ingest` does not write
these rows, and an evaluation takes the view of all others.
"""

from __future__ import annotations

import contextlib
import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.finding_words import item_name
from reid_dist.core.formatting import counted, first_few, shortened
from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.stores.digests import row_hashes
from reid_dist.stores.featureset import FeatureSet, read_kept, rows_read_at_once, without_rows
from reid_dist.stores.folders import written_whole
from reid_dist.stores.importers.label_tables import Mask, find_paths
from reid_dist.stores.importers.text_files import file_of_labels, read_column, read_records, read_text
from reid_dist.stores.kept_rows import FeatureArray
from reid_dist.stores.labels import LabelledSet, Role, as_whole_numbers, given_labels, join_item_ids
from reid_dist.stores.repeated_items import NAMES, REPEATABLE, Name, Repeated, first_rows

Location: TypeAlias = str | os.PathLike[str]
Kind = Literal["rows", "item_ids", "image_paths"]
Int64 = NDArray[np.int64]

_HEADERS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("row", "rows"), "rows"),
    **dict.fromkeys(("item_id", "item_ids"), "item_ids"),
    **dict.fromkeys(("image_path", "image_paths", "path", "paths", "img_path", "filename", "file"), "image_paths"),
}
_SIDE: Final = "side"
_HEADER: Final = f"{_SIDE},row,item_id,image_path,reason,same_as,entry\n".encode()
_SIDES: Final[tuple[Role, Role]] = ("query", "gallery")
_MOST_SHOWN: Final = 5
_LONGEST: Final = 80


@dataclass(frozen=True)
class Items:
    """Rows of a set, as far as a selection needs them; `read` returns features of a range as they are kept.

    `step` is the number of rows that are read at a time, and `allowed` are the rows that are there at all, (n,).
    """

    labels: LabelledSet
    read: Callable[[int, int], FeatureArray]
    step: int
    allowed: Mask

    @classmethod
    def of(cls, features: FeatureSet) -> Items:
        """Rows of a set."""
        everything = np.ones(features.n_rows, np.bool_)
        return cls(features, partial(read_kept, features), rows_read_at_once(features), everything)

    @property
    def uri(self) -> str:
        """Where they come from, in reports."""
        return self.labels._shown

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.labels.n_rows

    def has(self, by: Repeated) -> bool:
        """Whether the set has the values by which rows repeat each other."""
        return by == "features" or getattr(self.labels, by) is not None

    def values(self, by: Repeated) -> NDArray[Any]:
        """Values of the rows that are there, by which rows repeat each other; InputError if there are none."""
        if by == "features":
            return self._hashes()
        held: NDArray[Any] | None = self.labels.item_ids if by == "item_ids" else self.labels.image_paths
        if held is None:
            having = [name for name in NAMES if self.has(name)]
            raise InputError(
                f"{self.uri} has no {by}, by which duplicates would be dropped (--drop-duplicates, drop_duplicates); "
                f"{f'drop them by {having[0]}' if having else 'name them, or drop them by features'}"
            )
        return held[self.allowed]

    def _hashes(self) -> NDArray[np.void]:
        parts = []
        for start in range(0, self.n_rows, self.step):
            stop = min(start + self.step, self.n_rows)
            allowed = self.allowed[start:stop]
            if allowed.any():
                parts.append(row_hashes(np.ascontiguousarray(self.read(start, stop)[allowed])))
        return np.concatenate(parts)


@dataclass(frozen=True)
class ExclusionList:
    """Entries of a file, (n,): numbers or texts; what they are, where the file says so, and the side of each."""

    where: str
    entries: NDArray[Any]
    kind: Kind | None = None
    sides: NDArray[np.str_] | None = None

    @classmethod
    def read(cls, location: Location) -> ExclusionList:
        """Read a file; InputError if it is no list."""
        path, where = file_of_labels(location), os.fspath(location)
        if path.suffix.lower() == ".npy":
            return cls(where, _numbers_or_texts(read_column(path), where))
        if path.suffix.lower() == ".csv":
            return cls._of_table(where, read_records(path))
        lines = [line.strip() for line in read_text(path).splitlines()]
        lines = [line for line in lines if line and not line.startswith("#")]
        return cls._of_table(where, [[line] for line in lines])

    @classmethod
    def _of_table(cls, where: str, records: list[list[str]]) -> ExclusionList:
        header = [name.strip().lower() for name in records[0]] if records else []
        kinds = {place: _HEADERS[name] for place, name in enumerate(header) if name in _HEADERS}
        if len(kinds) > 1:
            raise InputError(f"{where} has columns {first_few([header[at] for at in kinds], _MOST_SHOWN)}; keep one")
        if not kinds and len(header) > 1:
            raise InputError(f"{where} has no column row, item_id or image_path, but {first_few(header, _MOST_SHOWN)}")
        place, kind = next(iter(kinds.items()), (0, None))
        rows = records[1:] if kinds else records
        uneven = next((number for number, row in enumerate(rows) if len(row) != len(header)), None)
        if uneven is not None:
            raise InputError(f"{where}: entry {uneven} has {counted(len(rows[uneven]), 'value')}, not {len(header)}")
        sides = None
        if _SIDE in header:
            sides = np.array([row[header.index(_SIDE)].strip() for row in rows], np.str_)
            wrong = np.flatnonzero(~np.isin(sides, _SIDES))
            if len(wrong):
                raise InputError(f"{where}: entry {wrong[0]} is of side {str(sides[wrong[0]])!r}, not query or gallery")
        entries = np.array([row[place].strip() for row in rows], np.str_)
        return cls(
            where, entries if kind in ("item_ids", "image_paths") else _numbers_or_texts(entries, where), kind, sides
        )

    def kind_for(self, sets: Iterable[Items]) -> Kind | None:
        """What the entries are for some sets; None for names, which are item ids or image paths."""
        if self.kind == "rows" and self.entries.dtype.kind == "U":
            raise InputError(f"{self.where} holds {str(self.entries[0])[:_LONGEST]!r} in place of the number of a row")
        if self.kind is not None or self.entries.dtype.kind == "U":
            return self.kind
        for each in sets:
            ids: NDArray[Any] | None = each.labels.item_ids
            if ids is None or (ids.dtype.kind == "U" and not any(text.isdecimal() for text in ids.tolist())):
                continue
            if ids.dtype.kind != "U" and np.array_equal(ids, np.arange(each.n_rows)):
                continue
            raise InputError(
                f"{self.where} holds whole numbers, and {each.uri} has item ids that are numbers as well; say which "
                "they are in a first line: row or item_id"
            )
        return "rows"


def _numbers_or_texts(entries: NDArray[Any], where: str) -> NDArray[Any]:
    """Whole numbers as int64, where all entries are, else texts."""
    if entries.dtype.kind != "U":
        return as_whole_numbers(entries, where)
    is_number = len(entries) > 0 and all(
        text.isascii() and text.isdigit() and len(text) < 19 for text in entries.tolist()
    )
    return entries.astype(np.int64) if is_number else entries


@dataclass(frozen=True)
class LeftOut:
    """What is left out of one set.

    Attributes
    ----------
    n_rows
        Number of rows before.
    excluded
        (n,) bool: rows that lists name.
    repeats, first
        Numbers of the rows that repeat an earlier one and are left out for that, and of those that they repeat.
    by
        What they repeat; None where that was not asked.
    labels
        Those of all rows.
    unmatched
        Entries of lists that name no row of any set, kept with the first of the sets.
    """

    n_rows: int
    excluded: Mask
    repeats: Int64
    first: Int64
    by: Repeated | None
    labels: LabelledSet
    unmatched: tuple[str, ...] = ()

    @property
    def mask(self) -> Mask:
        """Rows that are left out, (n,)."""
        found = self.excluded.copy()
        found[self.repeats] = True
        return found

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each reason."""
        n_excluded, found = int(self.excluded.sum()), []
        if n_excluded:
            found.append(f"left out {n_excluded} of {counted(self.n_rows, 'row', separator='')} (exclusion list)")
        if self.by is not None:
            rest = counted(self.n_rows - n_excluded, "row", separator="")
            found.append(f"left out {len(self.repeats)} of {rest}, whose {item_name(self.by)} an earlier row has")
        return tuple(found)

    def describe(self) -> dict[str, int]:
        """Numbers of rows, for a report."""
        return {"excluded": int(self.excluded.sum()), "duplicates": len(self.repeats)}

    def records(self) -> Iterable[tuple[int, str, str, str, str]]:
        """Number, item id, image path, reason, and the row that is repeated, of every row left out."""
        first = dict(zip(self.repeats.tolist(), self.first.tolist(), strict=True))
        names = self.labels.item_ids, self.labels.image_paths
        for row in np.flatnonzero(self.mask).tolist():
            item_id, path = ("" if held is None else str(held[row]) for held in names)
            yield row, item_id, path, f"same {self.by}" if row in first else "excluded", str(first.get(row, ""))


@dataclass(frozen=True)
class Exclusion:
    """Lists of rows to leave out, by what repeats are left out, and where all of them are listed.

    Nothing is left out by default.  The table is a CSV file, and takes the place of no file but an earlier table.
    """

    exclude: Location | Sequence[Location] = ()
    drop_duplicates: Repeated | None = None
    table: Location | None = None

    def __post_init__(self) -> None:
        """Refuse a kind of repeats that does not exist, and a table of nothing."""
        if self.drop_duplicates is not None and self.drop_duplicates not in REPEATABLE:
            raise unknown_name("way to find duplicates (drop_duplicates)", self.drop_duplicates, REPEATABLE)
        if self.table is not None and not self:
            raise InputError("left_out lists the rows that exclude and drop_duplicates leave out; give one of these")

    def __bool__(self) -> bool:
        return bool(self.lists) or self.drop_duplicates is not None

    @property
    def lists(self) -> Sequence[Location]:
        """The lists; a single one is a sequence of one."""
        return (self.exclude,) if isinstance(self.exclude, str | os.PathLike) else self.exclude

    def listed(self, sets: Sequence[tuple[Role | None, Items]]) -> Listed:
        """Rows that the lists name in some sets, with the role of each; two sets are a query and a gallery."""
        self._refuse_other_files()
        masks = [np.zeros(items.n_rows, np.bool_) for _, items in sets]
        unmatched: list[str] = []
        n_entries = 0
        for each in map(ExclusionList.read, self.lists):
            n_entries += len(each.entries)
            found = _found(each, sets, masks)
            unmatched += [str(entry) for entry in each.entries[~found].tolist()]
        return Listed(tuple(masks), n_entries, tuple(unmatched))

    def _refuse_other_files(self) -> None:
        """Refuse to write the table over anything else, such as the list that is read."""
        place = None if self.table is None else Path(self.table)
        if place is None or not place.exists():
            return
        is_table = False
        if place.is_file():
            with contextlib.suppress(OSError), place.open("rb") as file:
                is_table = file.read(len(_HEADER)) == _HEADER
        if not is_table:
            raise InputError(
                f"{place} is there and is no table of rows that were left out; choose another --left-out (left_out)"
            )

    def write(self, records: Sequence[tuple[str, LeftOut]]) -> None:
        """Write the table, if one is asked for, with what is left out of each side."""
        if self.table is None:
            return
        text = StringIO()
        table = csv.writer(text, lineterminator="\n")
        for side, found in records:
            table.writerows([side, *record, ""] for record in found.records())
        for _, found in records:
            table.writerows(["", "", "", "", "names no row", "", entry] for entry in found.unmatched)
        try:
            with written_whole(Path(self.table)) as file:
                file.write(_HEADER + text.getvalue().encode())
        except OSError as error:
            raise InputError(
                f"cannot write {os.fspath(self.table)}: {error.strerror}; choose another --left-out (left_out)"
            ) from None

    def for_side(self, items: Items, others: Iterable[Items]) -> Exclusion:
        """The same for one of several sets: one without the names that another set has has no repeats of these."""
        by = self.drop_duplicates
        if by is None or items.has(by) or not any(other.has(by) for other in others):
            return self
        return replace(self, drop_duplicates=None)

    def repeats(self, items: Items, what: str) -> tuple[Int64, Int64]:
        """Rows that repeat an earlier one of those that are there, and the first ones that they repeat.

        InputError if one of them has another identity or camera than the first: then they are no repeats.
        """
        if self.drop_duplicates is None:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        rows = np.flatnonzero(items.allowed)
        again, first = (rows[places] for places in first_rows(items.values(self.drop_duplicates)))
        of = items.labels
        for name, labels, texts in (("pid", of.pids, of.pid_names), ("camid", of.camids, None)):
            if labels is None:
                continue
            differing = np.flatnonzero(labels[again] != labels[first])
            if len(differing):
                one, other = int(first[differing[0]]), int(again[differing[0]])
                values = given_labels(labels[[one, other]], texts)
                shared = item_name(self.drop_duplicates)
                raise InputError(
                    f"{what}: {counted(len(differing), 'row')} {'has' if len(differing) == 1 else 'have'} the {shared} "
                    f"of an earlier row and another {name}; correct the labels, or leave the wrong rows out "
                    "(--exclude)",
                    details=(f"first: rows {one} and {other}, {name}s {values[0]} and {values[1]}",),
                )
        return again, first


@dataclass(frozen=True)
class Listed:
    """Rows that lists name, one mask for each set, the number of entries, and the entries that name none."""

    masks: tuple[Mask, ...]
    n_entries: int
    unmatched: tuple[str, ...]

    @property
    def note(self) -> tuple[str, ...]:
        """A line on entries that name no row; none where all do."""
        if not self.unmatched:
            return ()
        shown = first_few([shortened(entry, _LONGEST) for entry in self.unmatched], _MOST_SHOWN)
        one = len(self.unmatched) == 1
        return (
            f"{len(self.unmatched)} of {counted(self.n_entries, 'entry', separator='')} in the exclusion list "
            f"{'matches' if one else 'match'} no row: {shown}",
        )


def _found(each: ExclusionList, sets: Sequence[tuple[Role | None, Items]], masks: Sequence[Mask]) -> Mask:
    """Mark the rows that a list names; return which of its entries name some, (n,)."""
    found = np.zeros(len(each.entries), np.bool_)
    if not len(found):
        return found
    kind = each.kind_for(items for _, items in sets)
    if kind == "rows":
        if each.sides is None and len({items.labels.content_digest or role for role, items in sets}) > 1:
            raise InputError(
                f"{each.where} holds numbers of rows, and there are a query and a gallery; add a column side (query or "
                "gallery), or give item ids or image paths"
            )
        for (role, items), mask in zip(sets, masks, strict=True):
            there = _of_side(each, role) & (each.entries >= 0) & (each.entries < items.n_rows)
            mask[each.entries[there]] = True
            found |= there
        return found
    needed: tuple[Name, ...] = NAMES if kind is None else (kind,)
    if not any(items.has(name) for _, items in sets for name in needed):
        raise InputError(
            f"{each.where} names rows by {' or '.join(map(item_name, needed))}, and {sets[0][1].uri} has none; give "
            "numbers of rows, or name the arrays that hold them"
        )
    texts = each.entries.astype(np.str_)
    for (role, items), mask in zip(sets, masks, strict=True):
        own = _of_side(each, role)
        held_ids: NDArray[Any] | None = items.labels.item_ids
        if kind != "image_paths" and held_ids is not None and own.any():
            # Numbers against texts of which none is equal are refused.
            with contextlib.suppress(InputError):
                wanted, ids = join_item_ids(texts, held_ids)
                mask |= np.isin(ids, wanted[own])
                found |= own & np.isin(wanted, ids)
    if kind != "item_ids":
        paths = [(role, items.labels.image_paths, mask) for (role, items), mask in zip(sets, masks, strict=True)]
        having = [(role, held, mask) for role, held, mask in paths if held is not None]
        # An entry that is the end of a path is looked for in all sets at once, unless its side is known.
        for group in [[one] for one in having] if each.sides is not None else [having] if having else []:
            entries = np.flatnonzero(_of_side(each, group[0][0]) & ~found)
            rows, places = find_paths([held for _, held, _ in group], texts[entries], each.where)
            for (_, _, mask), named in zip(group, rows, strict=True):
                mask[named] = True
            found[entries[places]] = True
    return found


def _of_side(each: ExclusionList, role: Role | None) -> Mask:
    if each.sides is None or role is None:
        return np.ones(len(each.entries), np.bool_)
    return np.asarray(each.sides == role, dtype=np.bool_)


def leave_out(query: FeatureSet, gallery: FeatureSet, exclusion: Exclusion) -> tuple[FeatureSet, FeatureSet]:
    """Views of the rows of two sets that are kept, which say in their notes what is left out.

    Parameters
    ----------
    query, gallery
        The two sides.
    exclusion
        What is left out of them, and where it is listed.

    Raises
    ------
    InputError
        If a list cannot be read, nothing is left of a set, or rows of several identities or cameras repeat each other.
    """
    if not exclusion:
        return query, gallery
    sides = {"query": query, "gallery": gallery}
    sets: list[tuple[Role | None, Items]] = [(role, Items.of(sides[role])) for role in _SIDES]
    listed = exclusion.listed(sets)
    if listed.n_entries and len(listed.unmatched) == listed.n_entries:
        (note,) = listed.note
        examples = [(role, by, items.values(by)[0]) for role, items in sets for by in NAMES if items.has(by)]
        raise InputError(
            f"{note}; correct the entries, or leave out the list (--exclude, exclude)",
            details=[f"{role} has, for example, the {item_name(by)} {str(name)!r}" for role, by, name in examples],
        )
    kept, records = [], []
    for (role, items), excluded in zip(sets, listed.masks, strict=True):
        own = exclusion.for_side(items, [other for _, other in sets])
        found = left_out(own, items, excluded, str(role))
        found = replace(found, unmatched=listed.unmatched if role == _SIDES[0] else ())
        sides[str(role)]._refuse_non_finite(~found.mask)
        records.append((str(role), found))
        notes = (*(f"{role}: {note}" for note in found.notes), *listed.note)
        kept.append(without_rows(sides[str(role)], found.mask, notes, found.describe()))
    exclusion.write(records)
    return kept[0], kept[1]


def left_out(exclusion: Exclusion, items: Items, excluded: Mask, what: str) -> LeftOut:
    """What is left out of one set, of which lists name some rows; errors call it `what`.

    InputError if nothing is left.
    """
    rest = replace(items, allowed=items.allowed & ~excluded)
    if not rest.allowed.any():
        raise InputError(f"{what}: all {counted(int(items.allowed.sum()), 'row')} are excluded, and none is left")
    again, first = exclusion.repeats(rest, what)
    n_rows, own = int(items.allowed.sum()), excluded & items.allowed
    return LeftOut(n_rows, own, again, first, exclusion.drop_duplicates, items.labels)
