"""Lists of rows of sets, by number or by name: the pairs of a verification, and the rows of every split.

Lists of pairs are files of `open_source` with customary names of columns, or ``.txt`` with two or three values between
blanks a line.  Lists of splits are:

* JSON: a list with one entry per split, ``{"gallery": […], "query": […]}`` or the gallery alone; or one object
  ``{"gallery": [[…], …], "query": …}``, whose ``query`` is a list per split, or one list for all splits.
* Any other file of `open_source` with an array ``gallery``, and perhaps ``query``: a row per split, shorter ones filled
  up with -1 or with empty texts; a ``query`` of one dimension is for all splits.
* ``rand_perm_cam.mat`` of SYSU-MM01: for every camera and identity a permutation of its images per split, the first of
  which are the gallery.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.json_text import json_of
from reid_dist.core.segments import entry_owners, segment_offsets
from reid_dist.core.sorted_values import places_among
from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.matlab import read_nested_cells
from reid_dist.stores.importers.source import listed, open_source, text_rows
from reid_dist.stores.importers.text_files import file_of_labels, read_text
from reid_dist.stores.labels import LabelledSet, as_whole_numbers, join_item_ids

LEFT: Final = ("left", "first", "row1", "id1", "path1", "template1", "t1", "a", "query")
RIGHT: Final = ("right", "second", "row2", "id2", "path2", "template2", "t2", "b", "gallery")
SAME: Final = ("same", "is_same", "issame", "label", "labels", "genuine", "target")
_WHOLE: Final = ("pairs",)
"""Customary names of the columns, in any case."""

_SAME_WORDS: Final = {
    "1": True,
    "true": True,
    "same": True,
    "0": False,
    "-1": False,
    "false": False,
    "different": False,
}


class PairList(NamedTuple):
    """Row numbers of pairs, (n, 2) int64, and whether they are of one identity, (n,); None where no label is given."""

    rows: NDArray[np.int64]
    same: NDArray[np.bool_] | None


def read_pair_list(
    location: str | os.PathLike[str], left: LabelledSet, right: LabelledSet, *, by: str = "rows"
) -> PairList:
    """Read a list of pairs, and find the rows that it names in two sets: by ``rows``, ``item_ids`` or ``image_paths``.

    InputError if the file has no such columns, or names a row that a set lacks or has twice.
    """
    where = os.fspath(location)
    columns = _text_columns(where) if Path(where).suffix.lower() == ".txt" else _source_columns(where)
    rows = [_find(columns[side], each, by, where) for side, each in (("left", left), ("right", right))]
    same = columns.get("same")
    return PairList(np.column_stack(rows), None if same is None else _same(same, where))


def _text_columns(where: str) -> dict[str, NDArray[Any]]:
    path = file_of_labels(where)
    try:
        # A tenth of the time and of the memory of texts; most lists hold numbers alone.
        columns = [*np.loadtxt(path, np.int64, ndmin=2).T] if path.stat().st_size else []
    except ValueError:
        columns = _texts_between_blanks(read_text(path), where)
    if len(columns) not in (2, 3):
        raise InputError(
            f"{where} must hold two rows and perhaps a label a line, between blanks; found {len(columns)} values a line"
        )
    return dict(zip(("left", "right", "same"), columns, strict=False))


def _texts_between_blanks(text: str, where: str) -> list[NDArray[Any]]:
    lines = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    lines = [line for line in lines if line]
    uneven = next((number for number, line in enumerate(lines) if len(line) != len(lines[0])), None)
    if uneven is not None:
        raise InputError(
            f"{where} must hold as many values in every line, between blanks; pair 1 has {len(lines[0])}, and pair "
            f"{uneven + 1} has {len(lines[uneven])}"
        )
    return [text_rows(list(texts), where) for texts in zip(*lines, strict=True)]


def _source_columns(where: str) -> dict[str, NDArray[Any]]:
    with open_source(where) as source:
        arrays = {name.lower(): array for name, array in source.arrays.items()}
        whole = next((arrays[name] for name in _WHOLE if name in arrays), None)
        if whole is None and len(arrays) == 1:
            whole = next(iter(arrays.values()))
        columns: dict[str, NDArray[Any]] = {}
        if whole is not None and len(whole.shape) == 2 and whole.shape[1] in (2, 3):
            columns = dict(zip(("left", "right", "same"), whole.whole().T, strict=False))
        for what, customary in (("left", LEFT), ("right", RIGHT), ("same", SAME)):
            found = next((arrays[name] for name in customary if name in arrays), None)
            if found is not None:
                columns[what] = found.whole().reshape(-1)
        if not {"left", "right"} <= columns.keys():
            raise InputError(
                f"{where} is no list of pairs: it needs an array pairs of shape (n, 2) or (n, 3), or columns such as "
                f"left, right and same; {source.contents()}"
            )
        if len({len(values) for values in columns.values()}) > 1:
            raise InputError(f"the columns of {where} differ in length; {source.contents()}")
    return columns


def _find(values: NDArray[Any], features: LabelledSet, by: str, where: str) -> NDArray[np.int64]:
    """Rows of a set by number, item id or image path, (n,)."""
    return _row_numbers(values, where) if by == "rows" else _rows_named(values, features, by, where)


def _row_numbers(values: NDArray[Any], where: str) -> NDArray[np.int64]:
    """Whole numbers of any dtype as int64, shape (n,)."""
    try:
        if values.dtype.kind in "iuf":
            return as_whole_numbers(values, "row numbers")
        return values.astype(np.int64) if values.dtype.kind != "U" else np.array(values.tolist(), dtype=np.int64)
    except (ValueError, OverflowError, InputError) as error:
        raise InputError(
            f"{where} holds no row numbers ({error}); for item ids or image paths, give --by item_ids or "
            "--by image_paths"
        ) from None


def _rows_named(values: NDArray[Any], features: LabelledSet, by: str, where: str) -> NDArray[np.int64]:
    """Row of each item id or image path in a set, (n,) int64."""
    known = features.item_ids if by == "item_ids" else features.image_paths
    if known is None:
        raise InputError(f"{where} gives {by}, and {features.uri} has none; give row numbers (--by rows)")
    wanted, held = join_item_ids(values, known)
    order = np.argsort(held, kind="stable")
    ordered = held[order]
    place = places_among(ordered, wanted)
    missing = np.flatnonzero(place < 0)
    if len(missing):
        raise InputError(
            f"{counted(len(missing), 'entry')} of {where} {'has' if len(missing) == 1 else 'have'} {by} that "
            f"{features.uri} lacks: {listed(map(repr, np.unique(wanted[missing]).tolist()))}"
        )
    twice = np.flatnonzero((np.searchsorted(ordered, wanted, "right") - np.searchsorted(ordered, wanted)) > 1)
    if len(twice):
        raise InputError(
            f"{features.uri} has several rows of {by} {listed(map(repr, np.unique(wanted[twice]).tolist()))}, which "
            f"{where} names; give row numbers (--by rows)"
        )
    return order[place]


def _same(values: NDArray[Any], where: str) -> NDArray[np.bool_]:
    kinds, code = np.unique(values, return_inverse=True)
    words = [
        str(int(kind) if isinstance(kind, float) and kind.is_integer() else kind).casefold() for kind in kinds.tolist()
    ]
    unknown = [word for word in words if word not in _SAME_WORDS]
    if unknown:
        raise InputError(
            f"{where} labels pairs {listed(unknown)}; a label is 1, true or same, or 0, -1, false or different"
        )
    return np.array([_SAME_WORDS[word] for word in words])[code]


Int64 = NDArray[np.int64]

SplitSource: TypeAlias = str | os.PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""A file of splits, or what a JSON file of them holds."""

