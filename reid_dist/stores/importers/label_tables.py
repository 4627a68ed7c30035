"""Labels of the rows of a source, whatever file they come from: the table that readers make and ingestion takes.

Columns are called by what they are: ``pids``, ``camids``, ``item_ids``, ``image_paths``, ``columns/NAME``, and
``is_query``, ``is_gallery`` and ``split``, which say the side of a row and are no labels of a store.  Their values are
as the file holds them; `reid_dist.stores.importers.labelling` numbers them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError, refuse
from reid_dist.stores.importers.names import SIDE_LABELS, ArrayNames, find_table
from reid_dist.stores.importers.source import Frame, RowArray, Source
from reid_dist.stores.labels import Role

Mask: TypeAlias = NDArray[np.bool_]

EVALUATED: Final = ""
"""The side of rows that are neither query nor gallery by themselves, and that are evaluated."""

ROLES: Final[tuple[Role, Role]] = ("query", "gallery")
_BOTH_ROLES: Final = "query and gallery"
_TRAIN: Final = "train"
_TRUE: Final = ("true", "1", "1.0", "t", "yes")
_FALSE: Final = ("false", "0", "0.0", "f", "no", "", "nan", "none", "null")

_BLOCK_ROWS: Final = 4096
_MOST_SHOWN: Final = 10
_LONGEST_SHOWN: Final = 80
_MOST_COMPONENTS: Final = 64


@dataclass(frozen=True)
class Coded:
    """Texts of n rows: each text as written once, (v,), and the place of every row's text among them, (n,) int32."""

    texts: NDArray[np.str_]
    codes: NDArray[np.int32]

    @classmethod
    def of(cls, values: NDArray[Any]) -> Coded:
        """Make it of one text, or number, a row."""
        texts, codes = np.unique(values.astype(np.str_), return_inverse=True)
        return cls(texts, codes.astype(np.int32))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Coded:
        return Coded(self.texts, self.codes[rows])

    def decoded(self) -> NDArray[np.str_]:
        """Return the text of every row, (n,)."""
        return self.texts[self.codes]

    def mapped(self, words: Mapping[str, str], other: str) -> Coded:
        """Replace every text by what it denotes, and all others by one text."""
        texts = [words.get(text, other) for text in self.texts.tolist()]
        return Coded(np.array(texts, dtype=np.str_), self.codes)

    def among(self, texts: Sequence[str]) -> Mask:
        """Return the rows whose text is one of some, (n,)."""
        return np.asarray(np.isin(self.texts, texts)[self.codes], dtype=np.bool_)


Column: TypeAlias = NDArray[Any] | Coded
"""Values of n rows: numbers, texts or flags, (n,)."""


