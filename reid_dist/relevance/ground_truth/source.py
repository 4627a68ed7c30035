"""Reading a ground truth, whatever its form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist.errors import InputError
from reid_dist.relevance.ground_truth.entries import Entry, collect
from reid_dist.relevance.ground_truth.files import entries_of_directory, load_json
from reid_dist.relevance.ground_truth.lists import GroundTruth
from reid_dist.relevance.ground_truth.names import Faults, ItemIds, ItemNames, in_short


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
        path = Path(source)
        faults = Faults(f"ground truth {path}")
        if path.is_dir():
            entries = entries_of_directory(path, n_query, query_item_ids, gallery_item_ids, faults)
            return collect(entries, n_gallery, gallery_item_ids, faults)
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
    return collect(entries, n_gallery, None, faults)


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
        if isinstance(key, bool | np.bool_) or not isinstance(key, str | int | np.integer):
            faults.add(f"{in_short(key)} is no item id; name queries by whole numbers or text")
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
