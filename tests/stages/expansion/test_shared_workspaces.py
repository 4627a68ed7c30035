"""Runs that make the same features in one workspace at the same time: one makes them, and the others wait."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from support.small_stores import save_stores

from reid_dist import evaluate

_RUNS = 4


@pytest.mark.parametrize(
    "options",
    [
        {"expand": "gcr(k1=8)"},
        {"expand": "camera_norm"},
        {"expand": "dba(k=3)+aqe(k=2)"},
        {"rerank": "ecn(t=2,q=3,method=origdist)"},
        {"rerank": "k_reciprocal(k1=5,k2=2,mode=inductive)"},
        {"rerank": "top(gnn(k1=5,k2=2),m=20)"},
    ],
    ids=str,
)
def test_runs_at_the_same_time_give_one_result(tmp_path: Path, options: dict[str, str]) -> None:
    query, gallery = save_stores(tmp_path)
    expected = evaluate(query, gallery, **options).result_digest
    together = Barrier(_RUNS)

    def run(workspace: Path) -> str:
        together.wait()
        return evaluate(query, gallery, workspace=workspace, **options).result_digest

    with warnings.catch_warnings(), ThreadPoolExecutor(_RUNS) as pool:
        warnings.filterwarnings("ignore", message="another run works on")
        for number in range(3):
            workspace = tmp_path / f"workspace {number}"
            assert set(pool.map(run, [workspace] * _RUNS)) == {expected}
            assert not [*workspace.glob(".*")], "a lock is left"
