"""A scheduler that runs already, in processes of its own: the answer of threads, and it is left running."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_workers import dask_words

from reid_dist import FeatureSet, evaluate


@pytest.fixture
def scheduler_file(tmp_path: Path) -> Iterator[Path]:
    """A scheduler with two workers, all on loopback."""
    path = tmp_path / "scheduler.json"
    dask = [sys.executable, "-m", "dask"]
    local = dask_words(path)
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [*dask, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=tmp_path
            )
            stack.callback(process.wait)
            stack.callback(process.terminate)
            return process

        scheduler = start("scheduler", *local, "--port", "0")
        deadline = time.monotonic() + 60
        while not path.exists():
            assert scheduler.poll() is None
            assert time.monotonic() < deadline, "the scheduler did not come up"
            time.sleep(0.05)
        start("worker", *local, "--nworkers", "2", "--nthreads", "1")
        yield path
        assert scheduler.poll() is None


@pytest.mark.slow
def test_an_existing_cluster_gives_the_answer_of_threads(reid_dist, stores, scheduler_file: Path) -> None:
    address = json.loads(scheduler_file.read_text())["address"]
    expected = evaluate(*map(FeatureSet.open, stores)).result_digest
    for where in (f"scheduler_file: {scheduler_file}", f"address: {address}"):
        cluster = scheduler_file.with_name("cluster.yaml")
        cluster.write_text(f"kind: existing\n{where}\nwait_for_workers: 2\ntimeout_s: 60\n")
        done = reid_dist("evaluate", *stores, "--cluster", cluster, "--json")
        assert done.code == 0, done.err
        assert json.loads(done.out)["result_digest"] == expected
        (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
        assert warning.startswith(f"warning: {address} does not use TLS: every user of this machine can run code ")


@pytest.mark.slow
def test_workers_that_do_not_come(reid_dist, stores, scheduler_file: Path) -> None:
    cluster = scheduler_file.with_name("cluster.yaml")
    cluster.write_text(f"kind: existing\nscheduler_file: {scheduler_file}\nwait_for_workers: 9\ntimeout_s: 3\n")
    reid_dist("evaluate", *stores, "--cluster", cluster).assert_refused("fewer than 9 workers after 3 s", code=3)
