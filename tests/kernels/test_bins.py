"""Placing values among thresholds against a count by definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples

from reid_dist.kernels.bins import (
    BINS,
    _fill,
    bin_of,
    fill_steps,
    make_pending,
    make_steps,
    place,
)
from tests.support.compiled import from_python

bin_of, fill_steps, place, fill = map(from_python, (bin_of, fill_steps, place, _fill))
# Allocations alone, which need no compilation.
make_pending, make_steps = make_pending.py_func, make_steps.py_func

SPREADS = ("even", "outliers", "heap", "few values", "equal")


def spread(kind: str, rng: np.random.Generator, n: int) -> np.ndarray:
    normal = rng.standard_normal(n)
    return {
        "even": rng.uniform(-1, 1, n),
        # One far from all others on either side.
        "outliers": np.concatenate([0.01 * normal[2:], [-30.0, 40.0]])[:n],
        "heap": 0.5 + 1e-7 * normal,
        "few values": rng.choice([-0.5, 0.25, 0.75], n),
        "equal": np.full(n, 0.25),
    }[kind]


@given(
    seed=st.integers(0, 2**32 - 1),
    n_threshold=st.sampled_from([1, 2, 30, 900]),
    n_value=st.sampled_from([1, 2, 63, 512]),
    thresholds=st.sampled_from(SPREADS),
    others=st.sampled_from(SPREADS),
    width=st.sampled_from([0.0, 1e-6, 0.05]),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=examples(200), deadline=None)
def test_values_are_placed_or_left_pending(
    seed: int, n_threshold: int, n_value: int, thresholds: str, others: str, width: float, dtype: type
) -> None:
    rng = np.random.default_rng(seed)
    middle = np.sort(spread(thresholds, rng, n_threshold))[::-1]
    lower, upper = (middle - width).astype(dtype), (middle + width).astype(dtype)
    # Values of their own, values on the edges and one step beside them, and a hidden one.
    edges = np.concatenate([lower, upper])
    edges = np.concatenate([edges, np.nextafter(edges, dtype(-np.inf)), np.nextafter(edges, dtype(np.inf))])
    values = np.where(rng.random(n_value) < 0.5, rng.choice(edges, n_value), spread(others, rng, n_value)).astype(dtype)
    values[rng.integers(n_value)] = -np.inf

    steps, pending = make_steps(n_threshold, n_value, values), make_pending(n_value, values)
    placed = np.zeros((4, 2 * n_threshold + 2), np.int32)
    # Python has floats of one size alone; the same values must be binned in the same arithmetic.
    base, scale = map(dtype, fill_steps(lower, upper, values, steps))
    n_pending = place(values, 7, lower[-1], base, scale, steps, placed, pending, 0)

    expected = (lower[:, None] > values).sum(axis=0)
    inside = (expected < n_threshold) & (values <= np.append(upper, -np.inf)[expected])
    left = pending.column[:n_pending] - 7
    assert (np.diff(left) > 0).all()
    assert (pending.value[:n_pending] == values[left]).all()
    assert (pending.place[:n_pending] <= expected[left]).all()
    assert np.isin(np.flatnonzero(inside), left).all()
    counted = np.ones(n_value, bool)
    counted[left] = False
    found = placed[:, : n_threshold + 1].sum(axis=0)
    assert found.tolist() == np.bincount(expected[counted], minlength=n_threshold + 1).tolist()


def test_hardly_any_value_is_left_pending_among_many_thresholds() -> None:
    rng = np.random.default_rng(3)
    # One near threshold would spread the bins over eight times what the values need.
    middle = np.sort(np.append(0.04 * rng.standard_normal(830), 1.0))[::-1]
    values = 0.04 * rng.standard_normal(2048)
    steps, pending = make_steps(831, 2048, values), make_pending(2048, values)
    base, scale = fill_steps(middle - 1e-12, middle + 1e-12, values, steps)
    placed = np.zeros((4, 1664), np.int32)
    assert place(values, 0, middle[-1], base, scale, steps, placed, pending, 0) < 0.15 * 2048


@pytest.mark.parametrize("value", [-np.inf, -1e30, -1.0, 0.0, 0.3, 1.0, 1e30])
@pytest.mark.parametrize("scale", [0.0, 1.0, float(BINS), 1e29])
def test_bins_stay_within_the_table(value: float, scale: float) -> None:
    for dtype in (np.float32, np.float64):
        found = bin_of(dtype(value), dtype(0), dtype(scale))
        assert 1 <= found <= BINS + 2
        # Not a number, where both are out of reach, counts as below.
        assert (found == 1) == (not value * scale > -1)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 900), widest=st.sampled_from([0, 1, 2, 40, 5000]))
@settings(max_examples=examples(100), deadline=None)
def test_a_bin_has_the_place_of_values_that_reach_its_edges(seed: int, n: int, widest: int) -> None:
    """Mixed if the upper edge there lies in it or nearer; for crowded and for wide bands, whose edges fall."""
    rng = np.random.default_rng(seed)
    enters = np.sort(rng.integers(1, BINS + 3, n))[::-1]
    leaves = np.maximum(np.minimum.accumulate(np.minimum(enters + rng.integers(0, widest + 1, n), BINS + 2)), enters)
    table, raised = np.zeros(BINS + 4, np.uint32), n + 1
    fill(*(np.ascontiguousarray(edges, np.uint32) for edges in (enters, leaves)), np.uint32(raised), table)
    for b, found in enumerate(table[: BINS + 3].tolist()):
        u = int((enters > b).sum())
        assert found == u + raised * (u < n and b <= leaves[u])
