"""Neighbours by products of eight-bit integers on a device: the sets and oracles of those of the CPU."""

from __future__ import annotations

import pytest
from support.device_runs import integers_on_device
from test_neighbours_in_eight_bits import (
    farthest_at_the_edge,
    nearest_at_the_edge,
    test_block_among_itself,
    test_lists_of_queries,
    test_lists_that_overflow,
    test_lists_within_a_known_reach,
    test_sweep_with_seeds,
)

__all__ = [
    "integers_on_device",
    "test_block_among_itself",
    "test_lists_of_queries",
    "test_lists_that_overflow",
    "test_lists_within_a_known_reach",
    "test_sweep_with_seeds",
]


@pytest.mark.parametrize("of_columns", [False, True])
@pytest.mark.parametrize("dim", [64, 512, 2048])
def test_level_at_the_edge_of_a_bound(dim, of_columns):
    index, found, expected = nearest_at_the_edge(dim, of_columns=of_columns)
    assert index == [[10]]
    assert found == expected


@pytest.mark.parametrize("of_columns", [False, True])
def test_farthest_row_at_the_edge_of_a_bound(of_columns):
    found, exact, _ = farthest_at_the_edge(of_columns)
    assert found == exact
