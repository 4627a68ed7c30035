"""Exact nearest neighbours of feature sets, as lists in a workspace.

`find_neighbours` compares each pair of blocks once for both of its sides; `find_query_neighbours` compares queries with
a gallery, and `find_top_lists` does so in the task graph of an evaluation, by cosine.  Blocks are tasks, and finished
ones are kept.
"""

from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.neighbours.lists import Listed, NeighbourLists, Table
from reid_dist.stages.neighbours.stage import Resources, find_neighbours, find_query_neighbours, find_top_lists

__all__ = [
    "Items",
    "Listed",
    "NeighbourLists",
    "Resources",
    "Table",
    "find_neighbours",
    "find_query_neighbours",
    "find_top_lists",
]
