"""The single-shot reduction: the expectation over all draws, for every division of the gallery, within its bounds."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.exact_products import use_integers, use_precisions
from support.python_kernels import PythonKernels
from support.sampling import examples

from reid_dist import FeatureSet, LabelledRows, compose_protocol, evaluate, evaluate_distances
from reid_dist.core.model import GalleryMask, Hidden, Labels, RowRange
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions import bands, single_shot_counts
from reid_dist.engine.reductions.bands import number_bits
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.identities import MOST_OVERSIZED, OVERSIZED_ITEMS, Identities, oversized_groups
from reid_dist.engine.reductions.single_shot_counts import (
    ListBefore,
    ListedItems,
    SingleShot,
    combine_lists,
    inactive_mass,
    longest_list,
)
from reid_dist.engine.reductions.targets import make_targets
from reid_dist.engine.reductions.tile_products import Precision, TileView
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import pair_distances, squared_norms
from reid_dist.relevance.assignment import GalleryIndex, assign_relevance
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stores import DistanceBlock

FOLDER = Path(__file__).parent
MULTIPLIED = (Precision.INTEGERS, Precision.PLAIN, Precision.WIDE)
SEEDS = st.integers(0, 2**32 - 1)
CURVE = "CMC_single_shot"
USUAL, WHOLE = SingleShot(50), TileShape(512, 2048)


class Gallery:
    """A block of queries against a gallery, with its reduction and the expectation by definition."""

    def __init__(self, query, gallery, protocol="cuhk03", distance="sqeuclidean", shot=USUAL) -> None:
        """Sides are (features, pids, camids) or (features, pids, camids, item_ids)."""
        self.distance = DISTANCES.get(distance)
        rules = PROTOCOLS.get(protocol)
        labels = [Labels(*map(np.asarray, (side[1], side[2], side[3] if len(side) > 3 else np.arange(len(side[1])))))
                  for side in (query, gallery)]  # fmt: skip
        self.features = [np.ascontiguousarray(side[0], np.float32) for side in (query, gallery)]
        index = GalleryIndex(labels[1], rules)
        self.pids, self.junk_row = labels[1].pids, index.mask.junk_row
        relevance = assign_relevance(rules, labels[0], index)
        near, far = self.block(0), self.block(1)
        owner = np.repeat(np.arange(len(near)), np.diff(relevance.relevant_indptr))
        exact = pair_distances(pair_rows(self.distance, near, far), owner, relevance.relevant_row)
        self.targets = make_targets(relevance, exact)
        self.identities = Identities.make(labels[1].pids, index.mask)
        self.reduction = ListBefore(self.targets, index.mask, self.identities, shot)
        i, j = np.divmod(np.arange(len(near) * len(far)), len(far))
        self.exact = pair_distances(pair_rows(self.distance, near, far), i, j).reshape(len(near), -1)
        self.hidden = [set() for _ in range(len(near))]
        for q, rows in enumerate(self.hidden):
            rows.update(relevance.hidden.row[relevance.hidden.indptr[q] : relevance.hidden.indptr[q + 1]].tolist())
            rows.update(np.flatnonzero(self.junk_row).tolist())
            if relevance.hidden.label is not None:
                rows.update(np.flatnonzero(labels[1].camids == relevance.hidden.label[q]).tolist())

    def block(self, side: int, rows: slice = slice(None)) -> FeatureBlock:
        features = self.features[side][rows]
        return FeatureBlock(np.arange(len(self.features[side]))[rows], features, squared_norms(features))

    def lists(self, block: int = 10**9, tile: TileShape = WHOLE) -> list[ListedItems]:
        query = self.block(0)
        starts = range(0, len(self.pids), block)
        parts = [self.block(1, slice(start, start + block)) for start in starts]
        return [
            run_tiles(query, part, self.distance, tile, [self.reduction], policy=Policy.in_force())[0] for part in parts
        ]

    def combine(self, lists: list[ListedItems]) -> ListedItems:
        return combine_lists(lists, self.identities, self.reduction.shot)

    def curves(self, lists: list[ListedItems], at_once: int = 10**9) -> np.ndarray:
        merged = self.combine(lists)
        n_query = len(self.features[0])
        rows = np.arange(100, 100 + n_query)
        cuts = [RowRange(start, min(n_query, start + at_once)) for start in range(0, n_query, at_once)]
        return np.concatenate([self.reduction.finish(merged, cut, rows) for cut in cuts])

    def chances(self, q: int) -> list[list[Fraction]]:
        """Of each positive, near to far, the chance p of every other identity to come before it."""
        start = self.targets.positive_indptr
        key = [(self.exact[q, row], row) for row in range(len(self.pids))]
        kept: dict[int, list[int]] = {}
        for row in set(range(len(self.pids))) - self.hidden[q]:
            kept.setdefault(int(self.pids[row]), []).append(row)
        return [
            [Fraction(sum(bool(key[row] < key[positive]) for row in rows), len(rows)) for rows in kept.values()]
            for positive in self.targets.positive_row[start[q] : start[q + 1]].tolist()
        ]

    def by_definition(self, q: int, max_rank: int) -> list[Fraction]:
        """P(K <= k - 1), from all identities and positives, in fractions."""
        positives = self.chances(q)
        curve = [Fraction(0)] * max_rank
        for chances in positives:
            distribution = [Fraction(1)] + [Fraction(0)] * (max_rank - 1)
            for p in chances:
                moved = [Fraction(0), *distribution[:-1]]
                distribution = [stay * (1 - p) + move * p for stay, move in zip(distribution, moved, strict=True)]
            for k in range(max_rank):
                curve[k] += sum(distribution[: k + 1]) / len(positives)
        return curve


def crowded(seed: int, n_query: int = 6, n_gallery: int = 300, n_pids: int = 40, n_distinct: int = 50, dim: int = 4):
    """Sides with many duplicates, in two cameras."""
    rng = np.random.default_rng(seed)
    distinct = rng.integers(-3, 4, (n_distinct, dim)).astype(np.float32)

    def side(n, lowest):
        return distinct[rng.integers(0, n_distinct, n)], rng.integers(lowest, n_pids, n), rng.integers(0, 2, n)

    return [side(n_query, 0), side(n_gallery, -1)]


# ---- the expectation -------------------------------------------------------------------------------------------------


@given(
    seed=SEEDS,
    protocol=st.sampled_from(["cuhk03", "cuhk03_separate_cameras", "no_cameras"]),
    distance=st.sampled_from(["sqeuclidean", "euclidean", "cosine"]),
    n_gallery=st.integers(1, 60),
    n_pids=st.integers(1, 12),
    n_distinct=st.integers(1, 30),
    max_rank=st.sampled_from([1, 3, 20]),
    block=st.sampled_from([1, 7, 100]),
)
@settings(max_examples=examples(60))
def test_it_is_the_expectation(seed, protocol, distance, n_gallery, n_pids, n_distinct, max_rank, block) -> None:
    sides = crowded(seed, 2, n_gallery, n_pids, n_distinct)
    case = Gallery(*sides, protocol, distance, SingleShot(max_rank))
    curves = case.curves(case.lists(block, TileShape(1, 5)))
    for q, curve in enumerate(curves):
        if np.diff(case.targets.positive_indptr)[q] == 0:
            assert np.isnan(curve).all()
        else:
            assert curve == pytest.approx([float(value) for value in case.by_definition(q, max_rank)], abs=1e-13)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n_draws", [None, 4])
@pytest.mark.parametrize("protocol", ["cuhk03", "cuhk03_separate_cameras"])
def test_blocks_tiles_and_order_do_not_matter(protocol: str, n_draws: int | None) -> None:
    case = Gallery(*crowded(1), protocol, shot=SingleShot(10, n_draws, 5))
    expected = case.curves(case.lists()).tobytes()
    for block, tile in ((1, TileShape(1, 1)), (37, TileShape(4, 10)), (150, TileShape(100, 7))):
        assert case.curves(case.lists(block, tile)).tobytes() == expected
    lists = case.lists(23)
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(len(lists))
        some = case.combine([lists[i] for i in order[:5]])
        others = [case.combine([lists[i]]) for i in order[5:]]
        assert case.curves([*others, some], at_once=2).tobytes() == expected


@pytest.mark.parametrize("precisions", [*([each] for each in MULTIPLIED), MULTIPLIED])
def test_every_precision_gives_one_result(precisions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where tiles are left to the next precision at once."""
    pytest.importorskip("onnxruntime")
    use_integers(monkeypatch)
    use_precisions(monkeypatch, lambda n: np.random.default_rng(0).choice(precisions, n))
    case = Gallery(*crowded(23), shot=SingleShot(4))
    for most in (10**9, 20, 0):
        monkeypatch.setattr(bands, "most_inside", lambda size, given_up, most=most: most)
        for q, curve in enumerate(case.curves(case.lists(130, TileShape(4, 50)))):
            if np.diff(case.targets.positive_indptr)[q]:
                assert curve == pytest.approx([float(value) for value in case.by_definition(q, 4)], abs=1e-13)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", ["cosine", "sqeuclidean"])