@dataclass(frozen=True)
class LabelTable:
    """Labels of the rows of a source.

    Attributes
    ----------
    columns
        Values of the rows by what they are, one for each row; of one length, unless they come from several arrays of a
        file, which `check_length` compares with the features.
    side
        The set of every row: ``query``, ``gallery``, both, `EVALUATED`, or any other name for rows that are not
        evaluated; None where that is not known.
    notes
        Where labels come from and which rows were left out, one line each.
    """

    columns: Mapping[str, Column] = field(default_factory=dict)
    side: Coded | None = None
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, source: Source, found: Mapping[str, str]) -> LabelTable:
        """Read the columns of a source, by what they are and the names that they have there."""
        return cls({what: _column(source.arrays[name], what, name) for what, name in found.items()})

    @classmethod
    def of_table(cls, source: Source, names: ArrayNames) -> LabelTable:
        """Read the labels of a source, by given or customary names; features in it are left alone.

        InputError if there are no labels, or columns differ in length.
        """
        found = find_table(source, names)
        table = cls.of(source, found)
        lengths = {name: len(table.columns[what]) for what, name in found.items()}
        if len(set(lengths.values())) > 1:
            differing = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise InputError(f"columns of {source.uri} differ in length: {differing}; give one value per row in each")
        columns = ", ".join(f"{what} ({name})" for what, name in found.items())
        return replace(table, notes=(f"labels come from {Path(source.uri).name}: {columns}",))

    @classmethod
    def from_frame(cls, frame: Frame, names: ArrayNames | Mapping[str, str | None] | None = None) -> LabelTable:
        """Read the labels of a data frame of pandas or polars, or of an Arrow table, as `of_table` does.

        InputError if values of one are missing, too.
        """
        # Few tables come from data frames.
        from reid_dist.stores.importers.parquet import open_frame

        with open_frame(frame) as source:
            return cls.of_table(source, ArrayNames.of(names))

    @classmethod
    def joined(cls, tables: Mapping[str, LabelTable]) -> LabelTable:
        """Put tables without sides one after the other, by the names of their files.

        InputError unless all have the same columns.
        """
        (first, *_), (held, *_) = tables.keys(), tables.values()
        for name, table in tables.items():
            if table.columns.keys() != held.columns.keys():
                raise InputError(
                    f"{name} holds {', '.join(sorted(table.columns))} and {first} {', '.join(sorted(held.columns))}; "
                    "give lists of one form"
                )
        return cls({what: np.concatenate([table.plain(what) for table in tables.values()]) for what in held.columns})

    @property
    def n_rows(self) -> int:
        """Number of rows: of the longest column."""
        return max(map(len, self.columns.values()), default=0)

    @property
    def names(self) -> NDArray[Any] | None:
        """Names of the images, (n,), if they are known."""
        return self.plain("image_paths") if "image_paths" in self.columns else None

    def plain(self, what: str) -> NDArray[Any]:
        """Return a column, (n,), with every text in its row."""
        held = self.columns[what]
        return held.decoded() if isinstance(held, Coded) else held

    def check_length(self, n_rows: int, features: str, columns: Sequence[str] | None = None) -> None:
        """Refuse columns, all or some, that have not one value for each of so many rows of features."""
        refuse(
            [
                f"{what} has {len(self.columns[what])} entries for {n_rows} rows of {features!r}; give one per row"
                for what in (self.columns if columns is None else columns)
                if what in self.columns and len(self.columns[what]) != n_rows
            ],
            many="labels",
        )

    def with_columns(self, columns: Mapping[str, Column], *notes: str) -> LabelTable:
        """Add columns, in place of those of the same kind, and notes."""
        return replace(self, columns={**self.columns, **columns}, notes=(*self.notes, *notes))

    def without(self, columns: Sequence[str]) -> LabelTable:
        """Leave columns out."""
        return replace(self, columns={what: held for what, held in self.columns.items() if what not in columns})

    def select(self, rows: Mask | NDArray[np.int64]) -> LabelTable:
        """Return some rows, by their numbers or flags."""
        columns = {what: held[rows] for what, held in self.columns.items()}
        for held in columns.values():
            if not isinstance(held, Coded):
                held.flags.writeable = False  # It need not be copied again.
        return replace(self, columns=columns, side=None if self.side is None else self.side[rows])

    # ---- sides -------------------------------------------------------------------------------------------------------

    def marked(self) -> LabelTable | None:
        """Take the side of every row from ``is_query`` and ``is_gallery``, or from ``split``; None without these.

        InputError if one side has no row, or a flag is neither true nor false.
        """
        if "is_query" in self.columns:
            query = _as_flags(self.plain("is_query"), "is_query")
            gallery = _as_flags(self.plain("is_gallery"), "is_gallery") if "is_gallery" in self.columns else ~query
        elif "split" in self.columns and set(ROLES) <= set(self.plain("split").tolist()):
            query, gallery = (self.plain("split") == role for role in ROLES)
        else:
            return None
        for role, rows in zip(ROLES, (query, gallery), strict=True):
            if not rows.any():
                raise InputError(f"no row is of the {role} side by is_query and is_gallery; leave these columns out")
        return self.with_sides(query, gallery)

    def with_sides(self, query: Mask, gallery: Mask) -> LabelTable:
        """Take the side of every row from flags, (n,)."""
        texts = np.array([EVALUATED, *ROLES, _BOTH_ROLES])
        return replace(self, side=Coded(texts, query.astype(np.int32) + 2 * gallery.astype(np.int32)))

    def of_role(self, role: Role) -> Mask:
        """Return the rows of query or gallery, (n,)."""
        return np.zeros(self.n_rows, np.bool_) if self.side is None else self.side.among([role, _BOTH_ROLES])

    @property
    def left_out(self) -> Mask:
        """Rows of sides that are not evaluated, such as the one for training, (n,)."""
        if self.side is None:
            return np.zeros(self.n_rows, np.bool_)
        return ~self.side.among([EVALUATED, *ROLES, _BOTH_ROLES])

    @property
    def for_training(self) -> Mask:
        """Rows that ``split`` marks as training rows, (n,)."""
        if "split" not in self.columns or self.plain("split").dtype.kind != "U":
            return np.zeros(self.n_rows, np.bool_)
        return np.asarray(np.char.lower(self.plain("split")) == _TRAIN, dtype=np.bool_)

    def with_item_ids(self) -> LabelTable:
        """Number items without ids where some are query and gallery, so that these are no matches of themselves."""
        both = self.of_role("query") & self.of_role("gallery")
        if not both.any() or "item_ids" in self.columns:
            return self
        note = f"{both.sum()} rows are query and gallery; item ids are the row numbers of the source"
        return self.with_columns({"item_ids": np.arange(self.n_rows)}, note)

    # ---- names -------------------------------------------------------------------------------------------------------

    def join(self, names: NDArray[np.str_], where: str, *, stems: bool) -> LabelTable:
        """Return the row of each name, (n,): of equal paths, or of those that are equal as far as both of them go.

        Names and rows may begin with different folders.  They are compared by as many last components as every one of
        them has; with `stems` without the suffix of the file.  InputError if a name has no row, or several that differ.
        """
        held = self.names
        if held is None or not len(held):
            raise InputError(f"{where} holds no names of images; give the lists of these images")
        index, rows, unfit = _look_up(names, held, stems=stems)
        if unfit.count:
            raise InputError(
                f"{unfit.count} of {counted(len(names), 'name')} {'is' if unfit.count == 1 else 'are'} not in {where}: "
                f"{unfit.shown()}; give the lists of these images, or leave out these rows, or the lists"
            )
        labels = [self.plain(what) for what in self.columns if what != "image_paths"]
        labels += [] if self.side is None else [self.side.decoded()]
        if (repeat := index.differing_repeat(rows, labels)) is not None:
            one, other, key = repeat
            raise InputError(
                f"{where} has several records of {key!r} that differ, records {one} and {other}; give names with the "
                "folders that distinguish them, as in the list"
            )
        return self.select(rows)


