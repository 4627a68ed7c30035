"""The metric of a training loop in processes of ``torch.distributed``: the values of one process, in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from reid_dist import evaluate
from reid_dist.torch import ReIDMetric

torch = pytest.importorskip("torch", reason="torch is not installed")

N = 61

_PROCESS = """
import json, sys
from datetime import timedelta
import numpy as np, torch
import torch.distributed as dist
from reid_dist.errors import ReidDistError
from reid_dist.torch import ReIDMetric

folder, rank, shards, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
rows = {name: torch.from_numpy(values) for name, values in np.load(f"{folder}/rows.npz").items()}
dist.init_process_group(
    "gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=len(shards), timeout=timedelta(seconds=60)
)
group = dist.new_group(options.pop("group")) if "group" in options else True
metric = ReIDMetric(metrics=["mAP", "CMC@1"], sync=group, **options)
for start in range(0, len(shards[rank]), 8):
    batch = torch.tensor(shards[rank][start : start + 8])
    metric.update(**{name: values[batch] for name, values in rows.items()})
try:
    answer = metric.compute()
except ReidDistError as error:
    answer = [type(error).__name__, str(error)]
digest = None if metric.report is None else metric.report.result_digest
print(json.dumps([answer, digest]))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture
def rows(tmp_path):
    rng = np.random.default_rng(5)
    made = {
        "features": rng.standard_normal((N, 6)).astype(np.float32),
        "pids": rng.integers(0, 8, N),
        "camids": rng.integers(0, 2, N),
        "is_query": np.arange(N) < 20,
        "item_ids": np.arange(N),
    }
    np.savez(tmp_path / "rows.npz", **made)
    return made


def run_processes(folder: Path, shards: list[list[int]], **options: object) -> list[list[object]]:
    """What every process answers, and the digest of its report."""

    def answer(rank: int) -> list[object]:
        words = [str(folder), str(rank), json.dumps(shards), json.dumps(options)]
        done = subprocess.run([sys.executable, "-c", _PROCESS, *words], capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr.decode()
        found: list[object] = json.loads(done.stdout)
        return found

    with ThreadPoolExecutor() as threads:
        return list(threads.map(answer, range(len(shards))))


def expected(rows):
    names = ("features", "pids", "camids", "item_ids")
    sides = [tuple(rows[name][rows["is_query"] == side] for name in names) for side in (True, False)]
    return evaluate(*sides, metrics=["mAP", "CMC@1"])


@pytest.mark.parametrize(
    "shards",
    [
        # As a distributed sampler deals them, with the first rows once more at the end.
        [[*range(0, N, 2)], [*range(1, N, 2), 0]],
        # Uneven, and the second process has no queries.
        [[*range(45)], [*range(45, N)]],
        # The first has no rows, and the second all.
        [[], [*range(N)]],
        [[*range(30, N)], [], [*range(30)]],
    ],
    ids=["dealt", "uneven", "first-empty", "three"],
)
def test_every_process_has_the_values_of_one(rows, tmp_path, shards):
    (first, digest), *others = run_processes(tmp_path, shards)
    report = expected(rows)
    assert (first, digest) == (report.metrics, report.result_digest)
    assert others == [[first, None]] * (len(shards) - 1)


def test_the_processes_of_a_group_alone(rows, tmp_path):
    half = [*range(N // 2)]
    found = run_processes(tmp_path, [[], half, [*range(N // 2, N)]], group=[1, 2])
    report = expected(rows)
    assert found[1:] == [[report.metrics, report.result_digest], [report.metrics, None]]
    # A process outside of the group evaluates its own rows, and has none.
    assert found[0][0][0] == "InputError"


def test_an_error_of_the_first_process_ends_all_of_them(rows, tmp_path):
    answers = run_processes(tmp_path, [[*range(20)], [0, 1]])
    assert answers[0][0] == answers[1][0]
    assert answers[0][0] == ["InputError", "none of the 22 rows are gallery rows; is_query says which rows are queries"]


def test_tensors_of_lower_precision(rows):
    sides = [rows["is_query"] == side for side in (True, False)]
    for dtype, exact in ((torch.float16, np.float16), (torch.bfloat16, np.float32)):
        features = torch.from_numpy(rows["features"]).to(dtype).requires_grad_()
        metric = ReIDMetric(metrics=["mAP"])
        metric.update(features, torch.from_numpy(rows["pids"]), rows["camids"], is_query=rows["is_query"])
        values = features.detach().float().numpy().astype(exact)
        tuples = [(values[side], rows["pids"][side], rows["camids"][side]) for side in sides]
        assert metric.compute() == evaluate(*tuples, metrics=["mAP"]).metrics
