"""The report of each part, evaluated as a set of its own.

A group of queries is a smaller query set, one camera of the gallery a smaller gallery, and a step of the distractor
curve a gallery in which some items have not yet come.
"""

from __future__ import annotations

import numpy as np

from oracles.evaluation import evaluate
from oracles.protocols import INVALID_COUNTS_AS_ZERO, assign_relevance


def by_value(query, gallery, values, protocol, distance, metrics, ground_truth=None):
    """{value: (n_query, n_valid, {metric: mean} or None)} for the queries of each value.

    None where no query is valid, unless an invalid query counts as 0.
    """
    table = {}
    nothing = dict.fromkeys(metrics, 0.0) if protocol in INVALID_COUNTS_AS_ZERO else None
    for one in sorted(set(values.tolist())):
        rows = np.flatnonzero(values == one)
        truth = None if ground_truth is None else [ground_truth[row] for row in rows]
        part = evaluate(query.take(rows), gallery, protocol, distance, metrics, ground_truth=truth)
        if part is None:
            table[one] = (len(rows), 0, nothing)
        else:
            table[one] = (len(rows), part.counts["n_valid"], part.metrics)
    return table


def by_camera_pair(query, gallery, protocol, distance, metrics=("mAP", "CMC@1")):
    """{(camera of the query, camera of the gallery): (n_valid, {metric: mean} or None)}."""
    table = {}
    for near in sorted(set(query.camids.tolist())):
        for far in sorted(set(gallery.camids.tolist())):
            part = evaluate(
                query.take(np.flatnonzero(query.camids == near)),
                gallery.take(np.flatnonzero(gallery.camids == far)),
                protocol,
                distance,
                metrics,
            )
            table[near, far] = (0, None) if part is None else (part.counts["n_valid"], part.metrics)
    return table


def at_gallery_size(query, gallery, n_rows, protocol, distance, metrics, ground_truth=None, order=None):
    """Means when of the negatives only those among the first `n_rows` rows, in an order of entry, are there.

    Relevant and junk rows stay.
    """
    relevant, junk = assign_relevance(query, gallery, protocol, ground_truth)
    entered = np.zeros(len(gallery), dtype=bool)
    entered[(np.arange(len(gallery)) if order is None else order)[:n_rows]] = True
    absent = ~relevant & ~junk & ~entered[None, :]
    part = evaluate(query, gallery, protocol, distance, metrics, ground_truth=ground_truth, absent=absent)
    return None if part is None else part.metrics
