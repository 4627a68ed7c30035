"""Exact nearest neighbours of feature sets, as lists in a workspace.

`find_neighbours` compares each pair of blocks once for both of its sides; `find_query_neighbours` compares queries with
a gallery.  Blocks are tasks, and finished ones are kept.
"""

from reid_dist.stages.neighbours.directed import QueryLists
from reid_dist.stages.neighbours.items import Items
from reid_dist.stages.neighbours.lists import BlockedLists
from reid_dist.stages.neighbours.search import Resources, find_neighbours, find_query_neighbours
from reid_dist.stages.neighbours.symmetric import NeighbourLists, Table

__all__ = [
    "BlockedLists",
    "Items",
    "NeighbourLists",
    "QueryLists",
    "Resources",
    "Table",
    "find_neighbours",
    "find_query_neighbours",
]