_PERMUTATIONS: Final = "rand_perm_cam"
_SIDES: Final = ("gallery", "query")
_JUNK_PID: Final = -1


class SplitRows(NamedTuple):
    """Rows of a split, ascending, int64: those of its gallery, and those of its queries, None for all."""

    gallery: Int64
    query: Int64 | None = None


def read_split_rows(
    source: SplitSource,
    query: LabelledSet,
    gallery: LabelledSet,
    *,
    by: str = "rows",
    per_identity: int = 1,
    is_requested: bool = False,
) -> list[SplitRows]:
    """Read the rows of every split: numbers from 0, or names by ``item_ids`` or ``image_paths``.

    `per_identity` images are taken of every permutation of ``rand_perm_cam``; other lists hold all rows of a split, and
    refuse it where it is requested.
    InputError for a list of another form, for rows that a set lacks, and for rows that are listed twice.
    """
    where, content = _content(source)
    if content is None:
        return _of_permutations(where, gallery, per_identity)
    if is_requested:
        raise InputError(
            f"{where} lists all rows of every split, and per_identity {per_identity} has no effect on them: leave it "
            f"out, list fewer rows, or draw the rows (without rows, --rows); {_PERMUTATIONS}.mat takes it"
        )
    entries = _entries(content, where)
    if not entries:
        raise InputError(f"{where} lists no split")
    galleries = _rows([entry["gallery"] for entry in entries], gallery, by, where, "gallery", range(len(entries)))
    # One list may be that of all splits.
    splits = {id(entry["query"]): split for split, entry in reversed([*enumerate(entries)]) if "query" in entry}
    listed = _rows(
        [entries[split]["query"] for split in splits.values()], query, by, where, "query", [*splits.values()]
    )
    queries = dict(zip(splits, listed, strict=True))
    return [
        SplitRows(rows, queries[id(entry["query"])] if "query" in entry else None)
        for rows, entry in zip(galleries, entries, strict=True)
    ]


