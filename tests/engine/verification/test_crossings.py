"""The search for exact thresholds: brackets, refinement, ties and capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from exact_products import use_integers
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling import examples

from reid_dist.core.environment import has_integers as has_library
from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import (
    BracketCounts,
    CollectImpostors,
    CountImpostors,
    FallingScale,
    FeatureBlock,
    ImpostorHistogram,
    KeyCounts,
    Precision,
    Reduction,
    TileView,
    Visibility,
    add_histograms,
    bands,
    combine_brackets,
    costs,
    ordered_keys,
)
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.engine.verification import Level, ThresholdSearch, crossings, guesses_of_histogram, wanted_levels
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.kernels.impostors import falling_keys
from reid_dist.metrics.definitions import parse_metrics

METRICS = ["EER", "TAR@FAR=0", "TAR@FAR=1e-3", "TAR@FAR=0.37", "TAR@FAR=1"]


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

    def reduce(self, reduction: Reduction, combine, cuts, tile):
        """Run over the gallery in blocks, merged in a tree that leans to one side."""
        query = FeatureBlock(np.arange(len(self.query)), self.query, squared_norms(self.query))
        merged = None
        for start, stop in zip([0, *cuts], [*cuts, len(self.gallery)], strict=True):
            if start == stop:
                continue
            features = np.ascontiguousarray(self.gallery[start:stop])
            block = FeatureBlock(np.arange(start, stop), features, squared_norms(features))
            (found,) = run_tiles(query, block, self.distance, TileShape(*tile), [reduction], policy=Policy.in_force())
            merged = found if merged is None else combine([found, merged])
        return merged


def search_through(problem, levels, genuine, n_impostor, capacity, cuts, tile):
    """Search to the end; return the crossings and the number of passes."""
    histogram = problem.reduce(CountImpostors(problem.visibility()), add_histograms, cuts, tile)
    assert histogram.counts.total == n_impostor
    scale = FallingScale(problem.distance.squared)
    search = ThresholdSearch(guesses_of_histogram(levels, genuine, n_impostor, histogram, scale), genuine)
    n_passes = 0
    while edges := search.edges:
        assert list(edges) == sorted(edges)
        reduction = CollectImpostors(problem.visibility(), edges, capacity)
        counts = problem.reduce(reduction, combine_brackets, cuts, tile)
        assert sum(map(len, counts.inside)) <= max(capacity, 4 * len(counts.inside))
        search.update(counts)
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
    has_integers=st.booleans(),
    data=st.data(),
)
@settings(max_examples=examples(120))
def test_levels_are_found_exactly(seed, kind, name, n_query, n_gallery, dim, capacity, few, tile, has_integers, data):
    """Many ties, a minimal capacity, features that screening cannot distinguish: all levels are exact."""
    problem = Problem.make(seed, kind, name, n_query, n_gallery, dim)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), exact[~problem.hidden]
    assume(len(genuine))
    assume(len(impostors))
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    cuts = sorted(data.draw(st.lists(st.integers(0, n_gallery), max_size=2)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossings, "FEW_PAIRS", few)
        if has_integers and has_library():
            use_integers(patch)
            # Products of integers cost least, wherever the pairs lie; tiles are left to float32 at once or never.
            patch.setattr(costs, "cost_of", lambda precision, dim, share, table=None: int(precision) + 0.0 * share)
            most = data.draw(st.sampled_from([0, 50, 10**9]))
            patch.setattr(bands, "most_inside", lambda size, given_up: most)
        found, _ = search_through(problem, levels, genuine, len(impostors), capacity, cuts, tile)
    for level in levels:
        crossing = found[level]
        assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


@pytest.mark.parametrize("seed", [7, 13, 24])
def test_genuine_distances_lose_as_many_bits_as_the_keys_beside_them(seed):
    """Clusters, whose few keys leave out many bits: the equal error rate lies at a genuine pair among them."""
    problem = Problem.make(seed, "clusters", "euclidean", 8, 700, 3)
    genuine, impostors = np.sort(problem.exact[problem.genuine]), problem.exact[~problem.hidden]
    (level,) = wanted_levels(parse_metrics(["EER"]), False, len(genuine), len(impostors))
    found, _ = search_through(problem, [level], genuine, len(impostors), 1, [], (512, 2048))
    crossing = found[level]
    assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


@pytest.mark.slow
def test_one_pass_is_enough_as_a_rule():
    problem = Problem.make(7, "normal", "cosine", 60, 6000, 64)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), np.sort(exact[~problem.hidden])
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    found, n_passes = search_through(problem, levels, genuine, len(impostors), 2**18, [2500], (512, 2048))
    assert n_passes == 1
    for level in levels:
        if not level.per_genuine:
            assert found[level].distance == impostors[level.wanted - 1]
    # With a tiny capacity, more passes find the same.
    again, n_passes = search_through(problem, levels, genuine, len(impostors), 50, [2500], (512, 2048))
    assert n_passes > 2
    assert again == found


@pytest.mark.slow
def test_a_crowded_tile_is_screened_again(monkeypatch):
    problem = Problem.make(9, "collapsed", "cosine", 20, 700, 30)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), np.sort(exact[~problem.hidden])
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    times = []
    read = TileView.read
    monkeypatch.setattr(
        TileView, "read", lambda tile, precision, *needed: times.append(precision) or read(tile, precision, *needed)
    )
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
        for level in wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors)):
            low, high = bins.guesses(level)[-1]
            at = ordered_keys(np.array([by_definition(level, genuine, impostors)[0]]))[0]
            # Squares, and roots of them, are rounded.
            slack = 4 if squared else 0
            assert low - slack <= at < high + slack


def test_contradicting_counts_are_refused():
    genuine, histogram = np.array([1.0]), ImpostorHistogram(KeyCounts.of(falling_keys(np.ones(5))), 1e-3)
    search = ThresholdSearch(
        guesses_of_histogram([Level(1, 0, 1)], genuine, 5, histogram, FallingScale(False)), genuine
    )
    none = KeyCounts.of(np.empty(0, np.int64))
    n_brackets = len(search.edges) // 2
    impossible = BracketCounts(np.zeros(n_brackets, np.int64), (none,) * n_brackets, 4)
    # No pair nearer than the bracket and none in it: the level is farther, where no pair is either.
    search.update(impossible)
    with pytest.raises(DamagedStoreError, match="an input was changed while in use"):
        search.update(impossible)
