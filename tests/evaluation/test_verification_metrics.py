"""Verification and open-set search: TAR@FAR, EER and the ROC over all pairs, DIR@FAR over probes."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from agreement import evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import verification
from oracles.protocols import PID_PROTOCOLS, assign_relevance
from oracles.verification import Pairs
from support.reference import DISTANCES, ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets

from reid_dist.errors import InputError
from reid_dist.relevance.protocols import compose_protocol

RATES = ("0", "0.001", "0.01", "0.1", "0.25", "0.3", "0.5", "1")
TAR = [f"TAR@FAR={rate}" for rate in RATES]
DIR = [f"DIR@FAR={rate}" for rate in RATES]
# Distances are compared between queries here, so their last bits must be right everywhere.
EXACT_KINDS = ("palette", "few_valued", "scaled", "constant")
ascending = st.lists(st.integers(0, 12), min_size=1, max_size=25).map(lambda found: sorted(map(float, found)))


def last_not_above(far, tar, rate):
    """scikit-learn's answer: the true positive rate at the last false positive rate that is at most a rate."""
    return tar[np.flatnonzero(far <= rate)[-1]]


def crossing_of(genuine, impostor):
    """The false positive rate of scikit-learn's curve where it meets FAR = 1 - TAR."""
    from sklearn.metrics import roc_curve

    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    far, tar, _ = roc_curve(truth, -np.concatenate([genuine, impostor]), drop_intermediate=False)
    return np.interp(1.0, far + tar, far)


# ------------------------------------------------------------------------------------------------- the oracle


@pytest.mark.slow
@given(genuine=ascending, impostor=ascending)
def test_the_oracle_is_scikit_learn(genuine, impostor):
    from sklearn.metrics import roc_curve

    pairs = Pairs(genuine, impostor)
    truth = np.repeat([1, 0], [len(genuine), len(impostor)])
    far, tar, _ = roc_curve(truth, -np.array(genuine + impostor), drop_intermediate=False)
    points = verification.roc_points(pairs)
    assert far == pytest.approx([float(x) for x, _ in points], abs=1e-15)
    assert tar == pytest.approx([float(y) for _, y in points], abs=1e-15)
    n = len(impostor)
    # Rates in between two steps, which rounding cannot confuse, and the steps themselves as exact decimals.
    for count in range(n + 1):
        between = (count + 0.5) / n
        assert float(verification.tar_at_far(pairs, between)) == last_not_above(far, tar, between)
    for rate in ("0", "0.25", "0.5", "0.75", "1"):
        exact = [Fraction(step, n) for step in range(n + 1)]
        allowed = max(step for step in exact if step <= Fraction(rate))
        reached = [y for x, y in points if x <= allowed][-1]
        assert verification.tar_at_far(pairs, rate) == reached


@pytest.mark.slow
@given(genuine=ascending, impostor=ascending)
def test_the_equal_error_rate_of_the_oracle(genuine, impostor):
    """Against the curve of scikit-learn, on which FAR + TAR never falls."""
    rate = verification.equal_error_rate(Pairs(genuine, impostor))
    assert float(rate) == pytest.approx(crossing_of(genuine, impostor), abs=1e-12)
    # Who is genuine and who is not: the other way round the curve is mirrored.
    assert verification.equal_error_rate(Pairs(impostor, genuine)) == 1 - rate


# ------------------------------------------------------------------------------------------------ small sets


def expected_pairs(query, gallery, protocol, distance, order="default"):
    """Sorted pairs, and probes."""
    distances = canonical_distances(query.features, gallery.features, distance)
    relevant, junk = assign_relevance(query, gallery, protocol)
    return (
        verification.pairs_of(distances, relevant, junk),
        verification.probes_of(query, gallery, distances, relevant, junk, order),
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(12))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=EXACT_KINDS))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    pairs, probes = expected_pairs(problem.query, problem.gallery, protocol, distance)
    assume(pairs.genuine)
    assume(pairs.impostor)
    names = [*TAR, "EER"] + (DIR if probes.non_mated else [])
    chunk = data.draw(st.sampled_from([None, 3, 8]))
    report = evaluate_items(problem.query, problem.gallery, protocol, distance, names, chunk_rows=chunk)
    assert list(report.metrics) == names
    for rate in RATES:
        name = f"TAR@FAR={rate}"
        assert report.metrics[name] == pytest.approx(float(verification.tar_at_far(pairs, rate)), abs=1e-15), name
        assert report.verification["thresholds"][name] == verification.threshold_at(pairs.impostor, rate), name
    assert report.metrics["EER"] == pytest.approx(float(verification.equal_error_rate(pairs)), abs=1e-15)
    assert report.verification["n_genuine"] == len(pairs.genuine)
    assert report.verification["n_impostor"] == len(pairs.impostor)
    if probes.non_mated:
        for rate in RATES:
            name = f"DIR@FAR={rate}"
            assert report.metrics[name] == pytest.approx(float(verification.dir_at_far(probes, rate)), abs=1e-15), name
            assert report.verification["thresholds"][name] == verification.threshold_at(probes.non_mated, rate), name
        assert report.verification["n_mated"] == len(probes.mated)
        assert report.verification["n_non_mated"] == len(probes.non_mated)


