"""Exact nearest neighbours of feature sets, as lists in a workspace.

`find_neighbours` compares each pair of blocks once for both of its sides; `find_query_neighbours` compares queries with
a gallery, and `find_top_lists` does so in the task graph of an evaluation, by cosine.  Blocks are tasks, and finished
ones are kept.
"""

from reid_dist.stages.neighbours.directed import QueryLists
from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.neighbours.lists import BlockedLists
from reid_dist.stages.neighbours.search import Resources, find_neighbours, find_query_neighbours
from reid_dist.stages.neighbours.symmetric import NeighbourLists, Table
from reid_dist.stages.neighbours.top_lists import TopLists, find_top_lists

__all__ = [
    "BlockedLists",
    "Items",
    "NeighbourLists",
    "QueryLists",
    "Resources",
    "Table",
    "TopLists",
    "find_neighbours",
    "find_query_neighbours",
    "find_top_lists",
]