def test_crowded_bands_are_settled_in_float64(distance: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two opposite clusters of nearly equal features: float32 cannot distinguish them: bands are crowded."""
    rng = np.random.default_rng(7)
    direction = rng.normal(size=12)

    def side(n):
        side_of_zero = rng.choice([-100.0, 100.0], size=(n, 1))
        features = (side_of_zero * (direction + 1e-5 * rng.normal(size=(n, 12)))).astype(np.float32)
        return features, rng.integers(0, 9, n), np.zeros(n, int)

    case = Gallery(side(5), side(400), "no_cameras", distance, SingleShot(8))
    precisions = []
    read = TileView.read

    def recorded(self, precision, *others):
        precisions.append(precision)
        return read(self, precision, *others)

    monkeypatch.setattr(TileView, "read", recorded)
    curves = case.curves(case.lists(150, TileShape(3, 60)))
    assert precisions.count(Precision.WIDE) > 5
    for q, curve in enumerate(curves):
        assert curve == pytest.approx([float(value) for value in case.by_definition(q, 8)], abs=1e-13)


@pytest.mark.parametrize("other", [0, 8])
def test_junk_of_another_identity_is_hidden(other: int) -> None:
    """The query's own row has another pid in the gallery: that identity has one item less for this query."""
    query = (np.zeros((1, 1)), [1], [0], [50])
    gallery = (np.array([[9.0], [1.0], [0.0], [3.0]]), [other, other, other, 1], [1, 1, 1, 1], [1, 2, 50, 4])
    case = Gallery(query, gallery, "same_set", shot=SingleShot(2))
    assert case.curves(case.lists(2)).tolist() == [[0.5, 1.0]]
    unseen = Gallery((np.zeros((1, 1)), [1], [0], [51]), gallery, "same_set", shot=SingleShot(2))
    assert unseen.curves(unseen.lists(2))[0] == pytest.approx([1 / 3, 1.0])


def test_hidden_items_are_not_counted() -> None:
    """Of identity 0, four items with labels 5, 5, 8, 9: two are hidden by the label and one by its row."""
    pids, label = np.array([70, 70, 70, 70, 80, 80, 80, -1]), np.array([5, 5, 8, 9, 5, 5, 5, 5])
    identities = Identities.make(pids, GalleryMask(pids == -1, label))
    hidden = Hidden(np.array([0, 0, 0, 2]), np.array([3, 7]), np.array([7, 5, 8]), crosses=True)
    query, identity = np.arange(3).repeat(2), np.tile([0, 1], 3)
    assert identities.kept_items(hidden, query, identity).tolist() == [4, 3, 2, 0, 2, 3]


# ---- inactive positives ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_rank", [1, 2, 10, 50, 300])
def test_inactive_mass_is_large_enough_and_hardly_larger(max_rank: int) -> None:
    """Of all sums of trials with this mean the Poisson distribution, their limit, has the heaviest lower tail.

    Hoeffding, "On the distribution of the number of successes in independent trials", 1956.
    """

    def tail(mean: int) -> Decimal:
        term = total = Decimal(1)
        for k in range(1, max_rank):
            term = term * mean / k
            total += term
        return total * (-Decimal(mean)).exp()

    with localcontext() as context:
        context.prec = 60
        assert tail(inactive_mass(max_rank)) < Decimal(2) ** -80
        assert tail(int(inactive_mass(max_rank) * 0.9) - 5) > Decimal(2) ** -80


@given(seed=SEEDS, n=st.integers(1, 60), largest=st.sampled_from([1, 3, 40, 900]), mass=st.integers(1, 20))
def test_no_list_is_longer_than_its_bound(seed: int, n: int, largest: int, mass: int) -> None:
    """The most items that weigh no more than the limit, found greedily, which is the best for whole sizes."""
    size = np.random.default_rng(seed).integers(1, largest + 1, n)
    limit, most = mass << 32, 0
    for items in np.sort(size)[::-1].tolist():
        weight = (1 << 32) // items
        taken = min(items, limit // weight)
        most, limit = most + taken, limit - taken * weight
    assert most <= longest_list(size, mass) <= size.sum()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("max_rank", [1, 7])
def test_a_positive_is_inactive_beyond_the_limit_and_not_at_it(max_rank: int) -> None:
    mass = inactive_mass(max_rank)
    for n_before in (mass, mass + 1):
        line = np.arange(1.0, n_before + 2)[:, None]
        gallery = (line, np.append(np.arange(100, 100 + n_before), 1), np.ones(len(line), int))
        case = Gallery((np.zeros((1, 1)), [1], [0]), gallery, shot=SingleShot(max_rank))
        assert case.combine(case.lists(20)).active.tolist() == [n_before <= mass]


def listed_lengths(listed: ListedItems, case: Gallery) -> np.ndarray:
    """Entries of each query."""
    place = listed.entry >> number_bits(len(case.identities.pid))
    return np.bincount(np.searchsorted(listed.start, place, "right") - 1, minlength=len(listed.active))


def test_lists_that_are_pruned_on_the_way_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(6)
    pids = rng.integers(0, 700, 2400)
    gallery = (rng.normal(size=(2400, 3)), pids, np.ones(2400, int))
    query = (rng.normal(size=(9, 3)), rng.integers(0, 700, 9), np.zeros(9, int))
    case = Gallery(query, gallery, shot=SingleShot(2))
    (whole,) = case.lists(tile=TileShape(4, 100))
    assert 0 < whole.active.sum() < len(case.targets.positive_row)
    monkeypatch.setattr(single_shot_counts, "_MORE", 500)
    (pruned,) = case.lists(tile=TileShape(4, 100))
    assert np.array_equal(np.sort(pruned.entry), np.sort(whole.entry))
    assert np.array_equal(pruned.active, whole.active)


@pytest.mark.slow
def test_inactive_positives_count_as_misses() -> None:
    rng = np.random.default_rng(3)
    n_pids, per_pid = 300, 4
    pids = np.repeat(np.arange(n_pids), per_pid)
    gallery = (rng.normal(size=(len(pids), 3)), pids, np.ones(len(pids), int))
    query = (rng.normal(size=(25, 3)), rng.integers(0, n_pids, 25), np.zeros(25, int))
    case = Gallery(query, gallery, shot=SingleShot(2))
    merged = case.combine(case.lists(200))
    n_positive = np.diff(case.targets.positive_indptr)
    n_inactive = n_positive - merged.active
    assert n_inactive.sum() > 20
    assert (merged.active > 0).sum() > 5
    # Sharper than the proof: every positive beyond the limit, and none before it.
    for q in range(len(query[1])):
        mass = [sum(chances) for chances in case.chances(q)]
        assert merged.active[q] == sum(mean <= inactive_mass(2) for mean in mass)
    assert listed_lengths(merged, case).max() <= longest_list(case.identities.size, inactive_mass(2))
    curves = case.curves(case.lists())
    assert curves.tobytes() == case.curves(case.lists(61, TileShape(7, 13))).tobytes()
    for q, curve in enumerate(curves):
        for found, truth in zip(curve, case.by_definition(q, 2), strict=True):
            assert abs(Fraction(float(found)) - truth) <= Fraction(1, 2**80) + truth * Fraction(1, 2**44)


def test_oversized_groups_are_counted_and_not_listed() -> None:
    rng = np.random.default_rng(4)
    pids = rng.permutation(np.concatenate([np.zeros(1300, int), np.full(1100, 7), rng.integers(10, 40, 300)]))
    gallery = (rng.integers(-4, 5, (len(pids), 3)), pids, rng.integers(0, 2, len(pids)))
    query = (rng.integers(-4, 5, (6, 3)), np.array([10, 11, 12, 13, 0, 7]), np.zeros(6, int))
    for protocol in ("cuhk03", "cuhk03_separate_cameras"):
        case = Gallery(query, gallery, protocol, shot=SingleShot(6))
        assert case.identities.pid[case.identities.oversized].tolist() == [0, 7]
        lists = case.lists(400, TileShape(4, 90))
        listed = case.combine(lists)
        assert len(listed.entry) <= 6 * 300
        assert listed.oversized.any()
        for q, curve in enumerate(case.curves(lists)):
            if np.diff(case.targets.positive_indptr)[q] < 100:
                assert curve == pytest.approx([float(value) for value in case.by_definition(q, 6)], abs=1e-13)
        assert case.curves(lists).tobytes() == case.curves(case.lists()).tobytes()


def test_groups_beyond_the_limit_are_oversized() -> None:
    size = np.array([5, OVERSIZED_ITEMS, OVERSIZED_ITEMS + 1, 7000, 3])
    assert oversized_groups(size).tolist() == [2, 3]
    many = np.arange(OVERSIZED_ITEMS, OVERSIZED_ITEMS + 30)
    assert oversized_groups(many).tolist() == list(range(30 - MOST_OVERSIZED, 30))


# ---- memory ----------------------------------------------------------------------------------------------------------


def test_lists_stay_within_the_planned_memory() -> None:
    rng = np.random.default_rng(5)
    pids = rng.integers(0, 400, 6000)
    gallery = (rng.normal(size=(6000, 3)), pids, np.ones(6000, int))
    query = (rng.normal(size=(40, 3)), rng.integers(0, 400, 40), np.zeros(40, int))
    case = Gallery(query, gallery, shot=SingleShot(5))
    lists = case.lists(1500)
    held = sum(part.entry.nbytes for part in [*lists, case.combine(lists)])
    planned = case.reduction.shot.query_bytes(case.identities.size, 15)
    assert held <= 40 * planned
    # A merged list reaches half of its bound.
    longest = listed_lengths(case.combine(lists), case).max()
    assert longest > longest_list(case.identities.size, inactive_mass(5)) / 2


# ---- evaluations -----------------------------------------------------------------------------------------------------


def as_set(side) -> FeatureSet:
    return FeatureSet.from_arrays(np.asarray(side[0], np.float32), side[1], camids=side[2], allow_zero=True)


@pytest.mark.slow
def test_a_distance_block_gives_the_same_bits() -> None:
    query, gallery = crowded(11)
    case = Gallery(query, gallery)
    labels = [LabelledRows(side[1], side[2]) for side in (query, gallery)]
    block = DistanceBlock.from_array(case.exact)
    for draws in (None, 3):
        requested = {"protocol": "cuhk03", "single_shot_draws": draws, "confidence": None, "max_rank": 20}
        of_features = evaluate(as_set(query), as_set(gallery), distance="sqeuclidean", **requested)
        of_block = evaluate_distances(block, *labels, chunk_rows=17, **requested)
        for name in ("CMC_single_shot@1", "CMC_single_shot@10"):
            assert of_block.per_query[name].tobytes() == of_features.per_query[name].tobytes()
        assert of_block.curves[CURVE].tobytes() == of_features.curves[CURVE].tobytes()


@pytest.mark.slow
def test_a_parted_gallery_gives_the_same_bits() -> None:
    query, gallery = map(as_set, crowded(12))
    whole, parted = (
        evaluate(query, gallery, protocol="cuhk03", confidence=None, breakdowns=breakdowns, chunk_rows=60)
        for breakdowns in ((), ("gallery_size", "camera_pair"))
    )
    assert parted.result_digest == whole.result_digest


def test_the_report_names_the_computation() -> None:
    query, gallery = map(as_set, crowded(13))
    exact = evaluate(query, gallery, protocol="cuhk03", confidence=None, seed=8)
    assert exact.protocol["single_shot"]["form"] == "exact expectation"
    assert "seed" not in exact.protocol["single_shot"]
    drawn = evaluate(query, gallery, protocol="cuhk03", confidence=None, seed=8, single_shot_draws=3)
    assert drawn.protocol["single_shot"] == {"form": "draws", "num_repeats": 3, "seed": 8}
    assert "single_shot" not in evaluate(query, gallery, protocol="no_cameras", confidence=None).protocol


def test_ranks_beyond_the_curve() -> None:
    query, gallery = map(as_set, crowded(14))
    report = evaluate(query, gallery, metrics=["CMC_single_shot@30"], max_rank=5, confidence=None)
    assert (
        report.metrics
        == evaluate(query, gallery, metrics=["CMC_single_shot@30"], max_rank=30, confidence=None, chunk_rows=9).metrics
    )
    assert set(report.curves) == {"CMC", "P", "R", "precision_recall"}


def test_a_large_seed_is_a_seed() -> None:
    query, gallery = map(as_set, crowded(15))
    requested = {"protocol": "cuhk03", "confidence": None, "single_shot_draws": 2}
    curves = [evaluate(query, gallery, seed=seed, **requested).curves[CURVE].tobytes() for seed in (0, 2**64 - 1)]
    assert curves[0] != curves[1]


def test_draws_without_single_shot_metrics_are_refused() -> None:
    query, gallery = map(as_set, crowded(16))
    with pytest.raises(InputError, match=r"single_shot_draws are for the single-shot CMC"):
        evaluate(query, gallery, protocol="market1501", single_shot_draws=3)


def test_lists_have_no_identities() -> None:
    query, gallery = map(as_set, crowded(17, n_query=1))
    protocol = compose_protocol("mine", base=PROTOCOLS.get("oxford"), cmc_family="CMC_single_shot")
    with pytest.raises(InputError, match="goes by lists"):
        evaluate(query, gallery, protocol=protocol, metrics=["mAP"], ground_truth=[{"ok": [1], "junk": []}])


def tiny_values() -> dict[str, list[str]]:
    """Curves of tiny sets as exact texts."""
    found = {}
    for protocol in ("cuhk03", "cuhk03_separate_cameras"):
        for draws in (None, 3):
            case = Gallery(*crowded(21, 3, 40, 9, 12), protocol, "cosine", SingleShot(4, draws, 2))
            curves = case.curves(case.lists(17, TileShape(2, 10)))
            found[f"{protocol} {draws}"] = [value.hex() for value in curves.reshape(-1).tolist()]
    inactive = Gallery(*crowded(22, 2, 130, 125, 90), shot=SingleShot(1))
    found["inactive"] = [value.hex() for value in inactive.curves(inactive.lists(50)).reshape(-1).tolist()]
    return found


@pytest.mark.slow
def test_without_a_compiler(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(tiny_values) == tiny_values()
