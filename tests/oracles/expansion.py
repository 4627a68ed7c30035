"""Query expansion and database-side augmentation, row by row.

x^ is a row divided by its length (a zero row stays zero), s the cosine of two rows, 0 with a zero row.  "Nearest" is by
(canonical cosine distance, row).  The weight of a neighbour is max(s, 0) ** alpha, and 1 for every neighbour when
alpha = 0.  Functions return float64 features of queries and gallery, before they are cast to anything.

Readings, where the words leave a choice:

* k = 0 returns the features as they are, neither normalised nor anything else; so does k = 1 with `include_self`, where
  the query is all that is averaged.
* `include_self` makes the query one of the k: x^_q and its k - 1 nearest gallery rows, without the gallery row that is
  the query, whether or not that row has the query's features.  A query that is no gallery row (-1) loses none.
* In `dba` an item is not its own neighbour: x^_g and its k nearest others, or with `include_self` its k - 1 nearest
  others.
* Where there are fewer rows than requested, all of them are taken, and a mean is over what was taken.
* `fastreid` does not normalise what it returns, nor what the next round averages; `unit_rows` normalises in the end.
"""

from __future__ import annotations

import numpy as np
from support import reference


def unit_rows(features):
    """Rows divided by their lengths, float64; a zero row stays zero."""
    features = np.asarray(features, dtype=np.float64)
    result = np.zeros_like(features)
    for i, row in enumerate(features):
        length = np.sqrt((row * row).sum())
        if length > 0:
            result[i] = row / length
    return result


