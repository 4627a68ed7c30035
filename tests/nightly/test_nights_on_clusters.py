"""A night on a scheduler of its own process that is killed: what was in flight failed, and no defect is claimed."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed import Client
from small_nights import run_night, save_model, write_suite
from support.local_workers import dask_words

from reid_dist.clusters import ExistingCluster, connect
from reid_dist.nightly.history.history_values import State
from reid_dist.nightly.running import NightContext


@dataclass
class Scheduler:
    """A scheduler with a worker, both processes of their own on loopback."""

    process: subprocess.Popen[bytes]
    address: str


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[Scheduler]:
    path = tmp_path / "scheduler.json"
    local = dask_words(path)
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            process = subprocess.Popen([sys.executable, "-m", "dask", *words], cwd=tmp_path, **quiet)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        process = start("scheduler", *local, "--port", "0")
        deadline = time.monotonic() + 60
        while not path.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline, "the scheduler did not come up"
            time.sleep(0.05)
        start("worker", *local, "--nworkers", "1", "--nthreads", "1", "--death-timeout", "5")
        address = json.loads(path.read_text())["address"]
        # A busy machine starts a worker in more than the few seconds that the test allows a cluster.
        with Client(address, timeout=60) as client:
            client.wait_for_workers(1, timeout=60)
        yield Scheduler(process, address)


@pytest.mark.slow
def test_a_scheduler_that_is_killed_between_jobs(tmp_path: Path, scheduler: Scheduler) -> None:
    models = {name: save_model(tmp_path / name, 0.8) for name in ("a", "b", "c", "d")}
    cluster = ExistingCluster(kind="existing", address=scheduler.address, wait_for_workers=1, timeout_s=5)

    def begun(number: int, total: int, name: str) -> None:
        if number == 2:
            scheduler.process.kill()
            scheduler.process.wait()

    context = NightContext(connect=lambda: connect(cluster), begun=begun)
    run = run_night(write_suite(tmp_path, models, {"plain": {}}), context)
    assert [entry.state for entry in run.entries] == [State.DONE, *[State.FAILED] * 3]
    for entry in run.entries[1:]:
        assert scheduler.address.removeprefix("tcp://") in entry.reason
        assert "defect" not in entry.reason
    assert run.exit_code == 3
