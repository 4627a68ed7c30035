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
from support.sampling import examples

from reid_dist.kernels.trials import (
    Trials,
    drawn_curves,
    expected_curves,
    identity_states,
    number_trials,
    query_states,
)

SEEDS = st.integers(0, 2**32 - 1)


class Before:
    """Items of each identity, and those that come before each positive of one query."""

    def __init__(self, rng: np.random.Generator, n_identity: int, n_positive: int, largest: int) -> None:
        self.size = rng.integers(1, largest + 1, n_identity)
        steps = rng.integers(0, n_positive + 1, (n_identity, largest))
        # Item k of identity i comes before positive steps[i, k] first; n_positive for one that comes before none.
        self.first = [steps[i, :size] for i, size in enumerate(self.size)]
        self.n_positive = n_positive
        self.identity = np.concatenate([np.full(len(first), i) for i, first in enumerate(self.first)])
        self.place = np.concatenate(self.first)

    def trials(self, *, together: bool) -> Trials:
        """Argument of the kernels; items of an identity at one place are counted together, or one by one."""
        active = self.place < self.n_positive
        items = sorted(zip(self.place[active].tolist(), self.identity[active].tolist(), strict=True))
        counted = Counter(items) if together else None
        pairs, counts = (list(counted), list(counted.values())) if counted is not None else (items, [1] * len(items))
        known = sorted({identity for _, identity in pairs})
        places = [place for place, _ in pairs]
        return Trials(
            start=np.array([0, len(known)]),
            identity=np.array(known, np.int64),
            kept=self.size[np.array(known, np.int64)],
            positive_start=np.array([0, self.n_positive]),
            active=np.array([self.n_positive]),
            item_start=np.searchsorted(places, np.arange(self.n_positive + 1)),
            trial=np.array([known.index(identity) for _, identity in pairs], np.int64),
            n_items=np.array(counts, np.int32),
        )

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
)
@settings(max_examples=examples(80))
def test_expectations_are_those_of_the_definition(
    seed: int, n_identity: int, n_positive: int, largest: int, n_rank: int
) -> None:
    before = Before(np.random.default_rng(seed), n_identity, n_positive, largest)
    curves = np.empty((1, n_rank))
    expected_curves(before.trials(together=True), curves)
    expected = before.by_definition(n_rank)
    assert curves[0] == pytest.approx([float(value) for value in expected], abs=1e-14)
    # Chances of 0 and 1 are exact.
    assert [value for value, truth in zip(curves[0], expected, strict=True) if truth in (0, 1)] == [
        float(truth) for truth in expected if truth in (0, 1)
    ]
    assert (np.diff(curves[0]) >= 0).all()
    one_by_one = np.empty((1, n_rank))
    expected_curves(before.trials(together=False), one_by_one)
    assert one_by_one.tobytes() == curves.tobytes()


def test_a_query_without_positives_has_no_curve() -> None:
    none = np.empty(0, np.int64)
    start, states = np.zeros(2, int), np.zeros((1, 3), np.uint64)
    trials = Trials(start, none, none, start, np.zeros(1, int), np.zeros(1, int), none, np.empty(0, np.int32))
    curves = np.zeros((2, 1, 4))
    expected_curves(trials, curves[0])
    drawn_curves(trials, np.array([-1]), states, np.zeros(2, np.uint64), curves[1])
    assert np.isnan(curves).all()


def test_identities_are_numbered_query_by_query() -> None:
    """Entries hold the identity in three low bits: 5, 2, 5 of the first query, none of the second, 2 and 0 then."""
    entry = np.array([5, 8 | 2, 8 | 5, 16 | 2, 24 | 0], np.int32)
    trial, start, identity = np.empty(5, np.int64), np.empty(4, np.int64), np.empty(6, np.int64)
    number_trials(entry, np.array([0, 3, 3, 5]), 3, 6, trial, start, identity)
    assert start.tolist() == [0, 2, 2, 4]
    assert identity[:4].tolist() == [2, 5, 0, 2]
    assert trial.tolist() == [1, 0, 1, 3, 2]


@pytest.mark.parametrize("seed", range(4))
def test_draws_have_the_expected_frequencies(seed: int) -> None:
    before = Before(np.random.default_rng(seed), 9, 3, 5)
    n_rank, n_draws = 6, 20_000
    states = query_states(np.uint64(seed), np.array([11]), n_draws)
    pids = identity_states(np.arange(100, 110, dtype=np.uint64))
    curves = np.empty((1, n_rank))
    # The query is of another identity than those that come before its positives.
    drawn_curves(before.trials(together=True), np.array([9]), states, pids, curves)
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
