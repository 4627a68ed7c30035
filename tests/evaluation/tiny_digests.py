"""Digests of tiny evaluations, printed as JSON: the same on every machine.

Run as a program under other settings with the folder above on ``PYTHONPATH``; imported by the test that compares.
"""

from __future__ import annotations

import hashlib
import json

import numpy as np
from agreement import as_feature_set, evaluate_items
from support.reference import DISTANCES, PROTOCOLS
from support.strategies import crowded_sets, scattered_sets

from reid_dist import nearest


def tiny_digests():
    """Digest by name of the evaluation."""
    digests = {}
    rng = np.random.default_rng(40)
    one_direction = (rng.normal(size=20) + 1e-3 * rng.normal(size=(60, 20))).astype(np.float32)
    sets = {
        "crowded": crowded_sets(5, 40, 9, seed=41, n_distinct=7, n_pids=4),
        "scattered": scattered_sets(5, 40, 18, seed=42, n_pids=4),
        "half": crowded_sets(4, 30, 5, seed=43, n_distinct=6, n_pids=3, dtype=np.float16),
        "collinear": tuple(
            items.with_features(part)
            for items, part in zip(
                scattered_sets(10, 50, 20, seed=45, n_pids=4), np.split(one_direction, [10]), strict=True
            )
        ),
        "equal": tuple(
            items.with_features(np.full((len(items), 3), 0.1, np.float32))
            for items in scattered_sets(4, 30, 3, seed=44, n_pids=3)
        ),
    }
    for name, (query, gallery) in sets.items():
        for distance in DISTANCES:
            for protocol in PROTOCOLS:
                # Queries of that protocol are rows of the gallery.
                queries = gallery.take(np.arange(5)) if protocol == "same_set" else query
                for chunk in (None, 7):
                    report = evaluate_items(queries, gallery, protocol, distance, chunk_rows=chunk)
                    digests[f"{name} {protocol} {distance} {chunk}"] = report.result_digest
            one = as_feature_set(gallery)
            for kind, side in (("between", as_feature_set(query)), ("within", one)):
                found = nearest(side, one, k=6, distance=distance, chunk_rows=11)
                content = found.index.tobytes() + found.distance.tobytes()
                digests[f"{name} {kind} {distance}"] = hashlib.sha256(content).hexdigest()
    return digests


if __name__ == "__main__":
    print(json.dumps(tiny_digests()))
