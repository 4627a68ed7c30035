"""Outputs of a job, one class each: ranks, lists, curves and counts that are computed from one pass over the tiles."""

from reid_dist.engine.outputs.group_ranks import GroupRanks, group_numbers
from reid_dist.engine.outputs.impostors import ImpostorBrackets, held_by_queries, visibility_of
from reid_dist.engine.outputs.nearest_rows import NearestNegatives, NearestRows, Probes
from reid_dist.engine.outputs.output import JobLabels, JobSizes, Merge, Output, QueryBlock, Results
from reid_dist.engine.outputs.partitions import PartitionMetrics, Partitions, PartValues
from reid_dist.engine.outputs.protocol_ranks import EVERY_ROW, ProtocolCurves, ProtocolRanks, single_shot_places
from reid_dist.engine.outputs.ranks import Positives, Ranks
from reid_dist.engine.outputs.single_shot_curves import SingleShotCurves

__all__ = [
    "EVERY_ROW",
    "GroupRanks",
    "ImpostorBrackets",
    "JobLabels",
    "JobSizes",
    "Merge",
    "NearestNegatives",
    "NearestRows",
    "Output",
    "PartValues",
    "PartitionMetrics",
    "Partitions",
    "Positives",
    "Probes",
    "ProtocolCurves",
    "ProtocolRanks",
    "QueryBlock",
    "Ranks",
    "Results",
    "SingleShotCurves",
    "group_numbers",
    "held_by_queries",
    "single_shot_places",
    "visibility_of",
]
