"""Reductions of tiles to something small that merges."""

from reid_dist.reductions.base import Accumulator, FeatureBlock, HiddenColumns, Reduction, Tile, pair_rows
from reid_dist.reductions.counts import CountNearer, GroupedCounts, PartialCounts, SparseCounts, add_counts
from reid_dist.reductions.nearest import KeepNearest
from reid_dist.reductions.targets import make_targets, rank, relevant_places

__all__ = [
    "Accumulator",
    "CountNearer",
    "FeatureBlock",
    "GroupedCounts",
    "HiddenColumns",
    "KeepNearest",
    "PartialCounts",
    "Reduction",
    "SparseCounts",
    "Tile",
    "add_counts",
    "make_targets",
    "pair_rows",
    "rank",
    "relevant_places",
]
