"""The kernels of the single-shot CMC against definitions in plain Python, in all branches."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.draws import WORD, nth
from sampling import examples
from tiles import Tile, few_valued, tile_of

from reid_dist.engine.distances import DISTANCES, GIVEN_DISTANCE
from reid_dist.kernels.canonical import PairRows, bytes_of_given, read_only
from reid_dist.kernels.deciding import BEFORE, BEHIND, Bands, OpenPairs, decide, make_open_pairs
from reid_dist.kernels.draws import drawn_curves, identity_states, query_states
from reid_dist.kernels.expectation import expected_curves
from reid_dist.kernels.placing import make_row, place_row
from reid_dist.kernels.single_shot import Listed, Lists, list_decided, list_tile, prune_heavy
from reid_dist.kernels.trials import ItemTable, OversizedGroups
from tests.compiled import from_python

make_row, place_row = map(from_python, (make_row, place_row))

NONE_OVERSIZED = OversizedGroups(np.empty(0, np.int64), np.empty((0, 0), np.int32))
SEEDS = st.integers(0, 2**32 - 1)


# ---- places ----------------------------------------------------------------------------------------------------------


class Case:
    """One query against a tile: some columns are positives, some are hidden."""

    def __init__(self, seed: int, name: str, dtype: type, n_column: int, n_positive: int, values: int) -> None:
        rng = np.random.default_rng(seed)
        distance = GIVEN_DISTANCE if name == "given" else DISTANCES.get(name)
        query, gallery = (few_valued(rng, n, 5, values) for n in (1, n_column))
        hidden = np.sort(rng.choice(n_column, min(n_column, n_positive + 3), replace=False))
        positives = np.sort(rng.choice(hidden, min(len(hidden), n_positive), replace=False))
        # Rows need not follow each other: a block may hold some rows of the gallery.
        self.row_of = np.cumsum(rng.integers(1, 4, n_column))
        if distance is GIVEN_DISTANCE:
            query = read_only(bytes_of_given(rng.integers(0, values, (1, n_column)).astype(float)))
            gallery = read_only(bytes_of_given(np.arange(n_column, dtype=float)[:, None]))
        tile = Tile(distance, query, gallery, dtype)
        (self.exact,) = tile.exact
        self.in_order = tile.in_order(0, positives)
        junk = rng.random(n_column) < 0.1
        self.kept = ~junk
        self.kept[hidden] = False
        # The first column of the tile is column 7 of its block.
        self.bands = tile.bands([positives], [hidden], self.row_of, first_column=7)
        self.tile = tile.seen(junk, column_start=7)
        first = np.arange(7)
        # The rows of the columns of the block, of which the tile begins with the eighth.
        gallery = read_only(np.concatenate([gallery[:1].repeat(7, axis=0), gallery]))
        norm = np.concatenate([np.zeros(7), tile.rows.gallery_norm])
        self.rows = tile.rows._replace(gallery=gallery, gallery_norm=norm)
        self.rows_of_block = np.concatenate([first - 7, self.row_of])

    def by_definition(self, n_active: int, ties: int = 0) -> dict[int, int]:
        """Column -> the first positive that it comes before, of the first `n_active`."""

        def comes_before(column: int, positive: int) -> bool:
            if self.exact[column] != self.exact[positive]:
                return self.exact[column] < self.exact[positive]
            return {0: self.row_of[column] < self.row_of[positive], BEFORE: True, BEHIND: False}[ties]

        found = {}
        for column in np.flatnonzero(self.kept).tolist():
            for place, positive in enumerate(self.in_order[:n_active].tolist()):
                if comes_before(column, positive):
                    found[column] = place
                    break
        return found


# Compiles the kernel once more, to call it from Python; the lists of the same kernel are tested below.
@pytest.mark.slow
@given(
    seed=SEEDS,
    name=st.sampled_from([*DISTANCES.names(), "given"]),
    dtype=st.sampled_from([np.int32, np.float32, np.float64]),
    n_column=st.sampled_from([1, 15, 70, 300, 1300]),
    n_positive=st.sampled_from([1, 2, 9, 33, 120]),
    values=st.sampled_from([1, 2, 1000]),
    share=st.floats(0, 1),
    ties=st.sampled_from([0, BEFORE, BEHIND]),
)
@settings(max_examples=examples(150))
def test_places_are_those_of_the_definition(
    seed: int, name: str, dtype: type, n_column: int, n_positive: int, values: int, share: float, ties: int
) -> None:
    case = Case(seed, name, dtype, n_column, n_positive, values)
    n_active = max(1, math.ceil(share * len(case.in_order)))
    bands, row, pairs = case.bands, make_row(case.tile, case.bands), make_open_pairs(n_column)
    # Up to the threshold of the last active positive.
    last = int(np.searchsorted(bands.positive_start[:-1], n_active))
    n, n_open, inside = place_row(case.tile, 0, bands, last, 10**9, row, pairs, 0)
    assert n_open <= inside <= n_column
    places = bands.positive_start[row.pending.place[:n]].tolist()
    found = dict(zip(row.pending.column[:n].tolist(), places, strict=True))
    n_decided = decide(pairs, n_open, case.rows_of_block, bands, case.rows, ties)
    columns, places = (pairs.column[:n_decided] - 7).tolist(), pairs.place[:n_decided].tolist()
    assert not found.keys() & set(columns)
    found |= dict(zip(columns, places, strict=True))
    assert {column: place for column, place in found.items() if place < n_active} == case.by_definition(n_active, ties)


# ---- lists -----------------------------------------------------------------------------------------------------------


def listed_after(cut: int, limit: int, capacity: int) -> tuple[dict[int, int], int, int]:
    """Entries of one query and its active positives after tiles of `cut` columns, and the longest list on the way.

    Column c has distance c; the positives are columns 9, 19, 29, …; identity c % 7, of weight 1 + c % 7.
    """
    n_column, bits = 200, 3
    positives = np.arange(9, n_column, 10)
    values = -np.arange(n_column, dtype=float)[None]
    lists = Lists(
        np.empty((1, capacity), np.int32), np.zeros(1, int), np.zeros(1, int), np.array([len(positives)]),
        np.zeros((len(positives), 1), np.int32),
    )  # fmt: skip
    given = PairRows(
        GIVEN_DISTANCE.kind,
        read_only(bytes_of_given(-values)),
        read_only(bytes_of_given(np.arange(n_column, dtype=float)[:, None])),
        np.zeros(1),
        np.zeros(n_column),
    )
    longest, pairs = 0, make_open_pairs(n_column)
    for start in range(0, n_column, cut):
        columns = slice(start, start + cut)
        thresholds = positives.astype(float)
        bands = Bands(
            np.array([0, len(positives)]), -thresholds, -thresholds, thresholds, np.arange(len(positives) + 1),
            positives, np.array([0, len(positives)]), positives,
        )  # fmt: skip
        identity = np.arange(n_column)[columns] % 7
        # Identity 6 is an oversized group.
        identity_of = np.where(identity == 6, -1, identity).astype(np.int32)
        tile = tile_of(np.ascontiguousarray(values[:, columns]), np.zeros((1, len(identity))), None, start)
        done, n_open, _ = list_tile(
            tile, bands, pairs, 0, 0, 10**6, identity_of, bits, np.arange(1, 8), limit, lists
        )  # fmt: skip
        assert done == 1
        of_block = np.concatenate([np.zeros(start, np.int32), identity_of])
        n_decided = decide(pairs, n_open, np.arange(n_column), bands, given, 0)
        decided = OpenPairs(*(each[:n_decided] for each in pairs))
        list_decided(decided, np.array([0, len(positives)]), of_block, bits, np.arange(1, 8), limit, lists)
        longest = max(longest, int(lists.size[0]))
    prune_heavy(bits, np.arange(1, 8), limit, lists)
    entries = Counter(lists.entry[0, : lists.size[0]].tolist())
    assert lists.oversized[: lists.n_active[0], 0].tolist() == [
        sum(column % 7 == 6 for column in range(10 * place, 10 * place + 9)) for place in range(lists.n_active[0])
    ]
    return entries, int(lists.n_active[0]), longest


def test_lists_hold_the_items_before_active_positives() -> None:
    for limit in (0, 5, 60, 10**9):
        expected = Counter()
        weight = n_active = 0
        for place in range(20):
            columns = [column for column in range(10 * place, 10 * place + 9) if column % 7 != 6]
            weight += sum(1 + column % 7 for column in columns)
            if weight > limit:
                break
            n_active += 1
            expected.update((place << 3) | (column % 7) for column in columns)
        for cut in (1, 7, 200):
            entries, found, _ = listed_after(cut, limit, 400)
            assert found == n_active
            assert entries == expected


def test_a_full_list_is_pruned() -> None:
    entries, n_active, longest = listed_after(7, 60, 60)
    assert longest <= 60
    assert (entries, n_active) == listed_after(200, 60, 400)[:2]


def test_a_row_with_a_crowded_band_is_not_listed() -> None:
    case = Case(3, "cosine", np.float32, 300, 5, 1)
    n_positive = len(case.in_order)
    lists = Lists(
        np.empty((1, 600), np.int32), np.zeros(1, int), np.zeros(1, int), np.array([n_positive]),
        np.zeros((n_positive, 0), np.int32),
    )  # fmt: skip
    arguments = np.zeros(300, np.int32), 1, np.ones(1, int), 10**9, lists
    pairs = make_open_pairs(600)
    assert list_tile(case.tile, case.bands, pairs, 0, 0, 10, *arguments)[:2] == (0, 0)
    assert lists.size[0] == 0
    done, n_open, _ = list_tile(case.tile, case.bands, pairs, 0, 0, 300, *arguments)
    assert done == 1
    n_decided = decide(pairs, n_open, case.rows_of_block, case.bands, case.rows, 0)
    decided, of_block = OpenPairs(*(each[:n_decided] for each in pairs)), np.zeros(307, np.int32)
    list_decided(decided, np.array([0, n_positive]), of_block, *arguments[1:])
    assert lists.size[0] == len(case.by_definition(n_positive))


# ---- the expectation and draws ---------------------------------------------------------------------------------------


class Before:
    """Items of each identity, and those that come before each positive of one query."""

    def __init__(self, rng: np.random.Generator, n_identity: int, n_positive: int, largest: int) -> None:
        self.size = rng.integers(1, largest + 1, n_identity)
        steps = rng.integers(0, n_positive + 1, (n_identity, largest))
        # Item k of identity i comes before positive steps[i, k] first; n_positive for one that comes before none.
        self.first = [steps[i, :size] for i, size in enumerate(self.size)]
        self.n_positive = n_positive
        self.bits = max(1, (n_identity - 1).bit_length())
        self.identity = np.concatenate([np.full(len(first), i) for i, first in enumerate(self.first)])
        self.place = np.concatenate(self.first)

    def listed(self, oversized: np.ndarray) -> tuple[Listed, OversizedGroups]:
        """Arguments of the kernels, with some identities counted and not listed."""
        active = self.place < self.n_positive
        listed = active & ~np.isin(self.identity, oversized)
        entry = (self.place[listed] << self.bits) | self.identity[listed]
        before = np.zeros((self.n_positive, len(oversized)), np.int32)
        for g, identity in enumerate(oversized):
            np.add.at(before[:, g], self.place[active & (self.identity == identity)], 1)
        bounds = np.array([0]), np.array([len(entry)])
        return Listed(entry.astype(np.int32), *bounds, np.array([self.n_positive])), OversizedGroups(oversized, before)

    @property
    def table(self) -> ItemTable:
        none = np.empty(0, np.int64)
        indptr = np.zeros(len(self.size) + 1, np.int64)
        return ItemTable(self.size, indptr, none, none, read_only(np.zeros(1, int)), np.zeros(2, int), none)

    def by_definition(self, n_rank: int) -> list[Fraction]:
        curve = [Fraction(0)] * n_rank
        for place in range(self.n_positive):
            distribution = [Fraction(1)]
            for first, size in zip(self.first, self.size.tolist(), strict=True):
                p = Fraction(int((first <= place).sum()), size)
                lose = [part * (1 - p) for part in distribution] + [Fraction(0)]
                win = [Fraction(0)] + [part * p for part in distribution]
                distribution = [a + b for a, b in zip(lose, win, strict=True)]
            for k in range(n_rank):
                curve[k] += sum(distribution[: k + 1]) / self.n_positive
        return curve


@given(
    seed=SEEDS,
    n_identity=st.integers(1, 23),
    n_positive=st.integers(1, 4),
    largest=st.integers(1, 5),
    n_rank=st.sampled_from([1, 2, 5, 40]),
    n_oversized=st.integers(0, 3),
)
@settings(max_examples=examples(80))
def test_expectations_are_those_of_the_definition(
    seed: int, n_identity: int, n_positive: int, largest: int, n_rank: int, n_oversized: int
) -> None:
    rng = np.random.default_rng(seed)
    before = Before(rng, n_identity, n_positive, largest)
    oversized = np.sort(rng.choice(n_identity, min(n_oversized, n_identity), replace=False))
    curves = np.empty((1, n_rank))
    expected_curves(*_arguments(before, oversized), before.table, curves)
    expected = before.by_definition(n_rank)
    assert curves[0] == pytest.approx([float(value) for value in expected], abs=1e-14)
    # Chances of 0 and 1 are exact.
    assert [value for value, truth in zip(curves[0], expected, strict=True) if truth in (0, 1)] == [
        float(truth) for truth in expected if truth in (0, 1)
    ]
    assert (np.diff(curves[0]) >= 0).all()
    listed_alone = np.empty((1, n_rank))
    expected_curves(*_arguments(before, np.empty(0, np.int64)), before.table, listed_alone)
    assert listed_alone.tobytes() == curves.tobytes()


def _arguments(before: Before, oversized: np.ndarray) -> tuple[Listed, np.ndarray, OversizedGroups, int]:
    listed, oversized_groups = before.listed(oversized)
    return listed, np.array([0, before.n_positive]), oversized_groups, before.bits


def test_a_query_without_positives_has_no_curve() -> None:
    table = ItemTable(
        np.array([2, 3]), np.zeros(3, int), np.empty(0, int), np.empty(0, int), read_only(np.zeros(1, int)),
        np.zeros(2, int), np.empty(0, int),
    )  # fmt: skip
    nothing = Listed(np.empty(0, np.int32), np.zeros(1, int), np.zeros(1, int), np.zeros(1, int))
    start, states = np.zeros(2, int), np.zeros((1, 3), np.uint64)
    curves = np.zeros((2, 1, 4))
    expected_curves(nothing, start, NONE_OVERSIZED, 1, table, curves[0])
    drawn_curves(nothing, start, np.array([-1]), NONE_OVERSIZED, 1, table, states, np.zeros(2, np.uint64), curves[1])
    assert np.isnan(curves).all()


def test_hidden_items_are_not_drawn() -> None:
    """Of identity 0, four items with labels 5, 5, 8, 9: two are hidden by the label and one by its row."""
    table = ItemTable(
        size=np.array([4, 3]),
        label_indptr=np.array([0, 3, 4]),
        label=np.array([5, 8, 9, 5]),
        label_size=np.array([2, 1, 1, 3]),
        hidden_label=read_only(np.array([7, 5, 8])),
        extra_indptr=np.array([0, 0, 0, 1]),
        extra_identity=np.array([0]),
    )
    entry = np.array([0, 0, 0], np.int32)  # one item of identity 0 before the only positive of each query
    listed = Listed(entry, np.arange(3), np.arange(1, 4), np.ones(3, int))
    curves = np.empty((3, 1))
    none_oversized = OversizedGroups(np.empty(0, np.int64), np.empty((3, 0), np.int32))
    expected_curves(listed, np.arange(4), none_oversized, 1, table, curves)
    assert curves[:, 0].tolist() == [3 / 4, 1 / 2, 1 / 2]


@pytest.mark.parametrize("seed", range(4))
def test_draws_have_the_expected_frequencies(seed: int) -> None:
    before = Before(np.random.default_rng(seed), 9, 3, 5)
    n_rank, n_draws = 6, 20_000
    oversized = np.array([2, 5])
    states = query_states(np.uint64(seed), np.array([11]), n_draws)
    pids = identity_states(np.arange(100, 110, dtype=np.uint64))
    curves = np.empty((1, n_rank))
    # The query is of another identity than those that come before its positives.
    table = before.table._replace(size=np.append(before.size, 3), label_indptr=np.zeros(11, int))
    listed, start, oversized_groups, bits = _arguments(before, oversized)
    drawn_curves(listed, start, np.array([9]), oversized_groups, bits, table, states, pids, curves)
    for found, truth in zip(curves[0], map(float, before.by_definition(n_rank)), strict=True):
        assert abs(found - truth) <= 5 * math.sqrt(truth * (1 - truth) / n_draws) + 1e-12
    assert (np.diff(curves[0]) >= 0).all()


def test_states_are_outputs_of_splitmix64() -> None:
    """A stream of the seed gives one of each repeat, and that one gives the state of each query row."""
    states = query_states(np.uint64(WORD - 7), np.array([0, 9, 1000]), 4)
    first = nth(WORD - 7, 0)
    assert states.tolist() == [[nth(nth(first, t), row) for t in range(4)] for row in (0, 9, 1000)]
    # A number is mixed as a state whose increment is subtracted before.
    increment, of_identities = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03
    pids = np.array([0, 5, WORD - 1], np.uint64)
    wanted = [nth((pid + of_identities - increment) % WORD, 0) for pid in pids.tolist()]
    assert identity_states(pids).tolist() == wanted


def test_states_of_different_keys_differ() -> None:
    rows = np.arange(50)
    states = np.concatenate([query_states(np.uint64(seed), rows, 20).reshape(-1) for seed in range(3)])
    assert len(np.unique(states)) == len(states)
    # A state does not depend on the other states of a call.
    assert query_states(np.uint64(1), rows[7:9], 5).tolist() == query_states(np.uint64(1), rows, 20)[7:9, :5].tolist()
    assert len(np.unique(identity_states(np.arange(1000, dtype=np.uint64)))) == 1000
