"""Likely errors of the data of a run, with labels as they were given: from its lists, and a sample of its gallery.

A sample is a few runs of rows, as rows of an identity usually follow each other.  It shows how far the features of a
camera are shifted against those of other cameras.  For an identity seen by a camera and by others, the difference is
the mean of its unit rows in the camera less the mean of its means in the others.  The shift of the camera is the length
of the mean difference over identities; its square is the squared length less the variance of the differences divided by
their number, which is what chance adds.  The spread is the root of the mean squared distance of unit rows from the mean
of their identity and camera.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import UNKNOWN_CAMERA, RankedQueries
from reid_dist.core.segments import entry_owners, run_offsets, segment_sums
from reid_dist.reports import TopK
from reid_dist.reports.data_problems import GenuinePairs, find_data_problems
from reid_dist.reports.failure_kinds import NO_IDENTITY, CommonLabels
from reid_dist.stores import FeatureSet, LabelledSet
from reid_dist.stores.featureset import read_scattered
from reid_dist.stores.kept_rows import FeatureArray
from reid_dist.stores.labels import given_labels, joint_labels, labels_as_given

# Identities in a camera and in another one, at least, for its shift.
_LEAST_IDENTITIES: Final = 10


# Rows of a sample: a few runs, and their bytes as float64.
_RUNS, _RUN_ROWS, _MOST_BYTES = 16, 1024, 1 << 23


def data_problems(query: LabelledSet, gallery: LabelledSet, ranked: RankedQueries, topk: TopK) -> dict[str, Any]:
    """Entry of a report: that of `find_data_problems`, and ``cameras`` as `camera_shifts` gives them.

    Pairs have ``pids`` and, where there are any, ``camids`` and file names ``paths`` of both rows; pairs of identities
    those of the first query of each, ``queries``.
    """
    sides = query, gallery
    pids = joint_labels("pid", sides)
    found = find_data_problems(topk, CommonLabels(*pids), GenuinePairs(ranked.indptr, ranked.row, ranked.distance))
    for pair in (*found["suspects"], *found["duplicates"]):
        pair |= labels_as_given(sides, (pair["query"], pair["gallery"]))
    for each in found["identities"]:
        # Both have queries: the first one of each has the label as it was given.
        rows = [int((pids[0] == pid).argmax()) for pid in each["pids"]]
        each |= {**labels_as_given((query, query), rows), "queries": rows}
    shifts = camera_shifts(gallery) if isinstance(gallery, FeatureSet) else []
    for shift in shifts:
        shift["camid"] = given_labels(shift["camid"], gallery.camid_names)[0]
    return {**found, "cameras": shifts}


def camera_shifts(features: FeatureSet) -> list[dict[str, Any]]:
    """Shift of every camera with enough identities, as a share of the spread, the largest first.

    Returns ``camid``, ``n_identities`` and ``shift``; nothing without cameras.  At most 16 runs of 1,024 rows are read.
    """
    if features.camids is None:
        return []
    rows = sampled_rows(features.n_rows, features.dim)
    pids, camids = features.pids[rows], features.camids[rows]
    read = read_sampled(features, rows)
    known = np.flatnonzero(~np.isin(pids, NO_IDENTITY) & (camids != UNKNOWN_CAMERA))
    # A single row of an identity shows neither.
    own, count = np.unique(pids[known], return_counts=True)
    known = known[np.isin(pids[known], own[count > 1])]
    order = known[np.lexsort((camids[known], pids[known]))]
    return _shifts(unit_vectors(read[order]), pids[order], camids[order]) if len(order) else []


def _shifts(units: NDArray[np.float64], pids: NDArray[np.int64], camids: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Shifts of cameras from rows that are sorted by identity, then by camera."""
    groups = run_offsets(pids, camids)
    sizes = np.diff(groups)
    means = segment_sums(units, groups) / sizes[:, np.newaxis]
    squares = float(np.einsum("ij,ij->", units, units) - sizes @ np.einsum("ij,ij->i", means, means))
    n_free = len(units) - len(means)
    # A difference of sums of squares of unit rows.
    if n_free <= 0 or squares <= 1e-12 * len(units):
        return []
    spread = np.sqrt(squares / n_free)
    pids, camids = pids[groups[:-1]], camids[groups[:-1]]
    identities = run_offsets(pids)
    n_cameras, of_identity = np.diff(identities), entry_owners(identities)
    totals = segment_sums(means, identities)
    several = n_cameras[of_identity] > 1
    found = []
    for camera in np.unique(camids).tolist():
        chosen = np.flatnonzero(several & (camids == camera))
        n = len(chosen)
        if n < _LEAST_IDENTITIES:
            continue
        own, identity = means[chosen], of_identity[chosen]
        differences = own - (totals[identity] - own) / (n_cameras[identity] - 1)[:, np.newaxis]
        mean = differences.mean(axis=0)
        by_chance = ((differences - mean) ** 2).sum() / (n - 1) / n
        shift = np.sqrt(max(0.0, float((mean**2).sum() - by_chance)))
        found.append({"camid": np.array([camera]), "n_identities": n, "shift": float(shift / spread)})
    return sorted(found, key=lambda each: (-each["shift"], int(each["camid"][0])))


# ---- samples ---------------------------------------------------------------------------------------------------------


def sampled_rows(n_rows: int, dim: int) -> NDArray[np.int64]:
    """Rows of a few runs spread over the set, or all rows; ascending."""
    run_rows = max(1, min(_RUN_ROWS, _MOST_BYTES // (8 * dim * _RUNS)))
    if n_rows <= _RUNS * run_rows:
        return np.arange(n_rows)
    starts = np.linspace(0, n_rows - run_rows, _RUNS).astype(np.int64)
    return np.unique((starts[:, np.newaxis] + np.arange(run_rows)).ravel())


def read_sampled(features: FeatureSet, rows: NDArray[np.int64]) -> FeatureArray:
    """Read rows of a sample, (n, dim); a chunk that holds several runs is read once."""
    return np.concatenate([*read_scattered(features, rows), np.empty((0, features.dim), features.dtype)])


def unit_vectors(rows: FeatureArray) -> NDArray[np.float64]:
    """Rows of length 1; rows of zeros as they are."""
    units: NDArray[np.float64] = rows.astype(np.float64)
    length = np.sqrt(np.einsum("ij,ij->i", units, units))
    units /= np.where(length > 0, length, 1.0)[:, np.newaxis]
    return units