@cache
def crowded():
    """Ties, junk, queries without relevant items, and one whose items are all of its own camera."""
    query, gallery = crowded_sets(30, 600, 6, seed=81, n_distinct=40)
    whole = np.random.default_rng(82).integers(-3, 4, (40, 6)).astype(np.float32)
    gallery = gallery.with_features(whole[np.random.default_rng(83).integers(0, 40, 600)])
    query = query.with_features(whole[np.random.default_rng(84).integers(0, 40, 30)])
    unmatched = ItemSet(whole[5:25], np.arange(900, 920), np.zeros(20, int), np.arange(900, 920))
    own_camera_only = ItemSet(whole[:1], np.array([990]), np.array([0]), np.array([990]))
    return query + unmatched + own_camera_only, gallery + own_camera_only


@pytest.mark.parametrize("order", ["optimistic", "pessimistic"])
def test_ties_at_rank_one(order):
    """DIR depends on rank 1, hence on ties; metrics of pairs do not."""
    query, gallery = crowded()
    report = evaluate_items(query, gallery, "market1501", "sqeuclidean", ["TAR@FAR=0.1", "EER", *DIR], ties=True)
    _, probes = expected_pairs(query, gallery, "market1501", "sqeuclidean", order)
    assert report.ties[order] == {name: float(verification.dir_at_far(probes, name.partition("=")[2])) for name in DIR}
    assert report.ties[order]["DIR@FAR=1"] != report.metrics["DIR@FAR=1"]


# ---------------------------------------------------------------------------------------------- what is meant


def on_a_line(places, pids, camera):
    """Items at some places of a line, all in one camera."""
    return ItemSet(np.asarray(places, np.float32)[:, None], np.asarray(pids), np.full(len(pids), camera))


def test_a_rate_is_read_as_a_decimal():
    """0.29 of 100 impostors are 29, though 0.29 * 100 is less than that in floats."""
    assert 0.29 * 100 < 29
    gallery = on_a_line([*range(1, 101), 29.5], [*[5] * 100, 1], 1)
    report = evaluate_items(on_a_line([0], [1], 0), gallery, metrics=["TAR@FAR=0.29", "TAR@FAR=0.28"],
                            distance="euclidean")  # fmt: skip
    assert report.metrics == {"TAR@FAR=0.29": 1.0, "TAR@FAR=0.28": 0.0}
    assert report.verification["thresholds"] == {"TAR@FAR=0.29": 30.0, "TAR@FAR=0.28": 29.0}


def test_impostors_of_queries_that_do_not_count_are_counted():
    """The second query has no relevant item; its negatives are nearer than any genuine pair."""
    gallery = on_a_line([10, 20, 30], [1, 5, 6], 1)
    alone = on_a_line([0], [1], 0)
    report = evaluate_items(alone, gallery, distance="euclidean", metrics=["TAR@FAR=0", "EER"])
    assert report.metrics["TAR@FAR=0"] == 1
    assert (report.verification["n_genuine"], report.verification["n_impostor"]) == (1, 2)
    both = alone + on_a_line([19], [77], 0)
    report = evaluate_items(both, gallery, distance="euclidean", metrics=["TAR@FAR=0", "EER"])
    assert report.metrics["TAR@FAR=0"] == 0
    assert (report.verification["n_genuine"], report.verification["n_impostor"]) == (1, 5)


