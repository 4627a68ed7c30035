"""From ranks to the report: metrics, curves, counts, and words for what could not be evaluated."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.environment import describe_environment
from reid_dist.errors import InputError
from reid_dist.graph import Job, gallery_index, set_labels
from reid_dist.metrics import METRICS, Metric, cmc_curve, exact_mean, first_rank, last_rank, mean_precision_recall
from reid_dist.model import Neighbours, RankedQueries, RowRange
from reid_dist.protocols import JUNK_PID, REASONS, flag_listed, judge
from reid_dist.reports import Report, TopK
from reid_dist.stores import FeatureSet

__all__ = ["make_report"]

_ALWAYS = {"AP": "mAP", "AP_trapezoid": "mAP_trapezoid", "INP": "mINP"}


def make_report(
    query: FeatureSet,
    gallery: FeatureSet,
    job: Job,
    ranked: RankedQueries,
    neighbours: Neighbours | None,
    asked: list[Metric],
    max_rank: int,
) -> Report:
    """Turn ranks into a report.

    Parameters
    ----------
    query, gallery
        The sets as they were given.
    job
        What was computed.
    ranked, neighbours
        What came out; neighbours for reports with top-k lists.
    asked
        The metrics.
    max_rank
        Length of the CMC curve.

    Raises
    ------
    InputError
        If no query is valid; says why.
    """
    protocol = job.protocol
    if protocol is None:
        raise AssertionError("an evaluation has a protocol")
    valid = ranked.n_relevant > 0
    reasons = np.array(REASONS)[ranked.reason]
    invalid = dict(Counter(reasons[~valid].tolist()).most_common())
    if not valid.any():
        raise InputError(_all_invalid(query, gallery, invalid))
    values = {metric.name: metric.values(ranked) for metric in asked}
    per_query: dict[str, NDArray[Any]] = {
        **{name: Metric(METRICS.get(metric)).values(ranked) for name, metric in _ALWAYS.items()},
        "first_rank": np.where(valid, first_rank(ranked), np.nan),
        "last_rank": np.where(valid, last_rank(ranked), np.nan),
        "n_relevant": ranked.n_relevant,
        "n_kept": ranked.n_kept,
        "reason": reasons,
        "pid": query.pids,
        **({} if query.camids is None else {"camid": query.camids}),
        **{metric.per_query_name: values[metric.name] for metric in asked},
    }
    return Report(
        metrics={name: exact_mean(value) for name, value in values.items()},
        curves={protocol.cmc_family: cmc_curve(ranked, max_rank), "precision_recall": mean_precision_recall(ranked)},
        counts={
            "n_query": query.n_rows,
            "n_valid": int(valid.sum()),
            "n_gallery": gallery.n_rows,
            "n_junk": int(ranked.n_junk.sum()),
            # Counted here: the sorted index of the gallery is the workers' and need not be made once more.
            "n_junk_rows": int((gallery.pids == JUNK_PID).sum()),
            "n_relevant": int(ranked.n_relevant.sum()),
            "n_invalid_by_reason": invalid,
        },
        per_query=per_query,
        protocol=protocol.describe(),
        distance=job.distance.describe(),
        inputs={"query": query.describe(), "gallery": gallery.describe()},
        ties={
            "rule": "distance, then gallery row",
            "n_tied_positives": int((ranked.tied > 0).sum()),
        },
        environment=describe_environment(),
        topk=_topk(job, neighbours),
        definitions={metric.name: metric.family.summary for metric in asked},
        notes=[*query.notes, *(note for note in gallery.notes if note not in query.notes)],
    )


def _topk(job: Job, neighbours: Neighbours | None) -> TopK | None:
    if neighbours is None or job.protocol is None:
        return None
    index = gallery_index(job)
    labels = set_labels(job, job.query).take(RowRange(0, job.query.n_rows))
    relevant, junk = flag_listed(judge(job.protocol, labels, index), index, neighbours.index)
    return TopK(index=neighbours.index, distance=neighbours.distance, junk=junk, relevant=relevant)


def _all_invalid(query: FeatureSet, gallery: FeatureSet, invalid: dict[str, int]) -> str:
    """Say why no query can be evaluated, and what to look at."""
    counted = ", ".join(f"{count} {reason}" for reason, count in invalid.items())
    shared = len(np.intersect1d(query.pids, gallery.pids))
    pids = (
        f"query pids span {query.pids.min()}..{query.pids.max()} ({len(np.unique(query.pids))} identities), gallery "
        f"pids {gallery.pids.min()}..{gallery.pids.max()} ({len(np.unique(gallery.pids))}), {shared} in common"
    )
    hints = []
    if shared == 0:
        hints.append("check that both sets are of one split and number their identities alike")
    if query.camids is not None and gallery.camids is not None and invalid.get("only_same_camera_positives"):
        cameras = sorted({*np.unique(query.camids).tolist(), *np.unique(gallery.camids).tolist()})
        hints.append(f"cameras found: {cameras[:12]}; with one camera use the protocol 'no_cameras'")
    if invalid.get("all_junk"):
        hints.append("pid -1 marks junk; are -1 labels meant as such?")
    return f"no query has a relevant gallery item ({counted}): {pids}; {'; '.join(hints) or 'check the labels'}"