def _content(source: SplitSource) -> tuple[str, Any]:
    """Name of a list for messages, and what it holds; None for permutations in a MATLAB file."""
    if not isinstance(source, str | os.PathLike):
        return "rows", source
    where = os.fspath(source)
    if Path(where).suffix.lower() == ".json":
        return where, json_of(read_text(file_of_labels(where)), where)
    with open_source(where) as opened:
        if _PERMUTATIONS in opened.arrays or _PERMUTATIONS in opened.refused:
            return where, None
        held = {side: opened.arrays[side].whole() for side in _SIDES if side in opened.arrays}
        if "gallery" not in held:
            raise InputError(
                f"{where} lists no splits: it needs an array 'gallery' with the rows of one split in each row, and "
                f"perhaps 'query', or {_PERMUTATIONS} of SYSU-MM01; {opened.contents()}"
            )
    return where, {side: _without_filling(np.asarray(values), side, where) for side, values in held.items()}


def _without_filling(values: NDArray[Any], side: str, where: str) -> list[NDArray[Any]] | NDArray[Any]:
    """Rows of each split, without what fills up shorter ones; one dimension is one list."""
    if values.ndim not in (1, 2):
        raise InputError(f"{where}: {side} must have one row per split, shape (n_split, n), not {values.shape}")
    lists = [row[row != ("" if row.dtype.kind == "U" else -1)] for row in np.atleast_2d(values)]
    return lists[0] if values.ndim == 1 and side == "query" else lists


def _entries(content: Any, where: str) -> list[dict[str, Any]]:
    """One mapping of lists by side for every split."""
    if isinstance(content, Mapping):
        _refuse_other_sides(content, where)
        galleries, queries = content["gallery"], content.get("query")
        if not _is_list(galleries) or not all(map(_is_list, galleries)):
            raise InputError(f"{where}: gallery must be a list of rows for every split, such as [[0, 3], [1, 4]]")
        entries = [{"gallery": rows} for rows in galleries]
        if queries is None:
            return entries
        single = not all(map(_is_list, queries)) if _is_list(queries) else True
        each = [queries] * len(entries) if single else list(queries)
        if len(each) != len(entries):
            raise InputError(
                f"{where} lists the gallery of {counted(len(entries), 'split')} and the queries of {len(each)}"
            )
        return [{**entry, "query": rows} for entry, rows in zip(entries, each, strict=True)]
    if not _is_list(content):
        raise InputError(f"{where} must hold a list with one entry per split, found {type(content).__name__}")
    entries = [dict(entry) if isinstance(entry, Mapping) else {"gallery": entry} for entry in content]
    for split, entry in enumerate(entries):
        _refuse_other_sides(entry, f"{where}: split {split}")
    return entries


def _refuse_other_sides(entry: Mapping[str, Any], where: str) -> None:
    others = [name for name in entry if name not in _SIDES]
    if others or "gallery" not in entry:
        raise InputError(
            f"{where} must have the entry 'gallery' and may have 'query', found {', '.join(map(repr, entry)) or 'none'}"
        )


def _is_list(value: object) -> bool:
    return isinstance(value, list | tuple | range | np.ndarray)


