"""Counts by products of eight-bit integers on a device: the sets and oracles of those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest
from support.device_runs import integers_on_device
from support.exact_products import use_precisions
from test_counts_in_eight_bits import (
    counts_at_the_edge,
    test_counts_of_every_threshold,
    test_counts_under_reranked_distances,
    test_few_thresholds_and_many,
    test_lists_without_hidden_rows,
)

from reid_dist.engine.reductions.costs import Precision
from reid_dist.engine.reductions.device_integers import DeviceIntegers

__all__ = [
    "integers_on_device",
    "test_counts_of_every_threshold",
    "test_counts_under_reranked_distances",
    "test_few_thresholds_and_many",
    "test_lists_without_hidden_rows",
]


@pytest.mark.parametrize(
    ("sign", "n_nearer", "swaps"), [(1.0, 0, False), (1.0, 90, False), (-1.0, 90, False), (1.0, 0, True)]
)
def test_threshold_at_the_edge_of_a_bound(sign, n_nearer, swaps, monkeypatch):
    """The tie is found; with half the bound it is not, where values are not compared with canonical distances."""
    use_precisions(monkeypatch, lambda n: np.full(n, Precision.INTEGERS))
    found, expected = counts_at_the_edge(sign, n_nearer, swaps)
    assert found == expected == [n_nearer, 1, 0]
    real = DeviceIntegers._errors
    monkeypatch.setattr(DeviceIntegers, "_errors", lambda *given: np.float32(0.5) * real(*given))
    monkeypatch.setattr(DeviceIntegers, "_check", lambda *_: None)
    found, _ = counts_at_the_edge(sign, n_nearer, swaps)
    assert found == [n_nearer + int(sign < 0), 0, 0]
