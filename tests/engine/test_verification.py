"""The search for exact thresholds: brackets, refinement, ties, capacity, and what surrounds it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling import examples

import reid_dist.engine.reductions.impostors as impostor_reductions
from reid_dist import FeatureSet, LabelledRows, evaluate, evaluate_distances
from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine import plan
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.plan import Besides, SetShape, TileShape, make_plan
from reid_dist.engine.reductions import (
    CollectImpostors,
    CountImpostors,
    FallingScale,
    FeatureBlock,
    ImpostorHistogram,
    KeyCounts,
    Precision,
    Reduction,
    Tile,
    Visibility,
    distance_of,
    ordered_keys,
)
from reid_dist.engine.task_graph import Progress
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.engine.verification import ROC_RATES, Level, Pairs, ThresholdSearch, crossings, wanted_levels
from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.kernels.impostors import falling_keys
from reid_dist.metrics.definitions import parse_metrics
from reid_dist.relevance.protocols import PROTOCOLS, compose_protocol
from reid_dist.stores import DistanceBlock

finite = st.floats(allow_nan=False, allow_infinity=False)
METRICS = ["EER", "TAR@FAR=0", "TAR@FAR=1e-3", "TAR@FAR=0.37", "TAR@FAR=1"]


# ------------------------------------------------------------------------------------------------ counts by key


@given(values=st.lists(finite | st.sampled_from([0.0, -0.0, 5e-324, -5e-324]), min_size=1, max_size=30))
def test_ordered_keys(values):
    keys = ordered_keys(np.array(values))
    assert np.argsort(keys, kind="stable").tolist() == np.argsort(np.array(values), kind="stable").tolist()
    assert [distance_of(int(key)) for key in keys] == values
    assert len(set(keys.tolist())) == len(set(values)), "-0.0 is 0.0"


def test_neighbouring_numbers_have_neighbouring_keys():
    for value in (0.25, -3.0, 1e300, 0.0):
        keys = ordered_keys(np.array([value, np.nextafter(value, np.inf)]))
        # No number lies between; the key between -5e-324 and 0 belongs to -0.0, which is none of its own.
        assert keys[1] - keys[0] == 1


@given(
    parts=st.lists(st.lists(st.integers(-(2**62), 2**62) | st.integers(-20, 20), max_size=30), min_size=1, max_size=4),
    size=st.integers(2, 9),
)
def test_counts_by_key_lose_bits_and_never_a_count(parts, size):
    whole = impostor_reductions.add_key_counts([KeyCounts.of(np.array(part, np.int64)) for part in parts])
    every = [key for part in parts for key in part]
    assert whole.key.tolist() == sorted(set(every))
    assert whole.count.tolist() == [every.count(key) for key in sorted(set(every))]
    small = whole.shrunk(size)
    assert len(small) <= size
    assert small.total == len(every)
    assert small.key.tolist() == sorted({key >> small.shift for key in every})
    assert small.shift == 0 or len({key >> (small.shift - 1) for key in every}) > size, "no bit more than it takes"
    # Parts that lost different bits add up to the same.
    shifted = [KeyCounts.of(np.array(part, np.int64)).shrunk(size) for part in parts]
    added = impostor_reductions.add_key_counts(shifted)
    again = whole.shifted(added.shift)
    assert (added.key.tolist(), added.count.tolist()) == (again.key.tolist(), again.count.tolist())


# ---------------------------------------------------------------------------------------------------- the search


@dataclass(frozen=True)
class Problem:
    """A block of queries against a gallery: who is genuine, who is hidden, and all distances for the oracle."""

    query: np.ndarray
    gallery: np.ndarray
    genuine: np.ndarray
    hidden: np.ndarray
    distance: Distance

    @classmethod
    def make(cls, seed, kind, name, n_query, n_gallery, dim):
        rng = np.random.default_rng(seed)
        n = n_query + n_gallery
        normal = rng.standard_normal((n, dim))
        made = {
            "normal": normal,
            "few values": rng.integers(-1, 3, (n, dim)),
            "collapsed": 1 + 1e-4 * normal,
            "one value": np.ones((n, dim)),
            "an outlier": np.where(np.arange(n)[:, None] == rng.integers(0, n), 1e6, 1) * normal,
            "clusters": normal[rng.integers(0, 3, n)] + 0.01 * normal,
        }
        features = read_only(made[kind].astype(np.float32))
        genuine = rng.random((n_query, n_gallery)) < 0.05
        hidden = genuine | (rng.random((n_query, n_gallery)) < 0.05)
        return cls(features[:n_query], features[n_query:], genuine, hidden, DISTANCES.get(name))

    @property
    def exact(self):
        n_query, n_gallery = self.genuine.shape
        rows = PairRows(self.distance.kind, self.query, self.gallery, *map(squared_norms, (self.query, self.gallery)))
        i, j = np.divmod(np.arange(n_query * n_gallery), n_gallery)
        return pair_distances(rows, i, j).reshape(n_query, n_gallery)

    def visibility(self):
        columns = [np.flatnonzero(row) for row in self.hidden]
        hidden = Hidden(np.cumsum([0, *map(len, columns)]), np.concatenate(columns).astype(np.int64), None, True)
        mask = GalleryMask(np.zeros(len(self.gallery), bool), None)
        return Visibility(
            hidden, mask, np.ones(len(self.query), bool), self.distance, FallingScale(self.distance.squared)
        )

    def reduce(self, reduction: Reduction, cuts, tile):
        """Run over the gallery in blocks, merged in a tree that leans to one side."""
        query = FeatureBlock(np.arange(len(self.query)), self.query, squared_norms(self.query))
        merged = None
        for start, stop in zip([0, *cuts], [*cuts, len(self.gallery)], strict=True):
            if start == stop:
                continue
            features = np.ascontiguousarray(self.gallery[start:stop])
            block = FeatureBlock(np.arange(start, stop), features, squared_norms(features))
            (partial,) = run_tiles(query, block, self.distance, TileShape(*tile), [reduction])
            merged = partial if merged is None else reduction.combine([partial, merged])
        return merged


def search_through(problem, levels, genuine, n_impostor, capacity, cuts, tile):
    """Search to the end; return the crossings and the number of passes."""
    histogram = problem.reduce(CountImpostors(problem.visibility()), cuts, tile)
    assert histogram.counts.total == n_impostor
    search = ThresholdSearch(levels, genuine, n_impostor, histogram, FallingScale(problem.distance.squared))
    n_passes = 0
    while edges := search.edges:
        assert list(edges) == sorted(edges)
        counts = problem.reduce(CollectImpostors(problem.visibility(), edges, capacity), cuts, tile)
        assert sum(map(len, counts.inside)) <= max(capacity, 4 * len(counts.inside))
        search.take(counts)
        n_passes += 1
        assert n_passes < 30
    return search.found, n_passes


def by_definition(level, genuine, impostors):
    """The first of all distances at which enough pairs are accepted, one by one."""
    for at in np.unique(np.concatenate([genuine, impostors])).tolist():
        up_to = int((impostors <= at).sum())
        if level.reached(up_to, int((genuine <= at).sum())):
            return at, int((impostors < at).sum()), up_to
    raise AssertionError("all pairs together are enough")


@given(
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["normal", "few values", "collapsed", "one value", "an outlier", "clusters"]),
    name=st.sampled_from(DISTANCES.names()),
    n_query=st.integers(1, 12),
    n_gallery=st.sampled_from([2, 40, 700]),
    dim=st.sampled_from([1, 3, 40]),
    capacity=st.sampled_from([1, 64, 2**18]),
    few=st.sampled_from([4, 4096]),
    tile=st.sampled_from([(512, 2048), (5, 33)]),
    data=st.data(),
)
@settings(max_examples=examples(120))
def test_levels_are_found_exactly(seed, kind, name, n_query, n_gallery, dim, capacity, few, tile, data):
    """Many ties, a minimal capacity, features that screening cannot distinguish: all levels are exact."""
    problem = Problem.make(seed, kind, name, n_query, n_gallery, dim)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), exact[~problem.hidden]
    assume(len(genuine))
    assume(len(impostors))
    levels = wanted_levels(parse_metrics(METRICS), True, Pairs(genuine, len(impostors)))
    cuts = sorted(data.draw(st.lists(st.integers(0, n_gallery), max_size=2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossings, "FEW_PAIRS", few)
        found, _ = search_through(problem, levels, genuine, len(impostors), capacity, cuts, tile)
    for level in levels:
        crossing = found[level]
        assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


def test_one_pass_is_enough_as_a_rule():
    problem = Problem.make(7, "normal", "cosine", 60, 6000, 64)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), np.sort(exact[~problem.hidden])
    levels = wanted_levels(parse_metrics(METRICS), True, Pairs(genuine, len(impostors)))
    found, n_passes = search_through(problem, levels, genuine, len(impostors), 2**18, [2500], (512, 2048))
    assert n_passes == 1
    for level in levels:
        if not level.per_genuine:
            assert found[level].distance == impostors[level.wanted - 1]
    # With a tiny capacity, more passes find the same.
    again, n_passes = search_through(problem, levels, genuine, len(impostors), 50, [2500], (512, 2048))
    assert n_passes > 2
    assert again == found


def test_a_crowded_tile_is_screened_again(monkeypatch):
    problem = Problem.make(9, "collapsed", "cosine", 20, 700, 30)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), np.sort(exact[~problem.hidden])
    levels = wanted_levels(parse_metrics(METRICS), True, Pairs(genuine, len(impostors)))
    times = []
    read = Tile.read
    monkeypatch.setattr(Tile, "read", lambda tile, precision: times.append(precision) or read(tile, precision))
    found, _ = search_through(problem, levels, genuine, len(impostors), 2**18, [], (8, 100))
    assert Precision.WIDE in times
    assert all(found[level].distance == by_definition(level, genuine, impostors)[0] for level in levels)


@given(
    impostors=st.lists(st.floats(0, 4), min_size=1, max_size=80),
    genuine=st.lists(st.floats(0, 4), min_size=1, max_size=10),
    error=st.sampled_from([0.0, 1e-6, 1e-3, 0.3]),
    squared=st.booleans(),
    few=st.sampled_from([1, 4096]),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_histogram_brackets_every_level(impostors, genuine, error, squared, few, seed):
    """For all screening errors within their bound, the second guess contains the level."""
    impostors, genuine = np.sort(np.array(impostors)), np.sort(np.array(genuine))
    falling = impostors**2 if squared else impostors
    off = falling + np.random.default_rng(seed).choice([-error, 0, error], len(falling))
    histogram = ImpostorHistogram(KeyCounts.of(falling_keys(off.astype(np.float32).astype(np.float64))), error + 1e-37)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossings, "FEW_PAIRS", few)
        bins = crossings._Bins(histogram, genuine, len(impostors), FallingScale(squared))
        for level in wanted_levels(parse_metrics(METRICS), True, Pairs(genuine, len(impostors))):
            low, high = bins.guesses(level)[-1]
            at = ordered_keys(np.array([by_definition(level, genuine, impostors)[0]]))[0]
            # Squares, and roots of them, are rounded.
            slack = 4 if squared else 0
            assert low - slack <= at < high + slack


def test_contradicting_counts_are_refused():
    search = ThresholdSearch(
        [Level(1, 0, 1)],
        np.array([1.0]),
        5,
        ImpostorHistogram(KeyCounts.of(falling_keys(np.ones(5))), 1e-3),
        FallingScale(False),
    )
    none = KeyCounts.of(np.empty(0, np.int64))
    n_brackets = len(search.edges) // 2
    impossible = impostor_reductions.BracketCounts(np.zeros(n_brackets, np.int64), (none,) * n_brackets)
    # No pair nearer than the bracket and none in it: the level is farther, where no pair is either.
    search.take(impossible)
    with pytest.raises(DamagedStoreError, match="an input was changed while in use"):
        search.take(impossible)


# ---------------------------------------------------------------------------------------------- whole evaluations


@cache
def sets():
    """Features of few values, so that pairs of different queries tie; two cameras, junk, non-mated queries."""
    rng = np.random.default_rng(5)
    features = rng.integers(-1, 3, (540, 6)).astype(np.float32)
    pids, camids = rng.integers(-1, 15, 540), rng.integers(0, 2, 540)
    query = FeatureSet.from_arrays(features[:40], np.where(np.arange(40) < 8, 77, pids[:40]), camids[:40])
    return query, FeatureSet.from_arrays(features[40:], pids[40:], camids[40:], allow_zero=True)


ASKED = ["mAP", "TAR@FAR=0.01", "TAR@FAR=0.5", "EER", "DIR@FAR=0.2"]


@cache
def plain_report(distance="sqeuclidean"):
    return evaluate(*sets(), distance=distance, metrics=ASKED, roc=True)


@pytest.mark.parametrize("chunk_rows", [5, 64, 300])
def test_chunks_do_not_matter(chunk_rows):
    report = evaluate(*sets(), distance="sqeuclidean", metrics=ASKED, roc=True, chunk_rows=chunk_rows)
    assert report.result_digest == plain_report().result_digest
    assert report.verification == plain_report().verification


def test_capacity_does_not_matter(monkeypatch):
    monkeypatch.setattr(plan, "_MOST_COUNTS", 5)
    monkeypatch.setattr(plan, "_FEWEST_COUNTS", 5)
    report = evaluate(*sets(), distance="sqeuclidean", metrics=ASKED, roc=True, chunk_rows=100)
    assert report.result_digest == plain_report().result_digest
    assert report.verification == plain_report().verification


@pytest.mark.slow
def test_a_cluster_does_not_matter(two_workers, tmp_path):
    query, gallery = sets()
    whole = [each.save(tmp_path / f"{side}.zarr", chunk_rows=90) for side, each in (("query", query), ("all", gallery))]
    report = evaluate(*whole, distance="sqeuclidean", metrics=ASKED, roc=True, client=two_workers)
    assert report.result_digest == plain_report().result_digest
    assert report.verification == plain_report().verification


def tiny_rates():
    """Digest and verification of some queries of the sets."""
    query, gallery = sets()
    few = FeatureSet.from_arrays(query.read(0, 12), query.pids[:12], query.camids[:12])
    report = evaluate(few, gallery, distance="cosine", metrics=ASKED, roc=True)
    return [report.result_digest, json.loads(json.dumps(report.verification))]


@pytest.mark.slow
def test_kernels_in_python_give_the_same(python_kernels):
    assert python_kernels.call(tiny_rates) == tiny_rates()


@pytest.mark.parametrize("distance", DISTANCES.names())
def test_rates_of_the_curve_are_those_of_the_metric(distance):
    query, gallery = sets()
    names = [f"TAR@FAR={rate}" for rate in ROC_RATES]
    report = evaluate(query, gallery, distance=distance, metrics=names, roc=True)
    assert report.curves["ROC_TAR"].tolist() == list(report.metrics.values())
    assert report.curves["ROC_threshold"].tolist() == list(report.verification["thresholds"].values())
    assert report.curves["ROC_FAR"].tolist() == [float(rate) for rate in ROC_RATES]
    assert list(report.verification) == ["n_genuine", "n_impostor", "thresholds"]


class Stages(Progress):
    """Progress that records its calls."""

    def __init__(self):
        self.started, self.done = [], []

    def start(self, totals):
        self.started.append(totals)

    def advance(self, stage):
        self.done.append(stage)


def test_passes_are_a_stage_of_their_own():
    recorded = Stages()
    report = evaluate(*sets(), metrics=["EER"], progress=recorded)
    assert [list(totals) for totals in recorded.started][:2] == [["pairs", "sweep"], ["verification"]]
    assert "verification" in recorded.done
    assert list(report.timing) == ["plan", "pairs", "sweep", "verification", "metrics", "total"]
    assert all(seconds >= 0 for seconds in report.timing.values())
    assert sum(report.timing.values()) - report.timing["total"] <= report.timing["total"] * 1.01


def test_given_distances_of_any_size():
    """Negative ones, zeros of both signs, and some that a float32 cannot hold."""
    rng = np.random.default_rng(3)
    palette = np.array([-1e300, -1e39, -2.5, -1e-300, -0.0, 0.0, 1e-300, 0.7, 0.7000000000000001, 1e20, 1e39, 1e300])
    values = palette[rng.integers(0, len(palette), (20, 300))]
    values[rng.random(values.shape) < 0.3] = rng.standard_normal()
    pids = rng.integers(0, 8, 300), rng.integers(0, 8, 20)
    report = evaluate_distances(
        DistanceBlock.from_array(values),
        LabelledRows(pids[1]),
        LabelledRows(pids[0]),
        protocol="no_cameras",
        metrics=METRICS,
        roc=True,
        chunk_rows=64,
    )
    same = pids[1][:, None] == pids[0]
    genuine, impostors = np.sort(values[same]), np.sort(values[~same])
    levels = dict(zip(METRICS, expected_levels(genuine, impostors), strict=True))
    for name, level in levels.items():
        expected = math.inf if level is None else by_definition(level, genuine, impostors)[0]
        assert report.verification["thresholds"][name] == expected, name
        if name != "EER":
            assert report.metrics[name] == (genuine < expected).mean()


def expected_levels(genuine, impostors):
    """Levels of `METRICS`, in their order."""
    n, p = len(impostors), len(genuine)
    return [Level(p, n, n * p), Level(1, 0, 1), Level(1, 0, n // 1000 + 1), Level(1, 0, 37 * n // 100 + 1), None]


def test_queries_that_a_protocol_does_not_count_are_no_impostors():
    """A protocol for queries of one camera gives the results of an evaluation of these queries alone."""
    query, gallery = sets()
    one = compose_protocol("camera_1", base=PROTOCOLS.get("market1501"), query_cameras=(1,))
    kept = np.flatnonzero(query.camids == 1)
    alone = FeatureSet.from_arrays(query.read(0, 40)[kept], query.pids[kept], query.camids[kept])
    found = evaluate(query, gallery, protocol=one, metrics=ASKED, roc=True)
    expected = evaluate(alone, gallery, metrics=ASKED, roc=True)
    assert found.metrics == expected.metrics
    assert found.verification == expected.verification
    assert found.curves["ROC_threshold"].tolist() == expected.curves["ROC_threshold"].tolist()


def test_the_own_row_of_a_non_mated_query_is_junk():
    """Under another pid, too, a query's own row is junk: the nearest of the others counts."""
    places = np.array([[0.0], [10.0], [3.0], [50.0]], np.float32)
    gallery = FeatureSet.from_arrays(places, [1, 2, 3, 1], item_ids=[100, 101, 102, 103], allow_zero=True)
    query = FeatureSet.from_arrays(places[[0, 2]], [1, 99], item_ids=[100, 102], allow_zero=True)
    report = evaluate(query, gallery, protocol="same_set", distance="euclidean", metrics=["DIR@FAR=0"])
    assert report.verification == {"n_mated": 1, "n_non_mated": 1, "thresholds": {"DIR@FAR=0": 3.0}}