def _column(array: RowArray, what: str, name: str) -> NDArray[Any]:
    """Read a column, (n,) numbers, texts or flags, that errors call by its name."""
    is_flag = what in SIDE_LABELS and array.dtype.kind == "b"
    return array.whole().reshape(-1) if is_flag else array.column(name)


def _as_flags(values: NDArray[Any], name: str) -> Mask:
    """Read true and false in the notations of data frames; what is missing is false."""
    if values.dtype.kind != "U":
        return np.asarray(np.nan_to_num(values.astype(np.float64), nan=0.0) != 0, dtype=np.bool_)
    texts = [text.strip().lower() for text in values.tolist()]
    wrong = next((row for row, text in enumerate(texts) if text not in _TRUE and text not in _FALSE), None)
    if wrong is not None:
        raise InputError(f"{name} must be true or false in every row: row {wrong} holds {str(values[wrong])[:80]!r}")
    return np.array([text in _TRUE for text in texts], dtype=np.bool_)


def path_blocks(names: NDArray[np.str_]) -> Iterator[tuple[int, list[str]]]:
    """First row and names of consecutive blocks, with ``/`` between the components of a path."""
    for start in range(0, len(names), _BLOCK_ROWS):
        block = names[start : start + _BLOCK_ROWS].tolist()
        if "\\" in "\n".join(block):
            block = [name.replace("\\", "/") for name in block]
        yield start, block


class UnfitNames:
    """Counts names that do not fit and keeps the first ones."""

    def __init__(self) -> None:
        self.count = 0
        self._first: list[str] = []

    def add(self, row: int, name: str) -> None:
        """Take the name of a row."""
        self.count += 1
        if len(self._first) < _MOST_SHOWN:
            self._first.append(f"row {row}: {name[:_LONGEST_SHOWN]!r}")

    def shown(self) -> str:
        """Return the first ones, and how many more there are."""
        more = self.count - len(self._first)
        return ", ".join(self._first) + (f" and {more} more" if more else "")


class _Index:
    """Rows of paths by their last components."""

    def __init__(self, paths: NDArray[np.str_], depth: int, *, stems: bool) -> None:
        self.depth, self._stems = depth, stems
        # A list for each of a million keys would take more than the keys.
        self._first: dict[str, int] = {}
        self._others: dict[str, list[int]] = {}
        for row, key in enumerate(self._keys(paths)):
            if self._first.setdefault(key, row) != row:
                self._others.setdefault(key, []).append(row)

    def _keys(self, paths: NDArray[np.str_]) -> Iterator[str]:
        """The part of each path that is compared."""
        for _, block in path_blocks(paths):
            for path in block:
                key = "/".join(_plain(path).rsplit("/", self.depth)[-self.depth :])
                yield _stem(key) if self._stems else key

    def rows(self, paths: NDArray[np.str_]) -> tuple[NDArray[np.int64], UnfitNames]:
        """Return the first row with the key of each path, -1 where there is none, and the paths without a row."""
        rows, unfit = np.full(len(paths), -1, np.int64), UnfitNames()
        for place, key in enumerate(self._keys(paths)):
            rows[place] = self._first.get(key, -1)
            if rows[place] < 0:
                unfit.add(place, key)
        return rows, unfit

    def differing_repeat(self, rows: NDArray[np.int64], labels: Sequence[NDArray[Any]]) -> tuple[int, int, str] | None:
        """Two rows with the key of one of some rows that differ in a label, (n,), and the key; None without such."""
        used = set(rows.tolist())
        for key, others in self._others.items():
            first = self._first[key]
            for other in others if first in used else ():
                if any(values[first] != values[other] for values in labels):
                    return first, other, key
        return None


