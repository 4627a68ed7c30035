"""The metric of a training loop in processes of ``torch.distributed``: the values of one process, in every process.

Lightning and Accelerate are no requirements of the tests; `.ci/run` installs both.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
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


_LOADER = """
import copy, json, sys
import numpy as np, torch
from torch.utils.data import DataLoader
from reid_dist.torch import ReIDMetric

folder, n_processes = sys.argv[1], int(sys.argv[2])
rows = dict(np.load(f"{folder}/rows.npz"))
items = [{name: values[row] for name, values in rows.items()} for row in range(len(rows["pids"]))]
loader = DataLoader(items, 8)

def write(rank, name, metric, values):
    digest = None if metric.report is None else metric.report.result_digest
    with open(f"{folder}/{name}-{rank}.json", "w") as file:
        json.dump([values, digest], file)
"""

_LIGHTNING = """
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))
        self.metric = ReIDMetric(metrics=["mAP", "CMC@1"])

    def training_step(self, batch, batch_idx):
        return self.weight.sum()

    def validation_step(self, batch, batch_idx):
        self.metric.update(**batch)

    def on_validation_epoch_end(self):
        values = self.metric.compute()
        self.log_dict(values)
        write(self.global_rank, f"epoch{self.current_epoch}", self.metric, values)
        self.metric.reset()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

best = ModelCheckpoint(dirpath=folder, filename="best", monitor="mAP", mode="max")
trainer = Trainer(
    accelerator="cpu", devices=n_processes, strategy="ddp" if n_processes > 1 else "auto", max_epochs=2,
    num_sanity_val_steps=0, default_root_dir=folder, logger=False, callbacks=[best], enable_progress_bar=False,
)
model = copy.deepcopy(Model())
trainer.fit(model, loader, loader)
restored = Model.load_from_checkpoint(best.best_model_path)
assert [*restored.state_dict()] == ["weight"]
assert trainer.logged_metrics["mAP"] == torch.tensor(json.load(open(f"{folder}/epoch1-0.json"))[0]["mAP"])
"""

_ACCELERATE = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes == n_processes
loader = accelerator.prepare(loader)
for sync in (True, False):
    metric = ReIDMetric(metrics=["mAP", "CMC@1"], sync=sync)
    for batch in loader:
        metric.update(**(batch if sync else accelerator.gather_for_metrics(batch)))
    write(accelerator.process_index, "together" if sync else "gathered", metric, metric.compute())
accelerator.end_training()
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


def run_framework(folder: Path, program: str, n_processes: int, *words: str) -> None:
    """Run a program of a framework, by another one that starts its processes if words name it."""
    (folder / "program.py").write_text(_LOADER + program)
    command = [sys.executable, *words, str(folder / "program.py"), str(folder), str(n_processes)]
    done = subprocess.run(command, capture_output=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr.decode()


@pytest.mark.skipif(find_spec("lightning") is None, reason="lightning is not installed")
@pytest.mark.parametrize("n_processes", [1, 2])
def test_lightning(rows, tmp_path, n_processes):
    run_framework(tmp_path, _LIGHTNING, n_processes)
    report = expected(rows)
    for epoch in range(2):
        found = [json.loads((tmp_path / f"epoch{epoch}-{rank}.json").read_text()) for rank in range(n_processes)]
        assert found == [[report.metrics, report.result_digest], [report.metrics, None]][:n_processes]


@pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")
def test_accelerate(rows, tmp_path):
    run_framework(tmp_path, _ACCELERATE, 2, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
    report = expected(rows)
    found = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("*-?.json"))]
    assert found == [[report.metrics, report.result_digest]] * 3 + [[report.metrics, None]]
