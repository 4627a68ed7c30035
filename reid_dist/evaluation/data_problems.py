"""Likely errors of the data of a run, with labels as they were given: from its lists, and a sample of its gallery."""

from __future__ import annotations

from typing import Any

from reid_dist.core.model import RankedQueries
from reid_dist.evaluation.breakdowns import given_labels
from reid_dist.evaluation.camera_shift import camera_shifts
from reid_dist.reports import TopK
from reid_dist.reports.data_problems import GenuinePairs, find_data_problems
from reid_dist.reports.failures import CommonLabels
from reid_dist.stores import FeatureSet, LabelledSet
from reid_dist.stores.labelled import joint_labels


def data_problems(query: LabelledSet, gallery: LabelledSet, ranked: RankedQueries, topk: TopK) -> dict[str, Any]:
    """Entry of a report: that of `find_data_problems`, and ``cameras`` as `camera_shifts` gives them.

    Pairs have ``pids`` and, where there are cameras, ``camids`` of both rows.
    """
    sides = query, gallery
    pids = joint_labels("pid", sides)
    found = find_data_problems(topk, CommonLabels(*pids), GenuinePairs(ranked.indptr, ranked.distance))
    for pair in (*found["suspects"], *found["duplicates"]):
        rows = [pair[side] for side in ("query", "gallery")]
        pair["pids"] = [
            given_labels(each.pids[[row]], each.pid_names)[0] for each, row in zip(sides, rows, strict=True)
        ]
        if query.camids is not None and gallery.camids is not None:
            pair["camids"] = [
                given_labels(each.camids[[row]], each.camid_names)[0]
                for each, row in zip(sides, rows, strict=True)
                if each.camids is not None
            ]
    for each in found["identities"]:
        # Both have queries: the first one of each has the label as it was given.
        rows = [int((pids[0] == pid).argmax()) for pid in each["pids"]]
        each["pids"] = given_labels(query.pids[rows], query.pid_names)
    shifts = camera_shifts(gallery) if isinstance(gallery, FeatureSet) else []
    for shift in shifts:
        shift["camid"] = given_labels(shift["camid"], gallery.camid_names)[0]
    return {**found, "cameras": shifts}