def _rows(
    lists: Sequence[Any], features: LabelledSet, by: str, where: str, side: str, splits: Sequence[int]
) -> list[Int64]:
    """Rows of one side of some splits, ascending: looked up and checked at once, since splits may be very many."""

    def called(place: int) -> str:
        return f"{where}: {side} of split {splits[place]}"

    if not lists:
        return []
    arrays = [_as_list(values, called(place)) for place, values in enumerate(lists)]
    indptr = segment_offsets([len(values) for values in arrays])
    owner = entry_owners(indptr)
    whole = np.concatenate(arrays)
    rows = _find(whole, features, by, where)
    rows = rows[np.lexsort((rows, owner))]
    outside = np.flatnonzero((rows < 0) | (rows >= features.n_rows))
    if len(outside):
        at = outside[0]
        raise InputError(
            f"{called(owner[at])} names row {rows[at]}, and {features.uri} has {counted(features.n_rows, 'row')}, "
            "counted from 0"
        )
    twice = np.flatnonzero((rows[1:] == rows[:-1]) & (owner[1:] == owner[:-1]))
    if len(twice):
        raise InputError(f"{called(owner[twice[0]])} names row {rows[twice[0]]} twice")
    return np.split(rows, indptr[1:-1])


def _as_list(values: Any, where: str) -> NDArray[Any]:
    """A list of rows or of names, which is not empty."""
    try:
        listed = np.asarray(values) if _is_list(values) else np.empty((0, 0))
    except ValueError:  # Lists of different lengths in a list.
        listed = np.empty((0, 0))
    if listed.ndim != 1 or (listed.size and listed.dtype.kind not in "iufU"):
        raise InputError(f"{where} must be a list of rows or of names, found {values!s:.60}")
    if not listed.size:
        raise InputError(f"{where} is empty")
    return listed


def _of_permutations(where: str, gallery: LabelledSet, per_identity: int) -> list[SplitRows]:
    """Galleries of the permutations of SYSU-MM01: the first images of every identity under every camera."""
    if gallery.camids is None or gallery.camid_names is not None or gallery.pid_names is not None:
        raise InputError(
            f"{where} holds permutations by number of camera and identity, and the gallery has no such camids and "
            "pids; `reid-dist ingest` with --layout sysu_mm01 reads them from the names of the images"
        )
    cells = _cells(where)
    rows = np.flatnonzero(gallery.pids != _JUNK_PID)
    pids, camids, paths = gallery.pids[rows], gallery.camids[rows], gallery.image_paths
    # Images of an identity under a camera are numbered in the order of their names, or as they are stored.
    order = np.lexsort((*(() if paths is None else (paths[rows],)), camids, pids))
    rows, pids, camids = rows[order], pids[order], camids[order]
    new = np.flatnonzero(np.diff(pids, prepend=pids[:1] - 1) | np.diff(camids, prepend=camids[:1]))
    chosen: list[list[Int64]] = []
    for group in np.split(np.arange(len(rows)), new[1:]):
        pid, camera = int(pids[group[0]]), int(camids[group[0]])
        orders = cells.get((camera, pid), np.empty((0, 0)))
        if not orders.size or (np.sort(orders, axis=-1) != np.arange(1, orders.shape[-1] + 1)).any():
            raise InputError(f"{where} has no permutations of the images of identity {pid} under camera {camera}")
        if orders.ndim != 2 or orders.shape[1] != len(group):
            raise InputError(
                f"{where} has permutations of {counted(orders.shape[-1], 'image')} of identity {pid} under camera "
                f"{camera}, and the gallery has {counted(len(group), 'row')}; give all images of the test identities"
            )
        chosen.append([rows[group[each[:per_identity].astype(np.int64) - 1]] for each in orders])
    n_splits = min(map(len, chosen), default=0)
    return [SplitRows(np.sort(np.concatenate([each[split] for each in chosen]))) for split in range(n_splits)]


def _cells(where: str) -> dict[tuple[int, int], NDArray[Any]]:
    """Permutations, (n_split, n_image), from 1, by camera and identity, which count from 1."""
    try:
        cameras = read_nested_cells(Path(where), _PERMUTATIONS)
        return {
            (camera, pid): np.asarray(orders, dtype=np.float64)
            for camera, identities in enumerate(cameras, start=1)
            for pid, orders in enumerate(identities, start=1)
        }
    except (StoreError, OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: {_PERMUTATIONS} is no cell array of cameras and identities ({error})") from None
