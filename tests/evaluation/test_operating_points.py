"""Operating points against brute force: rates at thresholds, histograms, calibrations, intervals by identity."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import numpy as np
import pytest
from agreement import as_feature_set
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import verification
from oracles.protocols import assign_relevance
from support.noted import noted, values_of
from support.reference import DISTANCES, ItemSet, canonical_distances, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets, seeds

from reid_dist import FeatureSet, OperatingPoints, evaluate, nearest, operating_points, reranked_distances
from reid_dist.engine import plan
from reid_dist.errors import InputError
from reid_dist.evaluation.operating_values import even_edges, quantile_edges
from reid_dist.metrics.confidence import FEW_UNITS, interval_of_magnitudes
from reid_dist.metrics.isotonic import CrossFitted, folds_of, pool_adjacent
from reid_dist.relevance.protocols import compose_protocol
from reid_dist.reports.plots.chart import Band, Line
from reid_dist.reports.sections.operating_point_section import operating_points as operating_section
from reid_dist.reports.sections.operating_point_section import point_table

EXACT_KINDS = ("palette", "few_valued", "scaled", "constant")
FAR, FPIR = ["0", "0.01", "0.3"], ["0", "0.5"]
RATES = ("FAR", "TAR", "FPIR", "FNIR", "precision")


def falling_shares(matches, others):
    """Isotonic regression by its min-max formula (Robertson, Wright and Dykstra 1988, section 1.4)."""

    def mean(first, last):
        match, other = matches[first : last + 1].sum(), others[first : last + 1].sum()
        return match / (match + other)

    places = range(len(matches))
    return np.array([min(max(mean(j, k) for k in places[i:]) for j in places[: i + 1]) for i in places])


class BruteForce:
    """All pairs of two sets, one by one."""

    def __init__(self, query, gallery, distances, protocol="market1501"):
        self.distances = distances
        self.relevant, self.junk = assign_relevance(query, gallery, protocol)
        self.pids = query.pids
        self.pairs = verification.pairs_of(distances, self.relevant, self.junk)
        self.probes = verification.probes_of(query, gallery, distances, self.relevant, self.junk)
        known = np.isin(query.pids, gallery.pids[gallery.pids != -1])
        # Nearest kept row of each query: distance, and whether it is relevant; None for a query that is neither.
        self.tops = []
        for i in range(len(query)):
            kept = [(distances[i, j], j) for j in np.flatnonzero(~self.junk[i]).tolist()]
            mated = bool(self.relevant[i].any())
            if not mated and known[i]:
                self.tops.append(None)
            else:
                nearest, row = min(kept, default=(math.inf, -1))
                self.tops.append((mated, nearest, mated and bool(self.relevant[i, row])))

    def counts(self, threshold, i):
        """Counted and all of one query for each rate at a threshold."""
        genuine, impostor = self.relevant[i], ~self.relevant[i] & ~self.junk[i]
        near = self.distances[i] < threshold
        mated, nearest, is_right = self.tops[i] or (False, math.inf, False)
        stray = self.tops[i] is not None and not mated
        accepted = nearest < threshold
        return {
            "FAR": (int((impostor & near).sum()), int(impostor.sum())),
            "TAR": (int((genuine & near).sum()), int(genuine.sum())),
            "FPIR": (int(stray and accepted), int(stray)),
            "FNIR": (int(mated and not (accepted and is_right)), int(mated)),
            "precision": (int(accepted and is_right), int(accepted)),
        }

    def rates(self, threshold):
        """The rates at a threshold, None where there is nothing to count; and the number of accepted top matches."""
        of_queries = [self.counts(threshold, i) for i in range(len(self.pids))]
        sums = {name: [sum(each) for each in zip(*(of[name] for of in of_queries), strict=True)] for name in RATES}
        rates = {name: Fraction(part, whole) if whole else None for name, (part, whole) in sums.items()}
        return rates, sums["precision"][1]


def of_eighths(items):
    """Features whose squares have exact sums, so that equal distances are equal in any order of summation."""
    return items.with_features((np.round(items.features * 8) / 8).astype(np.float32))


def assert_points(found, expected):
    """Rates, histograms and the steps of both calibrations are those of the pairs."""
    thresholds = dict(zip(found.table["point"], found.table["threshold"].tolist(), strict=True))
    for rate in FAR:
        assert thresholds[f"FAR={rate}"] == verification.threshold_at(expected.pairs.impostor, rate)
    for rate in FPIR if expected.probes.non_mated else ():
        assert thresholds[f"FPIR={rate}"] == verification.threshold_at(expected.probes.non_mated, rate)
    for place, threshold in enumerate(found.table["threshold"].tolist()):
        rates, n_accepted = expected.rates(threshold)
        assert found.table["n_accepted"][place] == n_accepted
        for name in RATES:
            value = found.table[name][place]
            assert math.isnan(value) if rates[name] is None else value == float(rates[name]), (name, threshold)
    tops = [top for top in expected.tops if top is not None]
    of_kinds = {
        "pairs": {"genuine": expected.pairs.genuine, "impostor": expected.pairs.impostor},
        "top_matches": {
            "mated_correct": [top[1] for top in tops if top[2]],
            "mated_wrong": [top[1] for top in tops if top[0] and not top[2]],
            "non_mated": [top[1] for top in tops if not top[0] and math.isfinite(top[1])],
        },
    }
    for name, kinds in of_kinds.items():
        edges = found.histograms[name]["edge"]
        for kind, distances in kinds.items():
            counts = np.histogram(distances, [*edges, math.inf])[0] if len(edges) else []
            assert found.histograms[name][kind].tolist() == list(counts), kind
            assert sum(counts) == len(distances), "no pair is nearer than the first edge"
    wrong = [*of_kinds["top_matches"]["mated_wrong"], *of_kinds["top_matches"]["non_mated"]]
    assert_calibrated(found.calibration["pairs"], expected.pairs.genuine, expected.pairs.impostor)
    assert_calibrated(found.calibration["top_matches"], of_kinds["top_matches"]["mated_correct"], wrong)


def assert_calibrated(calibration, matches, others):
    """Steps count all pairs from their start on, and the shares of matches fall."""
    starts = [*calibration["from"], math.inf]
    assert calibration["matches"].tolist() == np.histogram(matches, starts)[0].tolist()
    assert calibration["others"].tolist() == np.histogram(others, starts)[0].tolist()
    shares = calibration["matches"] / np.maximum(1, calibration["matches"] + calibration["others"])
    assert (np.diff(shares) < 0).all()
    assert calibration["priors"][0]["probability"] == pytest.approx(shares, abs=1e-15)


def assert_same_intervals(one, other):
    """In all of the document, where NaN is None."""
    for name in ("intervals", "histograms", "calibration"):
        assert one.to_dict()[name] == other.to_dict()[name]


def points_of(query, gallery, **options):
    return operating_points(as_feature_set(query), as_feature_set(gallery), **options)


@settings(max_examples=examples(15))
@given(data=st.data())
def test_small_sets(data):
    protocol = data.draw(st.sampled_from(["market1501", "no_cameras", "cuhk03"]))
    problem = data.draw(problems_for(protocol, kinds=EXACT_KINDS))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    distances = canonical_distances(problem.query.features, problem.gallery.features, distance)
    expected = BruteForce(problem.query, problem.gallery, distances, protocol)
    assume(expected.pairs.genuine)
    assume(expected.pairs.impostor)
    options = {"protocol": protocol, "distance": distance, "far": FAR, "thresholds": [0.25, float(distances.max())]}
    options["fpir"] = FPIR if expected.probes.non_mated else None
    found = points_of(problem.query, problem.gallery, confidence=None, **options)
    assert_points(found, expected)
    chunk = data.draw(st.integers(1, 40))
    again = points_of(problem.query, problem.gallery, confidence=None, chunk_rows=chunk, **options)
    assert again.result_digest == found.result_digest


@pytest.mark.slow
def test_scattered_sets_in_any_cut(monkeypatch):
    """Many bins and brackets; with few counts in memory a pass more is taken, with the same result."""
    query, gallery = map(of_eighths, scattered_sets(60, 900, 12, seed=5, n_pids=25))
    distances = canonical_distances(query.features, gallery.features, "euclidean")
    expected = BruteForce(query, gallery, distances)
    options = {"distance": "euclidean", "far": FAR, "prior": 0.2}
    found = points_of(query, gallery, **options)
    assert_points(found, expected)
    passes = []
    import reid_dist.engine.threshold_passes as threshold_passes

    count = threshold_passes.count_impostors
    monkeypatch.setattr(
        threshold_passes, "count_impostors", lambda *given, **named: passes.append(named) or count(*given, **named)
    )
    assert points_of(query, gallery, chunk_rows=37, **options).result_digest == found.result_digest
    assert len(passes) == 1
    monkeypatch.setattr(plan, "_FEWEST_COUNTS", 4)
    monkeypatch.setattr(plan, "_MOST_COUNTS", 4)
    again = points_of(query, gallery, **options)
    assert again.result_digest == found.result_digest
    assert_same_intervals(again, found)
    assert len(passes) > 2


@st.composite
def collapsed_sets(draw):
    """Features of one or two directions, copies of each other under all identities; sometimes one row that is apart."""
    dim, n_query, n_gallery = draw(st.integers(2, 33)), draw(st.integers(2, 6)), draw(st.integers(3, 24))
    rng = np.random.default_rng(draw(seeds()))
    kinds = draw(st.sampled_from([np.ones((1, dim)), rng.normal(size=(1, dim)), rng.normal(size=(2, dim))]))
    rows = kinds[rng.integers(0, len(kinds), n_query + n_gallery)].astype(np.float32)
    if draw(st.booleans()):
        rows[-1] = 3.0 * rng.normal(size=dim)
    pids = np.concatenate([rng.integers(0, 4, n_query), rng.integers(0, 3, n_gallery)])
    pids[0], pids[n_query : n_query + 2] = 0, [0, 1]
    query, gallery = (slice(None, n_query), slice(n_query, None))
    return ItemSet(rows[query], pids[query]), ItemSet(rows[gallery], pids[gallery])


@settings(max_examples=examples(40))
@given(data=st.data())
def test_thresholds_beside_equal_distances(data):
    """Where most distances are one, a threshold at, just below or just above it decides about all pairs."""
    query, gallery = data.draw(collapsed_sets())
    distance = data.draw(st.sampled_from(DISTANCES))
    sides = as_feature_set(query), as_feature_set(gallery)
    # Distances themselves are tested elsewhere; here, which of them are below a threshold.
    lists = nearest(*sides, k=len(gallery), distance=distance)
    distances = np.empty(lists.index.shape)
    np.put_along_axis(distances, lists.index, lists.distance, axis=1)
    canonical = canonical_distances(query.features, gallery.features, distance)
    assert distances == pytest.approx(canonical, rel=1e-12, abs=1e-13)
    known = np.unique(distances)[:2].tolist()
    steps = [0.0, *(side * step for step in (1e-12, 1e-9, 1e-7, 2e-7, 1e-6) for side in (-1, 1))]
    thresholds = [value + step for value in known for step in steps]
    thresholds += [float(np.nextafter(value, side)) for value in known for side in (-np.inf, np.inf)]
    expected = BruteForce(query, gallery, distances, "no_cameras")
    fpir = FPIR if expected.probes.non_mated else []
    options = {"protocol": "no_cameras", "distance": distance, "far": FAR, "fpir": fpir, "thresholds": thresholds}
    assert_points(operating_points(*sides, confidence=None, **options), expected)


@pytest.mark.parametrize("apart", [False, True])
def test_all_known_distances_are_zero(apart):
    """Collapsed features, also with impostors that lie far from every query: FAR, TAR and FPIR agree."""
    query = ItemSet(np.ones((6, 3), np.float32), np.array([0, 0, 1, 1, 5, 6]))
    gallery = ItemSet(np.ones((9, 3), np.float32), np.repeat([0, 1, 2], 3))
    if apart:
        gallery.features[-1] = 1, 0, 0
    distances = canonical_distances(query.features, gallery.features, "cosine")
    found = points_of(query, gallery, protocol="no_cameras", far=[], thresholds=[1e-9, 1e-7, 1e-6], confidence=None)
    share = (distances < 1e-9)[~np.equal.outer(query.pids, gallery.pids)].mean()
    assert share == pytest.approx(36 / 42 if apart else 1.0)
    own = [place for place, point in enumerate(found.table["point"]) if point.startswith("T=")]
    assert {name: set(found.table[name][own].tolist()) for name in ("FAR", "TAR", "FPIR")} == {
        "FAR": {share},
        "TAR": {1.0},
        "FPIR": {1.0},
    }


def test_crowded_tiles_give_the_same():
    """Thousands of ties at the thresholds."""
    query, gallery = crowded_sets(40, 1500, 6, seed=3, n_distinct=12)
    expected = BruteForce(query, gallery, canonical_distances(query.features, gallery.features, "sqeuclidean"))
    found = points_of(query, gallery, distance="sqeuclidean", far=FAR)
    assert_points(found, expected)


@pytest.mark.parametrize("chunk_rows", [None, 64])
@pytest.mark.parametrize("seed", [2, 5])
def test_thresholds_that_first_brackets_miss(seed, chunk_rows):
    """A few rows are so long that errors of screening exceed most distances: brackets are found in later passes."""
    rng = np.random.default_rng(seed)
    near, far = rng.normal(size=(40, 1)), rng.normal(size=(400, 1)) * 10.0 ** rng.integers(-8, 8, (400, 1))
    query = ItemSet(near.astype(np.float32), rng.integers(0, 5, 40))
    gallery = ItemSet(far.astype(np.float32), rng.integers(0, 5, 400))
    # Of one element: no sum has an order.
    distances = (query.features.astype(np.float64) - gallery.features.astype(np.float64).T) ** 2
    expected = BruteForce(query, gallery, distances, "no_cameras")
    options = {"protocol": "no_cameras", "distance": "sqeuclidean", "confidence": None, "chunk_rows": chunk_rows}
    found = points_of(query, gallery, far=["0.001", "0.01", "0.2"], fpir=[], **options)
    for name, pairs in (("FAR", expected.pairs.impostor), ("TAR", expected.pairs.genuine)):
        at = found.table["threshold"]
        assert found.table[name].tolist() == (np.searchsorted(pairs, at) / len(pairs)).tolist()


@pytest.mark.parametrize("n", [33_000, 200])
def test_very_many_thresholds(n):
    query, gallery = scattered_sets(9, 300, 5, seed=9, n_pids=15)
    expected = BruteForce(query, gallery, canonical_distances(query.features, gallery.features, "cosine"))
    thresholds = np.random.default_rng(n).uniform(-0.1, 2.1, n)
    found = points_of(query, gallery, far=[], fpir=[], thresholds=thresholds.tolist(), confidence=None)
    own = np.array([point.startswith("T=") for point in found.table["point"]])
    at = found.table["threshold"][own]
    assert np.array_equal(at, np.sort(thresholds))
    for name, pairs in (("FAR", expected.pairs.impostor), ("TAR", expected.pairs.genuine)):
        assert found.table[name][own].tolist() == (np.searchsorted(pairs, at) / len(pairs)).tolist()


def test_reranked_distances():
    query, gallery = scattered_sets(30, 300, 10, seed=7, n_pids=15)
    sides = as_feature_set(query), as_feature_set(gallery)
    rerank = "k_reciprocal(k1=8,k2=3,variant=paper)"
    expected = BruteForce(query, gallery, reranked_distances(*sides, rerank=rerank))
    assert_points(operating_points(*sides, rerank=rerank, far=FAR), expected)
    with pytest.raises(InputError, match="a scale of its own"):
        operating_points(*sides, rerank="k_reciprocal")


def test_thresholds_are_those_of_the_metrics():
    query, gallery = map(as_feature_set, scattered_sets(60, 900, 12, seed=5, n_pids=25))
    report = evaluate(query, gallery, metrics=["EER", "TAR@FAR=0.01"])
    found = operating_points(query, gallery, far=["0.01"], thresholds=[0.4])
    table = {point: place for place, point in enumerate(found.table["point"])}
    thresholds = report.verification["thresholds"]
    assert found.table["threshold"][table["FAR=0.01"]] == thresholds["TAR@FAR=0.01"]
    assert found.table["TAR"][table["FAR=0.01"]] == report.metrics["TAR@FAR=0.01"]
    assert found.table["threshold"][table["EER"]] == thresholds["EER"]
    assert found.table["threshold"].tolist() == sorted(found.table["threshold"])


# ---------------------------------------------------------------------------------------------------- intervals


def test_intervals_are_of_resampled_identities():
    query, gallery = map(of_eighths, scattered_sets(50, 300, 8, seed=11, n_pids=14))
    expected = BruteForce(query, gallery, canonical_distances(query.features, gallery.features, "euclidean"))
    found = points_of(query, gallery, distance="euclidean", far=["0.01"], confidence=0.9, seed=4)
    identities = np.unique(query.pids)
    place = found.table["point"].index("FAR=0.01")
    of_queries = [expected.counts(float(found.table["threshold"][place]), i) for i in range(len(query))]
    for name in RATES:
        sums = np.array([np.sum([of[name] for of in np.array(of_queries)[query.pids == pid]], 0) for pid in identities])
        rng = np.random.default_rng((4, 0))
        drawn = [sums[rng.integers(0, len(identities), len(identities))].sum(axis=0) for _ in range(1000)]
        known = [part / whole for part, whole in drawn if whole]
        ends = found.intervals[name][place]
        if known:
            assert ends == pytest.approx(np.quantile(known, [0.05, 0.95]).tolist(), abs=1e-12), name
        else:
            assert np.isnan(ends).all()


def test_rates_of_few_unknown_identities_are_noted():
    """Intervals of FPIR draw from the identities that the gallery lacks."""
    query, gallery = scattered_sets(80, 300, 8, seed=11, n_pids=30)
    unknown = ItemSet(query.features[:12], np.repeat([900, 901, 902, 903], 3), query.camids[:12], np.arange(12))
    found = points_of(query + unknown, gallery, protocol="no_cameras")
    expected = {"n_units": 4, "unit": "identity", "enough": FEW_UNITS, "rates": ("FPIR",)}
    assert values_of(found, "narrow_intervals") == expected
    assert noted(points_of(query, gallery, protocol="no_cameras"), "narrow_intervals") == []


def test_one_identity_has_no_interval():
    query, gallery = scattered_sets(6, 60, 4, seed=2, n_pids=1)
    gallery = gallery + scattered_sets(2, 40, 4, seed=3, n_pids=5)[1]
    found = points_of(query, gallery, far=["0.1"])
    assert not found.intervals["FAR"]
    assert 1 in [note.values["n_units"] for note in noted(found, "narrow_intervals")]


def test_intervals_of_shares_and_of_rates_at_edges():
    """One by one over the distances of resampled identities."""
    query, gallery = map(of_eighths, scattered_sets(50, 300, 8, seed=11, n_pids=14))
    expected = BruteForce(query, gallery, canonical_distances(query.features, gallery.features, "euclidean"))
    found = points_of(query, gallery, distance="euclidean", confidence=0.9, seed=4)
    identities = np.unique(query.pids)
    rng = np.random.default_rng((4, 0))
    draws = [rng.integers(0, len(identities), len(identities)) for _ in range(1000)]
    pairs, tops = found.histograms["pairs"], found.histograms["top_matches"]
    place = int(np.argmax(pairs["genuine"]))
    rows = [expected.distances[i][expected.relevant[i]] for i in range(len(query))]
    low, high = pairs["edge"][place : place + 2]
    of_query = np.array([(((low <= row) & (row < high)).sum(), len(row)) for row in rows])
    sums = np.array([of_query[query.pids == pid].sum(axis=0) for pid in identities])
    shares = [part / whole for part, whole in (sums[drawn].sum(axis=0) for drawn in draws)]
    assert pairs["intervals"]["genuine"][place] == pytest.approx(np.quantile(shares, [0.05, 0.95]).tolist(), abs=1e-12)
    place = len(tops["edge"]) // 2
    of_query = np.array([expected.counts(float(tops["edge"][place]), i)["FNIR"] for i in range(len(query))])
    sums = np.array([of_query[query.pids == pid].sum(axis=0) for pid in identities])
    rates = [part / whole for part, whole in (sums[drawn].sum(axis=0) for drawn in draws)]
    assert tops["intervals"]["FNIR"][place] == pytest.approx(np.quantile(rates, [0.05, 0.95]).tolist(), abs=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("shift", "least", "width"), [(0.0, 90, 0.09), (0.05, 95, 0.12)])
def test_coverage_of_intervals_of_magnitudes(shift, least, width):
    """Sums of magnitudes of 15 shares off by a known amount, of 60 identities with correlated pairs: 120 data sets."""
    rng = np.random.default_rng(8)
    held, widths = 0, []
    for _ in range(120):
        # Twelve pairs of an identity in each bin; those of an identity agree in part.
        rate = rng.beta(2.0 * (0.4 + shift), 2.0 * (0.6 - shift), (60, 15))
        excess = 0.4 - rng.binomial(12, rate) / 12
        resampled = rng.multinomial(60, np.full(60, 1 / 60), 400) @ excess / 60 / 15
        ((low, high),) = interval_of_magnitudes(excess.mean(axis=0) / 15, resampled, 0.95)
        held += low <= shift <= high
        widths.append(high - low)
        assert low <= np.abs(excess.mean(axis=0)).mean() <= high
    assert held >= least / 100 * 120
    assert np.mean(widths) < width


def test_calibration_errors_have_intervals():
    query, gallery = map(as_feature_set, scattered_sets(60, 900, 12, seed=5, n_pids=25))
    found = operating_points(query, gallery, prior=0.2)
    for calibration in found.calibration.values():
        for entry in calibration["priors"]:
            low, high = entry["intervals"]["calibration_error"]
            assert 0 <= low <= entry["calibration_error"] <= high
            assert high > 0


# ---------------------------------------------------------------------------------------------------- calibration


@pytest.mark.slow
@given(counts=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25))
def test_steps_are_those_of_isotonic_regression(counts):
    """As scikit-learn has it, whose import takes seconds."""
    from sklearn.isotonic import IsotonicRegression

    matches, others = np.array(counts).T
    total = matches + others
    assume(total.sum())
    first = pool_adjacent(matches, others)
    pooled = [np.add.reduceat(each, first) for each in (matches, others)]
    fitted = np.repeat(pooled[0] / pooled[0].__add__(pooled[1]).clip(1), np.diff([*first, len(counts)]))
    kept = total > 0
    places = np.flatnonzero(kept)
    regression = IsotonicRegression(increasing=False)
    expected = regression.fit(places, matches[kept] / total[kept], sample_weight=total[kept]).predict(places)
    assert fitted[kept] == pytest.approx(expected, abs=1e-12)
    assert falling_shares(matches[kept], others[kept]) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("prior", [None, 0.02])
def test_errors_are_those_of_other_identities(prior):
    """Pairs one by one, with the regression on the bins of all other folds."""
    rng = np.random.default_rng(5)
    matches, others = rng.integers(0, 6, (5, 12)), rng.integers(0, 30, (5, 12))
    n_matches, n_others = int(matches.sum()), int(others.sum())
    near, far = (1.0, 1.0) if prior is None else (prior / n_matches, (1 - prior) / n_others)
    predicted, truth, weight = [], [], []
    for fold in range(5):
        train = np.arange(5) != fold
        match, other = matches[train].sum(0), others[train].sum(0)
        weights = [1.0, 1.0] if prior is None else [prior / match.sum(), (1 - prior) / other.sum()]
        predicted += [*falling_shares(match * weights[0], other * weights[1])] * 2
        truth += np.repeat([1.0, 0.0], 12).tolist()
        weight += [*(matches[fold] * near), *(others[fold] * far)]
    predicted, truth, weight = map(np.array, (predicted, truth, weight))
    brier = (weight * (truth - predicted) ** 2).sum() / weight.sum()
    level = np.minimum((predicted * 15).astype(int), 14)
    gaps = [abs((weight * (predicted - truth))[level == each].sum()) for each in range(15)]
    fitted = CrossFitted.fit(matches, others, prior)
    assert fitted.calibration_error(matches, others) == pytest.approx(sum(gaps) / weight.sum(), abs=1e-12)
    squares = fitted.squared_errors(matches, others, np.arange(5)).sum(axis=0)
    scale = 1 / (n_matches + n_others) if prior is None else 1.0
    assert squares @ [near, far] * scale == pytest.approx(brier, abs=1e-12)


def test_a_stated_prior_weighs_the_same_steps():
    query, gallery = map(as_feature_set, scattered_sets(60, 900, 12, seed=5, n_pids=25))
    calibration = operating_points(query, gallery, prior=0.5, confidence=None).calibration["pairs"]
    own, stated = calibration["priors"]
    share = calibration["matches"] / calibration["matches"].sum(), calibration["others"] / calibration["others"].sum()
    assert stated["probability"] == pytest.approx(share[0] / (share[0] + share[1]), abs=1e-12)
    assert own["prior"] == calibration["matches"].sum() / (calibration["matches"] + calibration["others"]).sum()
    assert stated["brier"] < stated["brier_of_prior"] == 0.25


def test_folds_hold_whole_identities():
    pids = np.random.default_rng(0).integers(-5, 40, 300)
    fold = folds_of(pids, 3)
    assert all(len(set(fold[pids == pid].tolist())) == 1 for pid in np.unique(pids))
    sizes = np.bincount([fold[pids == pid][0] for pid in np.unique(pids)])
    assert sizes.max() - sizes.min() <= 1
    assert (folds_of(pids, 4) != fold).any()


# ---------------------------------------------------------------------------------------------------- bins, refusals


@given(values=st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=30))
def test_edges_begin_at_or_below_every_distance(values):
    known = np.sort(values)
    edges = even_edges(known, times=2.0)
    assert edges[0] <= known[0]
    assert len(edges) <= 44
    assert (np.diff(edges) > 0).all()
    assert edges[-1] >= known[-1] or len(edges) == 1
    assert set(quantile_edges(known).tolist()) <= set(known.tolist())
    assert quantile_edges(known)[-1] == known[-1]


def test_edges_of_extreme_distances():
    assert even_edges(np.array([-1e308, 1e308, np.inf])).tolist() == [-1e308]
    assert even_edges(np.array([0.5, np.inf, 0.5])).tolist() == [0.5]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"prior": 1.0}, "between 0 and 1"),
        ({"prior": 0}, "between 0 and 1"),
        ({"thresholds": [math.inf]}, "finite"),
        ({"far": ["2"]}, "^FAR is a number from 0 to 1, found .2.$"),
        ({"fpir": ["x"]}, "^FPIR is a number"),
        ({"fpir": ["0.1"]}, "needs queries whose identity is not in the gallery"),
        *(
            ({name: value}, f"^{name} has no effect on operating points, .*; leave it out$")
            for name, value in {
                "metrics": ["mAP"],
                "max_rank": 10,
                "collapse": "pid",
                "topk": 5,
                "ties": True,
                "breakdowns": ["camera"],
                "gallery_sizes": [0.5],
                "gallery_order": "random",
                "single_shot_draws": 3,
                "roc": True,
                "against_plain": True,
            }.items()
        ),
        ({"tpok": 5}, "unknown option 'tpok'; did you mean 'topk'"),
    ],
)
def test_points_that_cannot_be_meant(options, message):
    query, gallery = map(as_feature_set, scattered_sets(10, 100, 4, seed=1, n_pids=3))
    with pytest.raises(InputError, match=message):
        operating_points(query, gallery, **options)


def test_saved_and_loaded(tmp_path):
    query, gallery = map(as_feature_set, scattered_sets(30, 300, 6, seed=9, n_pids=10))
    found = operating_points(query, gallery, far=["0.1", "1"], prior=0.1)
    assert found.table["threshold"][-1] == math.inf, "a rate of 1 accepts all pairs"
    found.save(tmp_path / "points")
    loaded = OperatingPoints.load(tmp_path / "points")
    assert loaded.result_digest == found.result_digest
    assert loaded.to_html() == found.to_html() == (tmp_path / "points" / "thresholds.html").read_text()
    assert loaded.table["threshold"].tolist() == found.table["threshold"].tolist()
    assert str(loaded) == str(found)
    page = " ".join(loaded.to_html().split())
    for point, threshold in zip(found.table["point"][:-1], found.table["threshold"][:-1].tolist(), strict=True):
        assert re.search(rf"<th[^>]*>{re.escape(point)}</th> ?<td[^>]*>{threshold:.6g}</td>", page)
    assert "all accepted" in page
    assert page.count('<svg class="plot"') == 5


def test_a_chart_has_the_rates_and_intervals_of_the_table():
    """One of two non-mated queries has no kept row: it is never accepted, and it counts."""
    rng = np.random.default_rng(0)
    pids = np.array([*range(6), 6, 7])
    features = rng.standard_normal((8, 4)).astype(np.float32)
    query = FeatureSet.from_arrays(features, pids, [1] * 7 + [0])
    gallery = FeatureSet.from_arrays(rng.standard_normal((12, 4)).astype(np.float32), np.arange(12) % 6, [0] * 12)
    protocol = compose_protocol("other_cameras", base="market1501", junk=[["camid"]])
    edges = operating_points(query, gallery, protocol=protocol).histograms["top_matches"]["edge"].tolist()
    found = operating_points(query, gallery, protocol=protocol, prior=0.2, thresholds=edges[1:])
    assert found.counts["n_non_mated"] == 2
    charts = operating_section(found.to_dict())["charts"]
    points = point_table(found.to_dict())
    thresholds = [cell.text for cell in points.column("threshold")]
    lines = {layer.name: layer for layer in charts[2].chart.layers if isinstance(layer, Line)}
    bands = {layer.name: layer for layer in charts[2].chart.layers if isinstance(layer, Band)}
    assert set(bands) <= set(lines) == {"precision", "1 - FNIR", "FPIR"}
    for name in ("FPIR", "precision"):
        by_threshold = dict(zip(thresholds, points.column(name), strict=True))
        cells = [by_threshold[f"{edge:.6g}"] for edge in edges[1:]]
        np.testing.assert_array_equal(lines[name].y[1:], [cell.value for cell in cells])
        if name in bands:
            ends = [(np.nan, np.nan) if cell.ends is None else cell.ends[1:] for cell in cells]
            np.testing.assert_array_equal(np.column_stack([bands[name].low, bands[name].high])[1:], ends)
    assert lines["FPIR"].y[-1] == 0.5
    for chart, upright in zip(charts, (True, True, False, False, False), strict=True):
        assert {layer.upright for layer in chart.chart.layers if isinstance(layer, Band)} == {upright}
    plain = operating_section(operating_points(query, gallery, protocol=protocol, confidence=None).to_dict())["charts"]
    assert not any(isinstance(layer, Band) for chart in plain for layer in chart.chart.layers)
