"""Exact nearest neighbours of feature sets, as lists in a workspace.

`find_neighbours` compares each pair of blocks once for both of its sides; `find_query_neighbours` compares queries with
a gallery, and `find_top_lists` does so in the task graph of an evaluation, by cosine.  Blocks are tasks, and finished
ones are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.stages.neighbours.items import Items
    from reid_dist.stages.neighbours.neighbour_lists import Listed, NeighbourLists, table_of
    from reid_dist.stages.neighbours.neighbour_search import find_neighbours, find_query_neighbours, find_top_lists
    from reid_dist.stages.neighbours.resources import Resources

__all__ = [
    "Items",
    "Listed",
    "NeighbourLists",
    "Resources",
    "find_neighbours",
    "find_query_neighbours",
    "find_top_lists",
    "table_of",
]

_NAMES = {
    "items": ("Items",),
    "neighbour_lists": ("Listed", "NeighbourLists", "table_of"),
    "resources": ("Resources",),
    "neighbour_search": ("find_neighbours", "find_query_neighbours", "find_top_lists"),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