def test_a_non_mated_query_without_visible_rows_is_infinitely_far():
    protocol = compose_protocol("other_cameras", base=PROTOCOLS.get("market1501"), junk=(("camid",),))
    features = np.arange(6, dtype=np.float32)[:, None] + 1
    gallery = FeatureSet.from_arrays(features[:3], [1, 1, 2], [0, 1, 1])
    query = FeatureSet.from_arrays(features[3:5], [1, 9], [0, 0])
    report = evaluate(query, gallery, protocol=protocol, metrics=["DIR@FAR=0"], distance="euclidean")
    assert report.verification["thresholds"] == {"DIR@FAR=0": 2.0}
    gallery = FeatureSet.from_arrays(features[:3], [1, 1, 2], [1, 1, 1])
    query = FeatureSet.from_arrays(features[[0, 4]], [1, 9], [0, 1])
    report = evaluate(query, gallery, protocol=protocol, metrics=["DIR@FAR=0"], distance="euclidean")
    assert report.verification["thresholds"] == {"DIR@FAR=0": math.inf}
    assert report.metrics["DIR@FAR=0"] == 1.0


def test_open_set_without_non_mated_queries_is_refused_before_any_work():
    query, gallery = sets()
    mated = FeatureSet.from_arrays(query.read(8, 40), np.full(32, 3), query.camids[8:])
    recorded = Stages()
    with pytest.raises(InputError, match="take some identities out of the gallery"):
        evaluate(mated, gallery, metrics=["DIR@FAR=0.1"], progress=recorded)
    assert not recorded.started


