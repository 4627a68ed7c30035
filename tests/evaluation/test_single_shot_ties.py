"""The single-shot CMC and open-set rates when every tie goes for, or against, the positives."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples

from reid_dist import FeatureSet, evaluate


def expectation(distance: np.ndarray, pids: np.ndarray, pid: int, k: int, rule: str) -> Fraction:
    """Mean over all draws of one item per identity, for one query; ties by rule."""
    identities = sorted(set(pids.tolist()))
    draws = list(product(*(np.flatnonzero(pids == identity).tolist() for identity in identities)))
    hits = 0
    for drawn in draws:
        own = next(row for row in drawn if pids[row] == pid)
        before = 0
        for row in drawn:
            if pids[row] == pid:
                continue
            tied = distance[row] == distance[own]
            wins = {"usual": row < own, "optimistic": False, "pessimistic": True}[rule]
            before += distance[row] < distance[own] or (tied and wins)
        hits += before < k
    return Fraction(hits, len(draws))


@given(seed=st.integers(0, 2**32 - 1), n_gallery=st.integers(2, 9), n_values=st.integers(1, 4))
@settings(max_examples=examples(40), deadline=None)
def test_all_draws_under_every_rule(seed: int, n_gallery: int, n_values: int) -> None:
    rng = np.random.default_rng(seed)
    gallery = rng.integers(0, n_values, (n_gallery, 1)).astype(np.float32)
    pids = rng.integers(1, 4, n_gallery)
    query = np.zeros((1, 1), np.float32)
    pid = int(pids[rng.integers(n_gallery)])
    sets = FeatureSet.from_arrays(query, [pid]), FeatureSet.from_arrays(gallery, pids)
    names = [f"CMC_single_shot@{k}" for k in (1, 2, 3)]
    report = evaluate(*sets, protocol="no_cameras", distance="sqeuclidean", metrics=names, ties=True, confidence=None)
    distance = gallery[:, 0].astype(int) ** 2
    for k, name in zip((1, 2, 3), names, strict=True):
        found = {
            "usual": report.metrics[name],
            **{rule: report.ties[rule][name] for rule in ("optimistic", "pessimistic")},
        }
        for rule, value in found.items():
            assert value == pytest.approx(float(expectation(distance, pids, pid, k, rule)), abs=1e-12)


def test_open_set_rates_depend_on_rank_one() -> None:
    """A mate at the distance of an item of another identity is first under one rule and second under the other."""
    gallery = FeatureSet.from_arrays(np.array([[1.0], [1.0], [5.0]], np.float32), [9, 1, 8])
    query = FeatureSet.from_arrays(np.array([[0.0], [0.0]], np.float32), [1, 7])
    report = evaluate(query, gallery, protocol="no_cameras", distance="euclidean", metrics=["DIR@FAR=1"], ties=True)
    assert report.metrics["DIR@FAR=1"] == 0.0
    assert report.ties["optimistic"]["DIR@FAR=1"] == 1.0
    assert report.ties["pessimistic"]["DIR@FAR=1"] == 0.0
