"""The search for exact thresholds: brackets, refinement, ties and capacity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.exact_products import use_integers
from support.sampling import examples

from reid_dist.core.environment import has_integers as has_library
from reid_dist.core.model import GalleryMask, Hidden
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import bands, costs
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.impostor_counts import BracketCounts, CollectImpostors, Visibility, combine_brackets
from reid_dist.engine.reductions.key_counts import KeyCounts, ScreenScale, ordered_keys
from reid_dist.engine.reductions.reduction import Reduction
from reid_dist.engine.reductions.tile_products import TileView
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.engine.verification.crossings import Level, ThresholdSearch, crossings_of
from reid_dist.engine.verification.measures import wanted_levels
from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.metrics.metric import parse_metrics

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
        return Visibility(hidden, mask, np.ones(len(self.query), bool), ScreenScale(self.distance.squared))

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


def search_through(problem, levels, genuine, guessed, capacity, cuts, tile):
    """Search to the end, from guessed brackets; return the crossings and the number of passes."""
    search, edges, n_passes = ThresholdSearch(levels, genuine), guessed, 0
    while edges:
        assert list(edges) == sorted(edges)
        reduction = CollectImpostors(problem.visibility(), edges, capacity)
        counts = problem.reduce(reduction, combine_brackets, cuts, tile)
        assert sum(map(len, counts.inside)) <= max(capacity, 4 * len(counts.inside))
        search.update(counts)
        edges = search.edges
        n_passes += 1
        assert n_passes < 40
    return search.found, n_passes


EVERYTHING = (-np.inf, np.inf)


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
    tile=st.sampled_from([(512, 2048), (5, 33)]),
    has_integers=st.booleans(),
    data=st.data(),
)
@settings(max_examples=examples(120))
def test_levels_are_found_exactly(seed, kind, name, n_query, n_gallery, dim, capacity, tile, has_integers, data):
    """Many ties, a minimal capacity, features that screening cannot distinguish, any guess: all levels are exact."""
    problem = Problem.make(seed, kind, name, n_query, n_gallery, dim)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), exact[~problem.hidden]
    assume(len(genuine))
    assume(len(impostors))
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    cuts = sorted(data.draw(st.lists(st.integers(0, n_gallery), max_size=2)))
    places = st.sampled_from([0.0, *np.unique(impostors)[::7].tolist()])
    guessed = sorted(data.draw(st.lists(places, min_size=2, max_size=9)))
    guessed = (data.draw(st.sampled_from([-np.inf, guessed[0]])), *guessed[1 : len(guessed) // 2 * 2])
    with pytest.MonkeyPatch.context() as patch:
        if has_integers and has_library():
            use_integers(patch)
            # Products of integers cost least, wherever the pairs lie; tiles are left to float32 at once or never.
            patch.setattr(costs.Costs, "of", lambda _, precision, share: int(precision) + 0.0 * share)
            most = data.draw(st.sampled_from([0, 50, 10**9]))
            patch.setattr(bands, "most_inside", lambda size, given_up: most)
        found, _ = search_through(problem, levels, genuine, guessed, capacity, cuts, tile)
    for level in levels:
        crossing = found[level]
        assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


def counts_of(edges, impostors, size):
    """Counts of brackets from all distances, of at most so many keys each."""
    keys, at = ordered_keys(impostors), ordered_keys(np.array(edges)).tolist()
    below, inside, last = [], [], np.iinfo(np.int64).min
    for low, high in zip(at[::2], at[1::2], strict=True):
        below.append(int(((keys >= last) & (keys < low)).sum()))
        inside.append(KeyCounts.of(keys[(keys >= low) & (keys < high)]).shrunk(size))
        last = high
    return BracketCounts(np.array(edges), np.array(below), tuple(inside), size)


@given(
    centres=st.lists(st.floats(0, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    spread=st.sampled_from([1e-12, 1e-6, 1e-2]),
    n_impostor=st.integers(1, 400),
    n_genuine=st.integers(1, 30),
    size=st.sampled_from([2, 4, 50]),
)
def test_keys_without_their_lowest_bits_lead_to_the_level(centres, seed, spread, n_impostor, n_genuine, size):
    """Also where the level is a genuine pair whose key, without these bits, no impostor has."""
    rng = np.random.default_rng(seed)
    impostors, genuine = (rng.choice(centres, n) + spread * rng.standard_normal(n) for n in (n_impostor, n_genuine))
    genuine = np.sort(genuine)
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    search = ThresholdSearch(levels, genuine)
    for _ in range(70):
        if not search.edges:
            break
        search.update(counts_of(search.edges, impostors, size))
    for level in levels:
        crossing = search.found[level]
        assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


@pytest.mark.slow
def test_a_pass_more_finds_the_same_with_few_counts():
    problem = Problem.make(7, "normal", "cosine", 60, 6000, 64)
    exact = problem.exact
    genuine, impostors = np.sort(exact[problem.genuine]), np.sort(exact[~problem.hidden])
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    found, n_passes = search_through(problem, levels, genuine, EVERYTHING, 2**19, [2500], (512, 2048))
    assert n_passes == 1
    for level in levels:
        if not level.per_genuine:
            assert found[level].distance == impostors[level.wanted - 1]
    again, n_passes = search_through(problem, levels, genuine, EVERYTHING, 50, [2500], (512, 2048))
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
    found, _ = search_through(problem, levels, genuine, EVERYTHING, 2**18, [], (8, 100))
    assert Precision.WIDE in times
    assert all(found[level].distance == by_definition(level, genuine, impostors)[0] for level in levels)


@given(
    impostors=st.lists(st.floats(-4, 4) | st.sampled_from([0.0, -0.0, 1.0]), min_size=1, max_size=80),
    genuine=st.lists(st.floats(-4, 4) | st.sampled_from([0.0, 1.0]), min_size=1, max_size=10),
)
def test_levels_of_all_distances(impostors, genuine):
    impostors, genuine = np.array(impostors), np.sort(np.array(genuine))
    levels = wanted_levels(parse_metrics(METRICS), True, len(genuine), len(impostors))
    found = crossings_of(levels, impostors, genuine)
    for level in levels:
        crossing = found[level]
        assert (crossing.distance, crossing.nearer, crossing.up_to) == by_definition(level, genuine, impostors)


def test_contradicting_counts_are_refused():
    genuine, none = np.array([1.0]), KeyCounts.of(np.empty(0, np.int64))
    search = ThresholdSearch([Level(1, 0, 1)], genuine)
    # The level is farther than the bracket; then there is no pair where it must be.
    search.update(BracketCounts(np.array([0.5, 1.0]), np.zeros(1, np.int64), (none,), 4))
    with pytest.raises(DamagedStoreError, match="an input was changed while in use"):
        search.update(BracketCounts(np.array([0.5, 0.7]), np.ones(1, np.int64), (none,), 4))