def similarity(x, y):
    """xy / sqrt(xx * yy), 0 when a row is zero."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    xx, yy = (x * x).sum(), (y * y).sum()
    return 0.0 if xx == 0 or yy == 0 else float((x * y).sum() / np.sqrt(xx * yy))


def weight(s, alpha):
    """max(s, 0) ** alpha, and 1 when alpha = 0."""
    return 1.0 if alpha == 0 else max(s, 0.0) ** alpha


def nearest(features, among, k, left_out=None):
    """The k nearest rows of `among` for each row of `features`; `left_out` has one row of `among` (or -1) for each."""
    distances = reference.canonical_distances(features, among, "cosine")
    result = []
    for i, row in enumerate(distances):
        order = sorted(range(len(row)), key=lambda j, row=row: (row[j], j))
        result.append([j for j in order if left_out is None or j != left_out[i]][:k])
    return result


def _expanded(features, among, k, alpha, left_out):
    """x^ with weight 1 and its k nearest with their weights, normalised."""
    units, unit_among = unit_rows(features), unit_rows(among)
    result = []
    for i, neighbours in enumerate(nearest(features, among, k, left_out)):
        total = units[i].copy()
        for j in neighbours:
            total += weight(similarity(features[i], among[j]), alpha) * unit_among[j]
        result.append(total)
    return unit_rows(np.array(result).reshape(units.shape))


def _as_they_are(query, gallery):
    return np.array(query, dtype=np.float64), np.array(gallery, dtype=np.float64)


def alpha_qe(query, gallery, k, alpha, include_self=False, own_rows=None):
    """x^_q with weight 1 and its k nearest gallery rows with weight max(s, 0) ** alpha.

    `own_rows` has the gallery row that each query is, -1 for none; only `include_self` asks.
    """
    query, gallery = _as_they_are(query, gallery)
    others = k - include_self
    if others <= 0:
        return query, gallery
    return _expanded(query, gallery, others, alpha, own_rows if include_self else None), gallery


def aqe(query, gallery, k, include_self=False, own_rows=None):
    """The mean of x^_q and its k nearest gallery rows: all weights are 1, and what a mean divides by has no effect."""
    return alpha_qe(query, gallery, k, 0, include_self, own_rows)


def dba(query, gallery, k, alpha=0, include_self=False):
    """The same for every gallery row over the gallery."""
    query, gallery = _as_they_are(query, gallery)
    others = k - include_self
    if others <= 0:
        return query, gallery
    return query, _expanded(gallery, gallery, others, alpha, range(len(gallery)))


def fastreid(query, gallery, k, alpha, times=1):
    """All rows over queries and gallery together, `times` over.

    The row itself is the first of its k, weights are max(s, 0) ** alpha, what is averaged is not normalised, and the
    sum is divided by the number of rows in it.
    """
    query, gallery = _as_they_are(query, gallery)
    items = np.concatenate([query, gallery])
    for _ in range(times if k else 0):
        others = nearest(items, items, k - 1, range(len(items)))
        expanded = []
        for i, neighbours in enumerate(others):
            rows = [weight(similarity(items[i], items[j]), alpha) * items[j] for j in (i, *neighbours)]
            expanded.append(np.sum(rows, axis=0) / len(rows))
        items = np.array(expanded)
    return items[: len(query)], items[len(query) :]


def camera_norm(query, gallery, cameras, ridge=10.0, per_camera=True, whiten=True, least_rows=100):
    """unit(P_c (x^ - mean_c)), P_c the inverse of X'X + n ridge I over the n rows x^ of a camera in the gallery.

    `cameras` are those of queries and of gallery rows; without `per_camera`, and for a camera with fewer than
    `least_rows` gallery rows, all gallery rows take the place of the camera's.
    """
    units = unit_rows(gallery)
    found = []
    for side, own in zip((query, gallery), cameras, strict=True):
        new = []
        for row, camera in zip(unit_rows(side), own, strict=True):
            members = units[np.asarray(cameras[1]) == camera]
            if not per_camera or len(members) < least_rows:
                members = units
            mean = members.mean(axis=0)
            among = members.T @ members + len(members) * ridge * np.eye(len(mean))
            new.append(np.linalg.solve(among, row - mean) if whiten else row - mean)
        found.append(unit_rows(np.array(new).reshape(np.shape(side))))
    return tuple(found)


def whiten(query, gallery, dim, learned=None):
    """unit(L^-1/2 V' (x^ - mean)) with the `dim` largest eigenvalues L of the covariance of x^, and their vectors V."""
    units = unit_rows(gallery if learned is None else learned)
    mean = units.mean(axis=0)
    variance, axes = np.linalg.eigh((units - mean).T @ (units - mean) / len(units))
    projection = axes[:, ::-1][:, :dim] / np.sqrt(variance[::-1][:dim])
    return tuple(unit_rows((unit_rows(side) - mean) @ projection) for side in (query, gallery))


def gcr(query, gallery, cameras, k1=15, k2=3, beta1=0.2, beta2=0.2, scale=0.3, rounds=3, symmetric=False):
    """Rounds of X <- unit(scale L2 X + (1 - scale) L1 X) over all items, with dense matrices.

    S_ij = exp(s_ij / beta) at the k nearest j of i, i itself first, else 0; L = S divided by the roots of the sums of
    its rows and columns.  L1 of k1 and beta1; L2 of k2 and beta2, where i lists no other item of its own camera.
    """
    items = unit_rows(np.concatenate([query, gallery]))
    cameras = np.concatenate(cameras)
    n = len(items)
    for _ in range(rounds):
        distances = reference.canonical_distances(items, items, "cosine")
        new = np.zeros(items.shape)
        for k, beta, share, across in ((k1, beta1, 1 - scale, False), (k2, beta2, scale, True)):
            weights = np.zeros((n, n))
            for i in range(n):
                others = [j for j in range(n) if j != i and not (across and cameras[i] == cameras[j])]
                for j in [i, *sorted(others, key=lambda j, i=i: (distances[i, j], j))[: k - 1]]:
                    weights[i, j] = np.exp(similarity(items[i], items[j]) / beta)
            if symmetric:
                weights = (weights + weights.T) / 2
            rows, columns = weights.sum(axis=1), weights.sum(axis=0)
            new += share * (weights / np.sqrt(np.outer(rows, columns))) @ items
        # Features are kept as float32 between rounds.
        items = unit_rows(new).astype(np.float32).astype(np.float64)
    return items[: len(query)], items[len(query) :]
