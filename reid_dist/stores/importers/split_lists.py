"""Lists of splits: the gallery rows of every split, and perhaps its query rows.

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
from reid_dist.errors import InputError, StoreError
from reid_dist.stores.importers.hdf5_files import is_hdf5, read_nested_cells
from reid_dist.stores.importers.matlab import read_nested_version_5
from reid_dist.stores.importers.pair_lists import row_numbers, rows_named
from reid_dist.stores.importers.source import open_source
from reid_dist.stores.importers.text_files import file_of_labels, read_text
from reid_dist.stores.labels import LabelledSet

Int64 = NDArray[np.int64]

SplitSource: TypeAlias = str | os.PathLike[str] | Sequence[Any] | Mapping[str, Any]
"""A file of splits, or what a JSON file of them holds."""

ROWS_BY: Final = ("rows", "item_ids", "image_paths")
"""What a list may hold."""

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
    rows = row_numbers(whole, where) if by == "rows" else rows_named(whole, features, by, where)
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
        path = Path(where)
        cameras = (read_nested_cells if is_hdf5(path) else read_nested_version_5)(path, _PERMUTATIONS)
        return {
            (camera, pid): np.asarray(orders, dtype=np.float64)
            for camera, identities in enumerate(cameras, start=1)
            for pid, orders in enumerate(identities, start=1)
        }
    except (StoreError, OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{where}: {_PERMUTATIONS} is no cell array of cameras and identities ({error})") from None
