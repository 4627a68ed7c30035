"""Rates and thresholds of pairs and probes, from ranks of a few queries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from oracles import verification as oracle

from reid_dist.core.model import Neighbours, RankedQueries
from reid_dist.engine.outputs.nearest_rows import Probes
from reid_dist.engine.verification.crossings import crossings_of
from reid_dist.engine.verification.measures import (
    ROC_RATES,
    identification_rates,
    make_verification,
    needs_pairs,
    needs_probes,
    pairs_of,
    wanted_levels,
)
from reid_dist.errors import InputError
from reid_dist.metrics.metric import parse_metrics
from reid_dist.relevance.protocols import REASONS

RATES = ("0", "0.1", "0.25", "0.5", "0.75", "1")
TAR = [f"TAR@FAR={rate}" for rate in RATES]
DIR = [f"DIR@FAR={rate}" for rate in RATES]

Query = tuple[list[int], list[int]]
"""Distances of the positives and of the negatives of a query."""

DISTANCES = st.lists(st.integers(0, 6), max_size=5)
QUERIES = st.lists(st.tuples(DISTANCES, DISTANCES), min_size=1, max_size=6)


def result_of(queries: list[Query], uncounted: tuple[int, ...] = ()) -> tuple[RankedQueries, Probes]:
    """Ranks and probes of queries; of equal distances, negatives come first.  A query without positives is unknown."""
    indptr, rank, distance, nearest = [0], [], [], []
    for near, far in queries:
        order = sorted([(each, True) for each in near] + [(each, False) for each in far])
        places = [at for at, (_, positive) in enumerate(order, start=1) if positive]
        rank += places
        distance += sorted(near)
        indptr.append(len(rank))
        nearest.append(min(far, default=math.inf))
    n, flat = len(queries), np.array(rank, np.int64)
    n_kept = np.array([len(near) + len(far) for near, far in queries], np.int64)
    reason = np.zeros(n, np.uint8)
    reason[list(uncounted)] = REASONS.index("camera_not_counted")
    none = np.zeros(len(flat), np.int64)
    ranked = RankedQueries(
        np.array(indptr), flat, none, none, none, np.array(distance, float), n_kept, np.zeros(n, np.int64), reason
    )
    neighbours = Neighbours(np.zeros((n, 1), np.int64), np.array(nearest, float)[:, None])
    # No metric here is one of identities.
    unread = np.zeros(n, np.int64)
    return ranked, Probes(neighbours, np.array([bool(near) for near, _ in queries]), unread, unread[:, None])


def pairs_by_definition(queries: list[Query]) -> oracle.Pairs:
    return oracle.Pairs(
        sorted(float(each) for near, _ in queries for each in near),
        sorted(float(each) for _, far in queries for each in far),
    )


def probes_by_definition(queries: list[Query]) -> oracle.Probes:
    mated = [(float(min(near + far)), bool(near) and min(near) < min(far, default=7)) for near, far in queries if near]
    return oracle.Probes(mated, sorted(float(min(far, default=math.inf)) for near, far in queries if not near))


def verified(queries: list[Query], names: list[str], roc: bool = False, uncounted: tuple[int, ...] = ()):
    metrics, pairs = parse_metrics(names), pairs_by_definition(queries)
    ranked, probes = result_of(queries, uncounted)
    impostor, genuine = np.array(pairs.impostor), np.array(pairs.genuine)
    pairs = pairs_of(ranked)
    levels = wanted_levels(metrics, roc, pairs.n_genuine, pairs.n_impostor) if needs_pairs(metrics, roc) else []
    return make_verification(metrics, roc, ranked, probes, crossings_of(levels, impostor, genuine))


@given(queries=QUERIES)
def test_rates_of_pairs_are_those_of_the_definition(queries: list[Query]) -> None:
    pairs = pairs_by_definition(queries)
    assume(pairs.genuine)
    assume(pairs.impostor)
    found = verified(queries, [*TAR, "EER"], roc=True)
    assert found.counts == {"n_genuine": len(pairs.genuine), "n_impostor": len(pairs.impostor)}
    for name, rate in zip(TAR, RATES, strict=True):
        assert found.metrics[name] == float(oracle.tar_at_far(pairs, rate)), name
        assert found.thresholds[name] == oracle.threshold_at(pairs.impostor, rate), name
    assert found.metrics["EER"] == float(oracle.equal_error_rate(pairs))
    assert found.curves["ROC_TAR"].tolist() == [float(oracle.tar_at_far(pairs, rate)) for rate in ROC_RATES]
    assert found.curves["ROC_threshold"].tolist() == [oracle.threshold_at(pairs.impostor, rate) for rate in ROC_RATES]


@given(queries=QUERIES)
def test_rates_of_probes_are_those_of_the_definition(queries: list[Query]) -> None:
    probes = probes_by_definition(queries)
    assume(probes.mated)
    assume(probes.non_mated)
    found = verified(queries, DIR)
    assert found.counts == {"n_mated": len(probes.mated), "n_non_mated": len(probes.non_mated)}
    for name, rate in zip(DIR, RATES, strict=True):
        assert found.metrics[name] == float(oracle.dir_at_far(probes, rate)), name
        assert found.thresholds[name] == oracle.threshold_at(probes.non_mated, rate), name
    metrics, result = parse_metrics(DIR), result_of(queries)
    assert identification_rates(metrics, *result) == found.metrics


def test_the_last_impostor_is_a_threshold_and_none_beyond_it_is() -> None:
    queries: list[Query] = [([1], [2, 3, 4, 5])]
    found = verified(queries, ["TAR@FAR=0.75", "TAR@FAR=0.99", "TAR@FAR=1"])
    assert found.thresholds == {"TAR@FAR=0.75": 5.0, "TAR@FAR=0.99": 5.0, "TAR@FAR=1": math.inf}


def test_queries_of_other_cameras_have_neither_impostors_nor_probes() -> None:
    queries: list[Query] = [([1], [2, 3]), ([], [0]), ([], [4])]
    ranked, _ = result_of(queries, uncounted=(1,))
    assert pairs_of(ranked).n_impostor == 3
    assert verified(queries, ["DIR@FAR=0"], uncounted=(1,)).thresholds == {"DIR@FAR=0": 4.0}


def test_what_is_needed_for_which_metrics() -> None:
    ranks, pairs, probes = (parse_metrics([name]) for name in ("mAP", "EER", "DIR@FAR=0.1"))
    assert [needs_pairs(each, False) for each in (ranks, pairs, probes)] == [False, True, False]
    assert [needs_pairs(each, True) for each in (ranks, pairs, probes)] == [True, True, True]
    assert [needs_probes(each) for each in (ranks, pairs, probes)] == [False, False, True]


def test_without_impostors_or_unknown_queries() -> None:
    with pytest.raises(InputError, match=r"TAR@FAR=0\.5, EER: there are no impostor pairs"):
        verified([([1, 2], [])], ["TAR@FAR=0.5", "mAP", "EER"])
    with pytest.raises(InputError, match="the ROC: there are no impostor pairs"):
        verified([([1, 2], [])], ["mAP"], roc=True)
    with pytest.raises(InputError, match="needs queries whose identity is not in the gallery"):
        verified([([1], [2])], ["DIR@FAR=0.1"])
