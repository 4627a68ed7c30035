"""Graph propagation (gnn) and expanded cross neighbourhoods (ecn) on whole matrices, from their formulas.

The N = Q + G items, queries first, are ordered by (cosine distance, row), each item first in its own list.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from support import reference

from oracles.reranking import nearest_rows


def _lists(query, gallery):
    items = np.concatenate([np.asarray(query, dtype=np.float64), np.asarray(gallery, dtype=np.float64)])
    distances = reference.canonical_distances(items, items, "cosine")
    return distances, [nearest_rows(row, i, len(row)) for i, row in enumerate(distances)]


@dataclass(frozen=True)
class Propagated:
    """Distances (Q, G), and entries of A at first, before and after each round, among all items."""

    final: np.ndarray
    entries: list[int]


def propagated(query, gallery, *, k1=26, k2=7, lambda_value=0.3, rounds=2):
    """1 - [(1 - lambda) A_q A_g + lambda cos(q, g)]; with k2 = 1 there are no rounds.

    Rows of A have length 1 after a round, and are never scaled without one: the authors scale them in the round.
    """
    distances, lists = _lists(query, gallery)
    cosines = 1 - distances
    n = len(lists)
    matrix = np.zeros((n, n))
    for i, order in enumerate(lists):
        matrix[i, order[:k1]] = 1
    entries = [np.count_nonzero(matrix)]
    for _ in range(0 if k2 == 1 else rounds):
        matrix = matrix + matrix.T
        entries.append(np.count_nonzero(matrix))
        matrix = np.array([sum(cosines[i, j] ** 2 * matrix[j] for j in lists[i][:k2]) for i in range(n)])
        entries.append(np.count_nonzero(matrix))
        matrix = np.array([row / np.linalg.norm(row) if row.any() else row for row in matrix])
    product = matrix[: len(query)] @ matrix[len(query) :].T
    plain = cosines[: len(query), len(query) :]
    return Propagated(1 - ((1 - lambda_value) * product + lambda_value * plain), entries)


def cross_neighbourhoods(query, gallery, *, k=25, t=3, q=8, falls_back=False):
    """-[sum of R(a, g) over E(q) + sum of R(q, b) over E(g)] / (2 (t + t q)); places that are missing add nothing."""
    distances, lists = _lists(query, gallery)
    n, n_query = len(lists), len(query)
    positions = np.zeros((n, n), dtype=np.int64)
    for i, order in enumerate(lists):
        for position, j in enumerate(order):
            positions[i, j] = max(0, k - position)
    similarity = positions @ positions.T
    expanded = [[*order[1 : t + 1], *(b for a in order[1 : t + 1] for b in lists[a][1 : q + 1])] for order in lists]
    result = np.empty((n_query, n - n_query))
    for i in range(n_query):
        for j in range(n_query, n):
            total = sum(similarity[a, j] for a in expanded[i]) + sum(similarity[i, b] for b in expanded[j])
            apart = distances[i, j] if falls_back else 0.0
            result[i, j - n_query] = -total / (2 * (t + t * q)) if total else apart
    return result


def mean_distances(query, gallery, *, t=3, q=8):
    """[mean of d(a, g) over E(q) + mean of d(q, b) over E(g)] / 2 of cosine distances; missing places are left out."""
    distances, lists = _lists(query, gallery)
    n_query = len(query)
    expanded = [[*order[1 : t + 1], *(b for a in order[1 : t + 1] for b in lists[a][1 : q + 1])] for order in lists]
    return np.array(
        [
            [
                (distances[expanded[i], j].mean() + distances[i, expanded[j]].mean()) / 2
                for j in range(n_query, len(lists))
            ]
            for i in range(n_query)
        ]
    )