def test_no_valid_query_is_reported_first():
    query, gallery = sets()
    unmated = FeatureSet.from_arrays(query.read(0, 8), np.full(8, 77), query.camids[:8])
    with pytest.raises(InputError, match="no query has a relevant gallery item"):
        evaluate(unmated, gallery, metrics=["TAR@FAR=0.1", "EER", "DIR@FAR=0.1"], roc=True)


def test_impostors_are_the_kept_negatives():
    report = plain_report()
    ranked_pairs = int(report.per_query["n_kept"].sum() - report.per_query["n_relevant"].sum())
    assert report.verification["n_impostor"] == ranked_pairs
    assert report.verification["n_genuine"] == report.counts["n_relevant"]
    assert report.verification["n_non_mated"] == 8


def test_memory_of_the_search_is_planned():
    shapes = SetShape(50_000, 128, 4, 8192), SetShape(10**6, 128, 4, 8192)
    without, searching = (make_plan(*shapes, n_threads=4, besides=Besides(pairs=pairs)) for pairs in (False, True))
    assert without.bracket_counts == 0
    assert searching.bracket_counts == 2**18
    assert searching.task_bytes >= without.task_bytes + 2**18 * 16 * 8
    assert searching.result_bytes >= without.result_bytes + 7 * 2**18 * 16
    # Many blocks of queries share the memory of the calling process; with little memory each task gets little.
    many = make_plan(SetShape(10**6, 128, 4, 8192), shapes[1], n_threads=4, besides=Besides(pairs=True))
    assert many.bracket_counts * many.n_query_blocks <= 2**22
    poor = make_plan(*shapes, n_threads=4, memory_per_thread=64 * 2**20, besides=Besides(pairs=True))
    assert poor.bracket_counts < 2**15
    assert poor.task_bytes <= 64 * 2**20