def _plain(path: str) -> str:
    """Return a path from the root, or from here, without its beginning."""
    return path.removeprefix("./").lstrip("/") if path.startswith((".", "/")) else path


def _stem(key: str) -> str:
    place = key.rfind(".")
    return key[:place] if place > key.rfind("/") + 1 else key


def _fewest_components(names: NDArray[np.str_]) -> int:
    return min(min(_plain(path).count("/") for path in block) for _, block in path_blocks(names)) + 1


def _look_up(
    wanted: NDArray[np.str_], held: NDArray[np.str_], *, stems: bool
) -> tuple[_Index, NDArray[np.int64], UnfitNames]:
    """Find paths among others: whole ones, or where one is not there by as many components as all of them have."""
    index = _Index(held, _MOST_COMPONENTS, stems=stems)
    rows, unfit = index.rows(wanted)
    if unfit.count:
        # Before the other is made.
        del index
        index = _Index(held, min(_fewest_components(wanted), _fewest_components(held)), stems=stems)
        rows, unfit = index.rows(wanted)
    return index, rows, unfit


def find_paths(
    names: Sequence[NDArray[np.str_]], listed: NDArray[np.str_], where: str
) -> tuple[list[NDArray[np.int64]], NDArray[np.int64]]:
    """Find the rows of listed paths in the names of several sets, each (n,): of whole paths, or of what these end in.

    Returns the rows in each of the sets, and the entries of the list that have any.  InputError if an entry that is no
    whole path is the end of several of them.
    """
    by_depth: dict[int, dict[str, list[int]]] = {}
    for place, path in enumerate(each for _, block in path_blocks(listed) for each in block):
        plain = _plain(path)
        by_depth.setdefault(plain.count("/") + 1, {}).setdefault(plain, []).append(place)
    # Whole paths and ends of them, by the first entry: the paths that it fits, and rows by set.
    whole = dict[int, list[tuple[int, int]]]()
    ends = dict[int, list[tuple[int, int]]]()
    paths = dict[int, set[str]]()
    for at, held in enumerate(names):
        for start, block in path_blocks(held):
            for row, path in enumerate(map(_plain, block), start):
                for depth, entries in by_depth.items():
                    key = "/".join(path.rsplit("/", depth)[-depth:])
                    if key in entries:
                        first = entries[key][0]
                        (whole if key == path else ends).setdefault(first, []).append((at, row))
                        if key != path:
                            paths.setdefault(first, set()).add(path)
    places, rows = list[int](), [list[int]() for _ in names]
    for entries in by_depth.values():
        for entry, same in entries.items():
            if same[0] not in whole and len(paths.get(same[0], ())) > 1:
                one, other, *_ = sorted(paths[same[0]])
                raise InputError(
                    f"{where}: {entry!r} is the end of several image paths, such as {one!r} and {other!r}; give more "
                    "of their folders"
                )
            found = whole.get(same[0]) or ends.get(same[0]) or []
            places += same if found else []
            for at, row in found:
                rows[at].append(row)
    return [np.array(each, np.int64) for each in rows], np.array(places, np.int64)


def rows_in_list(names: NDArray[np.str_], listed: NDArray[np.str_], where: str, *, stems: bool) -> Mask:
    """Return which of the names, (n,), are in a list; they are compared as by `LabelTable.join`.

    InputError if a name of the list is not among them.
    """
    if not len(listed):
        raise InputError(f"{where} holds no names of images; give a list with a name a line")
    index, _, unfit = _look_up(listed, names, stems=stems)
    if unfit.count:
        raise InputError(
            f"{unfit.count} of {counted(len(listed), 'name')} of {where} {'is' if unfit.count == 1 else 'are'} not "
            f"among the names of the features: {unfit.shown()}; give the list of these images, or the names of all of "
            "its images"
        )
    rows, _ = _Index(listed, index.depth, stems=stems).rows(names)
    return rows >= 0
