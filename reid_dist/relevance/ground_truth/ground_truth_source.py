"""Reading a ground truth, whatever its form: the entries of queries, their checks, and how they are joined."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.numeric import is_whole
from reid_dist.core.parameters import shown
from reid_dist.core.registry import nearest_hint
from reid_dist.errors import InputError
from reid_dist.relevance.ground_truth.ground_truth_files import entries_of_directory, load_json
from reid_dist.relevance.ground_truth.ground_truth_lists import LISTS, GroundTruth, RowLists
from reid_dist.relevance.ground_truth.ground_truth_names import Entry, Faults, ItemIds, ItemNames

Int64 = NDArray[np.int64]

# An Oxford entry with ``ok`` alone has no ``good`` rows and the other way round; all other lists are required.
_EITHER: Final = {"oxford": {"good", "ok"}, "revisitop": set[str]()}
_WANTED: Final = "'good' or 'ok' and 'junk', or 'easy', 'hard' and 'junk'"
_IGNORED: Final = {"bbx"}


def read_ground_truth(
    source: Sequence[Mapping[str, Any]] | Mapping[Any, Mapping[str, Any]] | str | os.PathLike[str],
    *,
    n_query: int,
    n_gallery: int,
    query_item_ids: ItemIds | None = None,
    gallery_item_ids: ItemIds | None = None,
) -> GroundTruth:
    """Read and check the lists of every query.

    An entry is ``{"ok": rows, "junk": rows}``, with ``"good"`` beside or instead of ``"ok"``, or
    ``{"easy": rows, "hard": rows, "junk": rows}``; rows are 0-based gallery rows, and ``"bbx"`` is ignored.  The source
    has one entry per query row, or maps query item ids to entries, or is the path of a JSON file with either, or of a
    directory with ``NAME_query.txt``, ``NAME_good.txt``, ``NAME_ok.txt`` and ``NAME_junk.txt`` for every query.  Query
    rows are in the order of the ``_query.txt`` file names (by code point); a query image in its own lists counts.

    Notes
    -----
    A name is an item id exactly, or, where no item has it, the one item that it agrees with when directory and
    ``.jpg`` are taken off both.
    """
    if isinstance(source, str | os.PathLike):
        refuse_unusable_path(source)
        path = Path(source)
        faults = Faults(f"ground truth {path}")
        if path.is_dir():
            entries = entries_of_directory(path, n_query, query_item_ids, gallery_item_ids, faults)
            return _collect(entries, n_gallery, gallery_item_ids, faults)
        content = load_json(path)
    else:
        content, faults = source, Faults("ground truth")
    if isinstance(content, Mapping):
        entries = _from_mapping(content, n_query, query_item_ids, faults)
    elif isinstance(content, Sequence) and not isinstance(content, str | bytes):
        if len(content) != n_query:
            faults.add(f"holds {len(content)} entries for {n_query} queries; give one entry per query row")
        entries = [Entry(f"query {row}", lists) for row, lists in enumerate(content[:n_query])]
    else:
        raise InputError(
            f"{faults.origin}: must be one entry per query row, a mapping from query item id, or the path of a JSON "
            f"file or of a directory, found {type(content).__name__}"
        )
    return _collect(entries, n_gallery, None, faults)


def _from_mapping(
    content: Mapping[Any, Any], n_query: int, query_item_ids: ItemIds | None, faults: Faults
) -> list[Entry]:
    """Put entries by query item id into the order of the query rows."""
    if query_item_ids is None:
        raise InputError(
            f"{faults.origin}: maps query item ids, and the query set has none; give one entry per query row in a "
            "list, or a query set with item ids"
        )
    names = ItemNames(query_item_ids, "query")
    if "gnd" in content and not names.find("gnd"):
        raise InputError(f"{faults.origin}: is a whole revisitop file; give the list under its name 'gnd'")
    found: dict[int, object] = {}
    for key, lists in content.items():
        if not isinstance(key, str) and not is_whole(key):
            faults.add(f"{shown(key)} is no item id; name queries by whole numbers or text")
            continue
        rows = names.find(str(key))
        if len(rows) != 1:
            faults.add_name(f"entry {str(key)!r}", names, str(key))
        elif rows[0] in found:
            faults.add(f"entry {str(key)!r} is a second one for query {rows[0]} ({names.texts[rows[0]]!r}); keep one")
        else:
            found[rows[0]] = lists
    entries = []
    for row in range(n_query):
        where = f"query {row} (item id {names.texts[row]!r})"
        if row in found:
            entries.append(Entry(where, found[row]))
        else:
            faults.add(f"{where} has no entry; give its lists, empty ones if none is relevant")
    return entries


def _collect(entries: Sequence[Entry], n_gallery: int, gallery_item_ids: ItemIds | None, faults: Faults) -> GroundTruth:
    """Check all entries and join them."""
    kind = model = ""
    collected: list[dict[str, Int64]] = []
    for entry in entries:
        try:
            given = _named_lists(entry.lists)
        except InputError as fault:
            faults.add(f"{entry.where}: {fault}")
            continue
        own_kind = _kind_of(given)
        if not kind:
            kind, model = own_kind, entry.where
        if own_kind != kind:
            faults.add(f"{entry.where}: is of the kind {own_kind}, {model} is of the kind {kind}; give all in one form")
            continue
        lists: dict[str, Int64] = {}
        for name in LISTS[kind]:
            try:
                lists[name] = _rows(given.get(name, ()), n_gallery)
            except InputError as fault:
                faults.add(f"{entry.where}, list {name!r}: {fault}")
        together = np.concatenate([np.empty(0, np.int64), *lists.values()])
        if len(np.unique(together)) < len(together):
            for clash in _clashes(lists, gallery_item_ids):
                faults.add(f"{entry.where}{clash}")
        collected.append({name: np.sort(rows) for name, rows in lists.items()})
    faults.refuse()
    if not kind:
        raise InputError(f"{faults.origin}: there is no query; give at least one")
    return GroundTruth(
        n_gallery, {name: RowLists.of_queries([lists[name] for lists in collected]) for name in LISTS[kind]}
    )


def _kind_of(lists: Iterable[str]) -> str:
    return "revisitop" if {"easy", "hard"} & set(lists) else "oxford"


def _named_lists(entry: object) -> dict[str, object]:
    """Return the lists of an entry, if they are those of one kind."""
    if not isinstance(entry, Mapping):
        raise InputError(f"must map the names of lists to gallery rows, found {type(entry).__name__}")
    lists = {name: rows for name, rows in entry.items() if name not in _IGNORED}
    known = set().union(*LISTS.values())
    unknown = [name for name in lists if name not in known]
    if unknown:
        hint = nearest_hint(str(unknown[0]), sorted(known))
        raise InputError(f"unknown list {unknown[0]!r};{hint} known: {_WANTED}")
    kind = _kind_of(lists)
    foreign = [name for name in lists if name not in LISTS[kind]]
    if foreign:
        raise InputError(f"has lists of both kinds, {', '.join(map(repr, lists))}; give {_WANTED}")
    missing = [name for name in LISTS[kind] if name not in lists]
    if set(missing) < _EITHER[kind]:
        missing = []
    if missing:
        raise InputError(f"lacks the list {missing[-1]!r}; give {_WANTED}, [] where there is nothing")
    return lists


def _rows(given: object, n_gallery: int) -> Int64:
    """Return one list as it came, if it holds whole numbers that are gallery rows."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        given = given.tolist()
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        raise InputError(f"must be a list of gallery rows, found {shown(given)}")
    for value in given:
        # In Python and in NumPy, True would pass for row 1.
        if not is_whole(value):
            raise InputError(f"{shown(value)} is no gallery row; rows are whole numbers from 0")
        if not 0 <= value < n_gallery:
            raise InputError(
                f"row {value} is outside the gallery of {n_gallery} rows; rows count from 0 to {n_gallery - 1}"
            )
    return np.array(given, np.int64)


def _clashes(lists: Mapping[str, Int64], gallery_item_ids: ItemIds | None) -> Iterator[str]:
    """Yield problems with rows that occur twice in a list, or in two lists."""

    def called(row: int) -> str:
        return f"row {row}" if gallery_item_ids is None else f"row {row} ({str(gallery_item_ids[row])!r})"

    for name, rows in lists.items():
        values, counts = np.unique(rows, return_counts=True)
        if len(values) < len(rows):
            first = called(int(values[counts > 1][0]))
            yield f", list {name!r}: {first} occurs in it more than once; list every row once"
    for (name, rows), (other, others) in combinations(lists.items(), 2):
        both = np.intersect1d(rows, others)
        if len(both):
            yield f", lists {name!r} and {other!r}: {called(int(both[0]))} occurs in both; keep it in one of them"
