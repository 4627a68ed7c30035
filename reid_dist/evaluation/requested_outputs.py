"""Outputs of a job that options request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reid_dist.engine.outputs.group_ranks import GroupRanks
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.outputs.output import Output
from reid_dist.engine.outputs.partitions import PartitionMetrics
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.outputs.single_shot_curves import SingleShotCurves
from reid_dist.engine.reductions.single_shot import SingleShot
from reid_dist.engine.threshold_passes import verification_outputs
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.metrics.definitions import METRICS, SINGLE_SHOT

RANKS_OF_ITEMS = frozenset({Ranks, NearestRows})
"""Outputs that several protocols can share a pass for."""


def requested_outputs(checked: CheckedOptions, *, all_ranks: bool = False) -> tuple[Output[Any], ...]:
    """Outputs of an evaluation; with `all_ranks`, also ranks that no requested metric needs are computed."""
    topk, collapse, partitions = checked.values["topk"], checked.collapse, checked.partitions
    shot = _single_shot(checked)
    others: Sequence[Output[Any]] = (
        *([] if collapse is None else [GroupRanks(collapse.label, _first_alone(collapse.families))]),
        *([] if partitions is None else [PartitionMetrics(partitions, _partition_metrics(checked))]),
        *([] if shot is None else [SingleShotCurves(shot, checked.values["ties"])]),
        *verification_outputs(checked.metrics, checked.values["roc"]),
    )
    ranks_items = collapse is None or bool(collapse.families)
    n_nearest = None if all_ranks or others or checked.truth is not None else _n_nearest(checked)
    return (*([Ranks(n_nearest)] if ranks_items else []), *others, *([NearestRows(topk)] if topk else []))


def _n_nearest(checked: CheckedOptions) -> int | None:
    """Number of the nearest positives of every query whose ranks determine all that is requested; None for all."""
    # A comparison with the plain distance is one of average precision, too.
    if checked.protocol.cmc_family != "CMC" or checked.values["against_plain"]:
        return None
    needed = [metric.n_positives for metric in checked.metrics]
    return max((n for n in needed if n is not None), default=None) if None not in needed else None


def _first_alone(stems: Sequence[str]) -> bool:
    """Whether the metrics that rank groups need the rank of the first relevant group only."""
    return bool(stems) and all(family.first_alone for family in METRICS if family.stem in stems)


def _partition_metrics(checked: CheckedOptions) -> tuple[str, ...]:
    """Metrics of the tables over partitions of the gallery: the rank metrics of the report, with mAP and CMC@1."""
    return tuple(dict.fromkeys([*(metric.name for metric in checked.rank_metrics), "mAP", "CMC@1"]))


def _single_shot(checked: CheckedOptions) -> SingleShot | None:
    """Definition of the single-shot CMC; None unless a metric or the protocol's curve needs it."""
    draws, protocol = checked.values["single_shot_draws"], checked.protocol
    needed = [metric.parameter for metric in checked.metrics if metric.family.needs == SINGLE_SHOT]
    if not needed and protocol.cmc_family != "CMC_single_shot":
        if draws is not None:
            raise InputError(
                f"single_shot_draws are for the single-shot CMC, which neither protocol {protocol.name!r} nor a metric "
                "requests; use a protocol such as cuhk03, or request CMC_single_shot@1"
            )
        return None
    if protocol.is_listed:
        raise InputError(
            f"CMC_single_shot needs identities, and protocol {protocol.name!r} goes by lists; use a protocol by labels"
        )
    max_rank = max([checked.values["max_rank"], *needed])
    return SingleShot(max_rank) if draws is None else SingleShot(max_rank, draws, checked.values["seed"])
