"""Marks and their places against NumPy's comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples

from reid_dist.kernels import marks as library
from reid_dist.kernels.marks import make_marks, marked_places
from reid_dist.kernels.settings import kernel

# Few values, so that comparisons meet equal ones, and all kinds that floats have.
_SOME = np.array([-np.inf, -2.5, -1.0, -0.0, 0.0, 1e-40, 0.5, 1.0, 2.5, np.inf, np.nan])


@kernel
def places_of(words: Any) -> Any:
    """Places of the bits of words."""
    marks, places = make_marks(64 * len(words))
    for number in range(len(words)):
        marks[number] = words[number]
    return marked_places(marks, places), places


@kernel
def of_values(arguments: Any) -> None:
    """`mark_values`, compiled."""
    library.mark_values(*arguments)


@kernel
def of_values_of_both(arguments: Any) -> None:
    """`mark_values_of_both`, compiled."""
    library.mark_values_of_both(*arguments)


@kernel
def of_products(arguments: Any) -> None:
    """`mark_products`, compiled."""
    library.mark_products(*arguments)


@kernel
def of_products_of_both(arguments: Any) -> None:
    """`mark_products_of_both`, compiled."""
    library.mark_products_of_both(*arguments)


@kernel
def between(arguments: Any) -> None:
    """`mark_between`, compiled."""
    library.mark_between(*arguments)


@kernel
def counts_of_levels(values: Any, lower: Any, upper: Any) -> Any:
    """`reached_and_passed`, compiled, for each of some thresholds."""
    found = np.empty((len(lower), 2), np.int64)
    for u in range(len(lower)):
        found[u, 0], found[u, 1] = library.reached_and_passed(values, lower[u], upper[u])
    return found


COMPILED = {each.__name__: each for each in (between, of_values, of_values_of_both, of_products, of_products_of_both)}


def marked(compiled: bool, what: str, n: int, *arguments: Any) -> list[bool]:
    """Truth values of `n` places, by compiled code or by Python's; places beyond them must not be marked."""
    words = np.zeros((n + 63) // 64, np.uint64)
    if compiled:
        COMPILED[what]((*arguments, words))
    else:
        getattr(library, f"mark_{what.removeprefix('of_')}")(*arguments, words)
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").astype(bool)
    assert not bits[n:].any()
    return bits[:n].tolist()


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_places_are_those_of_the_bits(share: float) -> None:
    bits = np.random.default_rng(3).random(64 * 5) < share
    n, places = places_of(np.packbits(bits, bitorder="little").view(np.uint64))
    assert places[:n].tolist() == np.flatnonzero(bits).tolist()


def test_each_single_place_is_found() -> None:
    for place in range(128):
        words = np.zeros(2, np.uint64)
        words[place // 64] = np.uint64(1) << np.uint64(place % 64)
        n, places = places_of(words)
        assert places[:n].tolist() == [place]


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 150))
@settings(max_examples=examples(60), deadline=None)
def test_values_that_reach_a_threshold_of_row_or_column(compiled: bool, kind: type, seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    values, bias, highs, lows = (rng.choice(_SOME, n).astype(kind) for _ in range(4))
    level, low, own = rng.choice(_SOME, 3).astype(kind)
    with np.errstate(invalid="ignore"):
        rows = [v - b >= level or v - b <= low for v, b in zip(values, bias, strict=True)]
        columns = [v - own >= u or v - own <= w for v, u, w in zip(values, highs, lows, strict=True)]
        assert marked(compiled, "of_values", n, values, bias, level, low) == rows
        found = marked(compiled, "of_values_of_both", n, values, bias, level, low, own, highs, lows)
    assert found == [one or other for one, other in zip(rows, columns, strict=True)]


@pytest.mark.parametrize("compiled", [True, False])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 150), first=st.integers(0, 3))
@settings(max_examples=examples(60), deadline=None)
def test_ends_of_products_that_reach_a_threshold(compiled: bool, seed: int, n: int, first: int) -> None:
    """Small numbers, so that ends are exact, in rows that begin anywhere in memory."""
    rng = np.random.default_rng(seed)
    integers = [rng.integers(-4, 5, n + first)[first:] for _ in range(8)]
    products, shift = (each.astype(np.int32) for each in integers[:2])
    scale, span, residual, bias, highs, lows = (each.astype(np.float32) for each in integers[2:])
    factor, spread, length, level, low, own = rng.integers(-4, 5, 6).astype(np.float32)
    ends = products, shift, scale, span, residual, factor, spread, length, bias, level, low
    value, error = (products - shift) * scale * factor, spread * span + length * residual
    rows = (value + error - bias >= level) | (value - error - bias <= low)
    columns = (value + error - own >= highs) | (value - error - own <= lows)
    assert marked(compiled, "of_products", n, *ends) == rows.tolist()
    assert marked(compiled, "of_products_of_both", n, *ends, own, highs, lows) == (rows | columns).tolist()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(0, 150), n_levels=st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_values_between_two_levels(compiled: bool, kind: type, seed: int, n: int, n_levels: int) -> None:
    rng = np.random.default_rng(seed)
    values, lower, upper = (rng.choice(_SOME, size).astype(kind) for size in (n, n_levels, n_levels))
    inside = [lower[0] <= v <= upper[0] for v in values]
    assert marked(compiled, "between", n, values, lower[0], upper[0]) == inside
    counts = (counts_of_levels if compiled else counts_of_levels.py_func)(values, lower, upper)
    numbers = [
        [sum(v >= low for v in values), sum(v > high for v in values)] for low, high in zip(lower, upper, strict=True)
    ]
    assert counts.tolist() == numbers
