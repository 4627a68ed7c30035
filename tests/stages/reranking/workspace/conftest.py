"""Small blocks of few items."""

from __future__ import annotations

import pytest
from support.reranking_runs import labelled
from support.strategies import scattered_sets
from workspace_runs import run

from reid_dist.stages import search_plan as neighbour_plan
from reid_dist.stages.neighbour_search import forget_table


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks of few items; and lists that this process has read already would hide what is on disk."""
    monkeypatch.setattr(neighbour_plan, "TILE_ROWS", 32)
    forget_table()


@pytest.fixture(scope="module")
def sets():
    return tuple(map(labelled, scattered_sets(30, 170, 9, seed=21)))


@pytest.fixture(scope="module")
def expected(sets):
    return run(sets, None).result_digest