class TestOpenSet:
    """Four mated probes with mates at distances 1, 2, 3 and 4; non-mated probes with nearest items as chosen."""

    def sets(self, *unmatched):
        """Each probe is far from all others."""
        query_places, query_pids, gallery_places, gallery_pids = [], [], [], []
        for number, near in enumerate([1, 2, 3, 4, *unmatched]):
            query_places.append(1000 * number)
            query_pids.append(number + 1)
            gallery_places.append(1000 * number + near)
            gallery_pids.append(number + 1 if number < 4 else 500)
        return on_a_line(query_places, query_pids, 0), on_a_line(gallery_places, gallery_pids, 1)

    def test_non_mated_probes(self):
        """A query with items of its own camera alone is neither mated nor non-mated, and junk is no nearest item."""
        query, gallery = self.sets(10)
        known = on_a_line([9000], [77], 0)
        own_camera, junk = on_a_line([9001], [77], 0), on_a_line([4000.5], [-1], 1)
        report = evaluate_items(query + known, gallery + own_camera + junk, distance="euclidean",
                                metrics=["DIR@FAR=0", "DIR@FAR=1"])  # fmt: skip
        assert (report.verification["n_mated"], report.verification["n_non_mated"]) == (4, 1)
        assert report.verification["thresholds"] == {"DIR@FAR=0": 10.0, "DIR@FAR=1": math.inf}
        assert report.metrics == {"DIR@FAR=0": 1.0, "DIR@FAR=1": 1.0}

    @pytest.mark.parametrize("expand", [None, "aqe(k=0)"])
    def test_junk_rows_are_no_mates(self, expand):
        """Queries of pid -1 are non-mated probes, with and without rows of pid -1 in the gallery."""
        query, gallery = self.sets(10)
        query = query + on_a_line([9000, 9500], [-1, -1], 0)
        gallery = gallery + on_a_line([9003, 9504], [800, 801], 1)
        metrics = ["DIR@FAR=0", "BAUS@T=6", "BAKS@T=3.5"]
        options = {"distance": "euclidean", "metrics": metrics, "expand": expand}
        plain = evaluate_items(query, gallery, **options)
        assert plain.metrics == {"DIR@FAR=0": 0.5, "BAUS@T=6": 0.5, "BAKS@T=3.5": 0.75}
        assert plain.verification["n_non_mated"] == 3
        junk = on_a_line([9001, 2500], [-1, -1], 1)
        beside_junk = evaluate_items(query, gallery + junk, **options)
        assert beside_junk.metrics == plain.metrics
        assert beside_junk.verification == plain.verification
        # The gallery holds no other identity than those of the queries, and junk.
        known = np.isin(gallery.pids, query.pids)
        mates = gallery.take(np.flatnonzero(known)) + junk
        assert evaluate_items(query, mates, **options).verification["n_non_mated"] == 3

    def test_rows_of_cameras_that_do_not_count_are_no_mates(self):
        """The same with a stage, which does not see these rows, and without."""
        query, gallery = self.sets(10)
        query = query + on_a_line([9000], [77], 0)
        gallery = gallery + on_a_line([9001], [77], 2)
        protocol = compose_protocol("one_camera", base="market1501", gallery_cameras=(1,))
        for expand in (None, "aqe(k=0)"):
            report = evaluate_items(query, gallery, protocol, "euclidean", ["DIR@FAR=0"], expand=expand)
            assert (report.verification["n_mated"], report.verification["n_non_mated"]) == (4, 2)

    def test_without_non_mated_probes(self):
        query, gallery = self.sets()
        with pytest.raises(InputError, match="DIR"):
            evaluate_items(query, gallery, distance="euclidean", metrics=["DIR@FAR=0.1"])


# ------------------------------------------------------------------------------------------------------ curve


def check_curve(report, pairs):
    """Every point of the ROC is exact."""
    far, tar, threshold = (report.curves[f"ROC_{name}"] for name in ("FAR", "TAR", "threshold"))
    assert len(far) == len(tar) == len(threshold) > 2
    assert (np.diff(far) > 0).all()
    assert (np.diff(tar) >= 0).all()
    assert (np.diff(threshold) >= 0).all()
    n = len(pairs.impostor)
    for x, y, t in zip(far, tar, threshold, strict=True):
        assert y == pytest.approx(float(verification.share_below(pairs.genuine, t)), abs=1e-15)
        assert verification.share_below(pairs.impostor, t) <= Fraction(float(x)) + Fraction(1, 10**12)
        # One impostor more would be too many; which one is next is a matter of the last bit of x.
        assert t in {verification.threshold_at(pairs.impostor, max(0.0, x + e)) for e in (-1e-12, 0, 1e-12)}, (x, n)


@settings(max_examples=examples(12))
@given(data=st.data())
def test_the_curve_of_small_sets(data):
    problem = data.draw(problems_for("no_cameras", kinds=EXACT_KINDS))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    pairs, _ = expected_pairs(problem.query, problem.gallery, "no_cameras", distance)
    assume(pairs.genuine)
    assume(pairs.impostor)
    report = evaluate_items(problem.query, problem.gallery, "no_cameras", distance, ["mAP"], roc=True)
    check_curve(report, pairs)


def test_the_curve_is_there_on_request_only():
    query, gallery = scattered_sets(10, 80, 6, seed=86)
    plain = evaluate_items(query, gallery, metrics=["mAP"])
    assert not any(name.startswith("ROC") for name in plain.curves)
    assert plain.verification is None
    requested = evaluate_items(query, gallery, metrics=["mAP"], roc=True)
    assert requested.metrics == plain.metrics


# -------------------------------------------------------------------------------------------------- bad input


def test_no_impostors():
    gallery = on_a_line([1, 2], [1, 1], 1)
    for name in ("TAR@FAR=0.1", "EER"):
        with pytest.raises(InputError, match="impostor"):
            evaluate_items(on_a_line([0], [1], 0), gallery, distance="euclidean", metrics=[name])
