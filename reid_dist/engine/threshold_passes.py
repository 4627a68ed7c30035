"""Passes over all pairs until every threshold of verification is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from reid_dist.engine.graph import run
from reid_dist.engine.plan import Besides
from reid_dist.engine.task_graph import Progress
from reid_dist.engine.tasks import BlockAnswer, Job, set_labels
from reid_dist.engine.verification import (
    Crossing,
    Level,
    ThresholdSearch,
    Verification,
    make_verification,
    needs_pairs,
    needs_probes,
    pairs_of,
    refuse_without_non_mated,
    wanted_levels,
)
from reid_dist.metrics.definitions import Metric
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.stores import Workspace

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["held_by_verification", "refuse_early", "verify"]

# Bytes per query that the nearest kept row takes: candidates, and lists that wait to be merged.
_PROBE_BYTES = 1200


def held_by_verification(metrics: Sequence[Metric], roc: bool) -> Besides:
    """What a job holds for verification and open-set metrics, and for the curve."""
    return Besides(_PROBE_BYTES if needs_probes(metrics) else 0, pairs=needs_pairs(metrics, roc))


def refuse_early(job: Job, metrics: Sequence[Metric]) -> None:
    """Refuse what labels alone say cannot be computed, before any work.

    Raises
    ------
    InputError
        For open-set metrics where every query has its identity in the gallery.
    """
    if needs_probes(metrics):
        refuse_without_non_mated(set_labels(job, job.query).pids, set_labels(job, job.gallery).pids)


def verify(
    job: Job,
    answer: BlockAnswer,
    metrics: Sequence[Metric],
    roc: bool,
    client: Client | None,
    progress: Progress | None,
    truth: GroundTruth | None,
    workspace: Workspace | None = None,
) -> Verification | None:
    """Compute verification and open-set metrics, with as many further passes as that takes (mostly one).

    Parameters
    ----------
    job, answer
        The main sweep, and what came out.
    metrics
        What was asked for; metrics of other kinds are passed over.
    roc
        Whether the curve was.
    client, progress, truth, workspace
        As in `reid_dist.engine.graph.run`.

    Returns
    -------
    None where nothing of the kind was asked for, or no query is valid.

    Raises
    ------
    InputError
        If there are no impostors, or no query without a mate; the message says what would work.
    RunFailedError
        As `reid_dist.engine.graph.run`.
    """
    if not (needs_pairs(metrics, roc) or needs_probes(metrics)) or answer.ranked is None or not len(answer.ranked.rank):
        return None
    found: dict[Level, Crossing] = {}
    if answer.impostors is not None:
        pairs = pairs_of(answer.ranked)
        levels = wanted_levels(metrics, roc, pairs)
        search = ThresholdSearch(levels, pairs.genuine, pairs.n_impostor, answer.impostors, job.distance.squared)
        further = replace(job, ranks=False, topk=0, parts=None, probes=False, impostors=False, single_shot=None)
        while edges := search.edges:
            counted = run(replace(further, brackets=edges), client, progress, truth, workspace).bracketed
            if counted is None:
                raise AssertionError("asked for, hence counted")
            search.take(counted)
        found = search.found
    return make_verification(metrics, roc, answer, found)
