"""Reductions of tiles to small partial results that merge."""

from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns, pair_rows
from reid_dist.engine.reductions.costs import Need, Precision
from reid_dist.engine.reductions.counts import CountNearer
from reid_dist.engine.reductions.entering import ENTERING_BYTES
from reid_dist.engine.reductions.groups import CountGroups, GroupCounts, combine_groups, group_bytes
from reid_dist.engine.reductions.identities import Identities
from reid_dist.engine.reductions.impostors import (
    BracketCounts,
    CollectImpostors,
    CountImpostors,
    Visibility,
    combine_brackets,
    join_brackets,
)
from reid_dist.engine.reductions.key_counts import FallingScale, KeyCounts, add_key_counts, distance_of, ordered_keys
from reid_dist.engine.reductions.nearest import KeepNearest
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.screens import screen_pairs
from reid_dist.engine.reductions.single_shot import ListBefore, ListedItems, SingleShot, combine_lists
from reid_dist.engine.reductions.surroundings import Seed, Surroundings, merge_surroundings
from reid_dist.engine.reductions.targets import (
    append_unranked,
    group_targets,
    make_targets,
    make_thresholds,
    rank,
    rank_groups,
    relevant_places,
)
from reid_dist.engine.reductions.tiles import BlockPair, TileView

__all__ = [
    "ENTERING_BYTES",
    "BlockPair",
    "BracketCounts",
    "CollectImpostors",
    "CountGroups",
    "CountImpostors",
    "CountNearer",
    "FallingScale",
    "FeatureBlock",
    "GroupCounts",
    "HiddenColumns",
    "Identities",
    "KeepNearest",
    "KeyCounts",
    "ListBefore",
    "ListedItems",
    "Need",
    "Precision",
    "Reduction",
    "Seed",
    "SingleShot",
    "Surroundings",
    "TileView",
    "Visibility",
    "add_key_counts",
    "append_unranked",
    "combine_brackets",
    "combine_groups",
    "combine_lists",
    "distance_of",
    "group_bytes",
    "group_targets",
    "join_brackets",
    "make_targets",
    "make_thresholds",
    "merge_surroundings",
    "ordered_keys",
    "pair_rows",
    "rank",
    "rank_groups",
    "relevant_places",
    "screen_pairs",
]
