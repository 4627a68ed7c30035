"""The reduction of a ranking by group: one result for every division of the gallery, order of merging and precision."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.groups import rank_groups
from support.exact_products import begin_with_integers, use_integers, use_precisions
from support.row_blocks import rows_at_the_edge
from support.sampling import examples

from reid_dist import FeatureSet, evaluate
from reid_dist.core.model import Labels
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import bands, group_counts
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.group_counts import CountGroups, GroupCounts, combine_groups, group_bytes
from reid_dist.engine.reductions.targets import group_targets, place_starts
from reid_dist.engine.reductions.targets import rank_groups as rank_counted
from reid_dist.engine.reductions.tile_products import Precision
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import pair_distances, squared_norms
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.groups import GroupIndex
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stores.archive import decode, encode

MULTIPLIED = (Precision.INTEGERS, Precision.PLAIN, Precision.WIDE)
SEEDS = st.integers(0, 2**32 - 1)
WHOLE = TileShape(512, 2048)
DISTANCE = DISTANCES.get("sqeuclidean")


class Case:
    """A block of queries against a gallery of groups: the reduction, and the ranks by definition."""

    def __init__(self, seed, n_gallery=90, n_groups=25, protocol="market1501", spread=3, dim=5) -> None:
        rng = np.random.default_rng(seed)
        sizes = (12, n_gallery)
        # Sums of small integers are exact, whatever their order.
        self.features = [rng.integers(-spread, spread + 1, (n, dim)).astype(np.float32) for n in sizes]
        labels = [Labels(rng.integers(-1, 5, n), rng.integers(0, 3, n), np.arange(n)) for n in sizes]
        self.track = rng.integers(0, n_groups, n_gallery)
        far = Labels(labels[1].pids, labels[1].camids, labels[1].item_ids, {"track": self.track})
        index = GalleryIndex(far, PROTOCOLS.get(protocol))
        groups = GroupIndex(far, "track", index.mask)
        assigned = assign_relevance(PROTOCOLS.get(protocol), labels[0], index)
        self.relevance = groups.with_members(assigned, listed=False)
        indptr, row = self.relevance.listed
        owner = np.repeat(np.arange(sizes[0]), np.diff(indptr))
        exact = pair_distances(pair_rows(DISTANCE, self.block(0), self.block(1)), owner, row)
        self.thresholds = group_targets(self.relevance, exact, first_alone=False)
        self.reduction = CountGroups(self.thresholds, index.mask, groups.groups)
        same_pid, same_camera = (
            near[:, None] == other for near, other in ((labels[0].pids, far.pids), (labels[0].camids, far.camids))
        )
        hidden = same_camera if protocol == "cuhk03_separate_cameras" else same_pid & same_camera
        self.junk = hidden | (far.pids == -1)
        self.relevant = same_pid & ~self.junk
        self.exact = ((self.features[0][:, None].astype(np.float64) - self.features[1]) ** 2).sum(axis=-1)

    def block(self, side, rows=slice(None)):
        features = self.features[side][rows]
        numbers = np.arange(len(self.features[side]))[rows]
        return FeatureBlock(numbers, features, squared_norms(features))

    def partials(self, bounds, tile=WHOLE) -> list[GroupCounts]:
        parts = [self.block(1, slice(start, stop)) for start, stop in pairwise(bounds)]
        return [
            run_tiles(self.block(0), part, DISTANCE, tile, [self.reduction], policy=Policy.in_force())[0]
            for part in parts
        ]

    def combine(self, partials):
        return combine_groups(partials, self.reduction.groups.size)

    def ranks(self, merged):
        assert not len(merged.group)
        return rank_counted(self.relevance, self.thresholds, [merged.count])

    def assert_right(self, ranked):
        for q in range(len(self.exact)):
            own = slice(ranked.indptr[q], ranked.indptr[q + 1])
            expected, n_groups = rank_groups(self.exact[q], self.relevant[q], self.junk[q], self.track)
            assert ranked.rank[own].tolist() == expected.ranks
            best = ranked.rank[own] - ranked.tied_before[own]
            assert best.tolist() == expected.optimistic
            assert (best + ranked.tied[own]).tolist() == expected.pessimistic
            assert ranked.n_kept[q] == n_groups


@settings(max_examples=examples(60))
@given(
    seed=SEEDS,
    n_groups=st.sampled_from([1, 3, 25, 200]),
    protocol=st.sampled_from(["market1501", "cuhk03_separate_cameras"]),
    data=st.data(),
)
def test_any_division_merged_in_any_order_gives_one_result(seed, n_groups, protocol, data):
    case = Case(seed, n_groups=n_groups, protocol=protocol)
    n_cuts = data.draw(st.integers(0, 12))
    cuts = sorted({0, 90, *np.random.default_rng(seed).integers(1, 90, n_cuts).tolist()})
    partials = case.partials(cuts, TileShape(data.draw(st.integers(1, 12)), data.draw(st.integers(1, 40))))
    order = data.draw(st.permutations(range(len(partials))))
    split = data.draw(st.integers(0, len(partials)))
    first, rest = [partials[i] for i in order[:split]], [partials[i] for i in order[split:]]
    merged = case.combine([case.combine(part) for part in (first, rest) if part])
    ranked = case.ranks(merged)
    case.assert_right(ranked)
    (whole,) = case.partials([0, 90])
    for name in ("rank", "tied", "tied_before", "row", "distance", "n_kept"):
        assert np.array_equal(getattr(ranked, name), getattr(case.ranks(whole), name)), name


@pytest.mark.parametrize("precisions", [*([each] for each in MULTIPLIED), MULTIPLIED])
def test_every_precision_gives_one_result(monkeypatch, precisions):
    """Also where tiles are left to the next precision at once."""
    pytest.importorskip("onnxruntime")
    use_integers(monkeypatch)
    use_precisions(monkeypatch, lambda n: np.random.default_rng(0).choice(precisions, n))
    for spread, dim, most in ((1, 300, None), (3, 5, 0), (3, 5, 10)):
        if most is not None:
            monkeypatch.setattr(bands, "most_inside", lambda size, given_up, most=most: most)
        case = Case(3, n_gallery=400, n_groups=60, spread=spread, dim=dim)
        case.assert_right(case.ranks(case.combine(case.partials([0, 150, 400], TileShape(5, 90)))))


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_tie_at_the_edge_of_a_bound_stays_one(monkeypatch, sign):
    """A group behind the relevant one, at its distance: its integers are off by nearly all of the bound."""
    pytest.importorskip("onnxruntime")
    begin_with_integers(monkeypatch)
    query, row = rows_at_the_edge(512, sign)
    nearer = np.ones((90, 512), np.float32)
    rows = np.concatenate([row, row, -nearer[:3], nearer])
    pids = np.arange(1, len(rows) + 1)
    sides = [FeatureSet.from_arrays(query, [1], [0]), FeatureSet.from_arrays(rows, pids, np.ones(len(rows), int))]
    report = evaluate(*sides, metrics=["mAP"], collapse="pid", confidence=None)
    assert report.environment["products"] == "int8"
    assert report.metrics["mAP"] == 1 / 91


def test_crowded_bands_are_screened_again():
    # Two values per feature: nearly all pairs are tied with a threshold.
    case = Case(4, n_gallery=600, n_groups=80, spread=1)
    case.assert_right(case.ranks(case.combine(case.partials([0, 600], TileShape(4, 600)))))


def test_groups_within_one_block_leave_no_entries():
    case = Case(5, n_gallery=200)
    (whole,) = case.partials([0, 200])
    assert len(whole.entry) == 0
    assert whole.count.sum() > 0
    halves = case.partials([0, 100, 200])
    assert all(len(each.entry) > 0 for each in halves)
    # At most one entry per query and group.
    assert max(len(each.entry) for each in halves) <= 12 * 25


@pytest.mark.parametrize("dtype", [np.uint16, np.uint32])
def test_any_number_of_places(monkeypatch, dtype):
    """More than 255 places of a query; blocks of few groups and of many."""
    case = Case(0, n_gallery=2000, n_groups=1000)
    assert np.diff(place_starts(case.thresholds)).max() > 255
    monkeypatch.setattr(group_counts, "_place_type", lambda start: np.dtype(dtype))
    parts = case.partials([0, 200, 1000, 1020, 2000])
    (first, last) = (case.combine(some) for some in (parts[:3], parts[3:]))
    case.assert_right(case.ranks(case.combine([first, last])))


def test_partial_results_in_a_workspace_are_read_as_they_were():
    case = Case(6, n_gallery=200)
    halves = [decode(encode(part), [GroupCounts]) for part in case.partials([0, 100, 200])]
    case.assert_right(case.ranks(case.combine(halves)))


def test_projected_memory_depends_on_groups_that_lie_in_several_blocks():
    rows = np.arange(100_000)
    in_order, scattered = rows // 5, rows % 20_000
    assert group_bytes(in_order, 1000, 5.0) < group_bytes(scattered, 1000, 5.0)
    assert group_bytes(scattered, 1000, 5.0) < 4 * 2**20
