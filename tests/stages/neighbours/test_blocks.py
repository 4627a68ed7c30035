"""Blocks of a neighbour search."""

from __future__ import annotations

import pytest

from reid_dist.stages.search_plan import choose_block_rows

GIB = 2**30


def n_blocks(n_items, n_threads):
    return -(-n_items // choose_block_rows(n_items, 512, 21, n_threads, 2 * GIB, None))


@pytest.mark.parametrize("n_threads", [1, 2, 4, 16, 64])
def test_pairs_of_blocks_occupy_all_threads(n_threads):
    n = n_blocks(200_000, n_threads)
    rounds = n * (n + 1) / 2 / n_threads
    # At the end, not more than a quarter of the time is waited for the last tasks.
    assert -(-rounds // 1) / rounds <= 1.25
    assert rounds >= 2


@pytest.mark.parametrize("n_threads", [2, 8])
def test_blocks_of_small_sets_are_fewer(n_threads):
    """Lists of short blocks take longer than their products."""
    counts = [n_blocks(n_items, n_threads) for n_items in (3_000, 12_000, 50_000, 400_000)]
    assert counts == sorted(counts)
    assert counts[0] < counts[-1]


def test_many_threads_do_not_cut_too_many_blocks():
    """Every pair of blocks writes lists of both: 56 blocks of a million items write 14 GB."""
    assert n_blocks(1_002_000, 200) <= 60
