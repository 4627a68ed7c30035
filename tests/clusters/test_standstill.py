"""Runs that stand still: workers that are lost, paused or stopped are waited for, in words, and not for ever."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from dask_processes import dask as dask_process
from distributed import Client
from support.local_workers import local_cluster, started
from support.processes import wait_until

import reid_dist.clusters.standstill as standstill
import reid_dist.clusters.workers as workers
from reid_dist import FeatureSet, evaluate
from reid_dist.clusters import ExistingCluster, connect
from reid_dist.clusters.failures import watched_tasks
from reid_dist.clusters.settings import in_force, patience
from reid_dist.errors import ClusterError, RunFailedError

_WORKER = ("worker", "--nthreads", "1", "--no-nanny")
# A worker that takes its memory for full once a file is there.
_FILLED_LATER = """
import threading, time
from pathlib import Path

def dask_setup(worker):
    threading.Thread(target=fill, args=(worker,), daemon=True).start()

def fill(worker):
    while not Path("full").exists():
        time.sleep(0.02)
    worker.memory_manager.memory_pause_fraction = 1e-6
"""
_SETTINGS = "dask:\n  distributed.scheduler.no-workers-timeout: 6s\n"


@pytest.fixture
def cluster_file(scheduler: Any, tmp_path: Path) -> str:
    return f"kind: existing\nscheduler_file: {tmp_path / 'scheduler.json'}\n{_SETTINGS}"


@pytest.mark.slow
def test_the_only_worker_is_lost(start_on, larger_sets, cluster_file: str, tmp_path: Path) -> None:
    with dask_process(tmp_path, *_WORKER) as worker:
        run = start_on(cluster_file, larger_sets)
        run.await_partial_results(1)
        worker.kill()
        done = run.end(60)
    done.assert_one_line(
        3, "no worker was there for task ", "within 6 s (worker tcp://127.0.0.1:", " is lost)", "--resume"
    )


def have_little_memory(dask_worker: Any) -> None:
    dask_worker.memory_manager.memory_pause_fraction = 1e-6


@pytest.mark.slow
def test_the_only_worker_stays_paused(start_on, larger_sets, cluster_file: str, tmp_path: Path) -> None:
    (tmp_path / "preload.py").write_text(_FILLED_LATER)
    with dask_process(tmp_path, *_WORKER, "--memory-limit", "2GiB", "--preload", "preload.py"):
        run = start_on(cluster_file, larger_sets)
        run.await_partial_results(1)
        (tmp_path / "full").touch()
        done = run.end(60)
    done.assert_one_line(3, "out of memory: no worker took task ", "paused at its memory limit (", "of 2.0 GiB)")


@pytest.mark.slow
def test_one_of_two_workers_is_stopped(start_on, larger_sets, cluster_file: str, tmp_path: Path) -> None:
    with dask_process(tmp_path, *_WORKER) as first, dask_process(tmp_path, *_WORKER):
        run = start_on(f"{cluster_file}wait_for_workers: 2\n", larger_sets)
        run.await_partial_results(1)
        first.send_signal(signal.SIGSTOP)
        try:
            # The other worker may wait for data of the stopped one first, for Dask's time limits of connections.
            done = run.end(120)
        finally:
            first.send_signal(signal.SIGCONT)
    done.assert_one_line(3, "no worker worked on task ", " has not answered for ", "end those that do not answer")


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A worker in this process, and a run that does not wait as long as its scheduler."""
    with (
        started(1, tmp_path, processes=False, host=None, memory_limit="16GiB") as client,
        dask.config.set({"distributed.scheduler.no-workers-timeout": "2s"}),
    ):
        yield client


def nap(seconds: float) -> None:
    time.sleep(seconds)


@pytest.mark.slow
def test_a_long_task_is_no_standstill(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "WARNED_AFTER_S", 0.5)
    future = client.submit(nap, 5, pure=False)
    with watched_tasks(client, str, pytest.fail):
        assert future.result() is None


@pytest.mark.slow
def test_a_standstill_is_told_before_it_ends_the_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standstill, "WARNED_AFTER_S", 0.5)
    told: list[str] = []
    client.run(have_little_memory)
    time.sleep(0.5)
    with (
        pytest.raises(RunFailedError, match=r"^out of memory: no worker took the task nap for 2 s, .* \(worker .* \("),
        watched_tasks(client, lambda key: f"the task {key}", told.append),
    ):
        client.submit(nap, 0, key="nap").result()
    (line,) = told
    assert line.startswith("no task has been worked on for ")
    assert "waiting for workers, at most until 2 s have passed (worker inproc://" in line
    assert "is paused at its memory limit (" in line
    assert " of 16.0 GiB)" in line


def record(last_seen: float, executing: int = 0, status: str = "running") -> dict[str, Any]:
    """What a scheduler says about a worker."""
    metrics = {"task_counts": {"executing": executing}, "memory": 3 << 30}
    return {"last_seen": last_seen, "status": status, "memory_limit": 4 << 30, "metrics": metrics}


def test_a_jump_of_the_clock_is_no_silence_and_a_silent_worker_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, century = SimpleNamespace(now=1000.0), 127 * 365.25 * 86_400
    monkeypatch.setattr(standstill, "time", SimpleNamespace(monotonic=lambda: clock.now))
    found = standstill._Workers(300.0)
    found.look({"a": record(50.0, executing=1), "b": record(50.0)})
    assert not found.stand_still
    clock.now += 15
    found.look({"a": record(century, executing=1), "b": record(century)})
    assert (found.stand_still, found.worked) == (False, 1015.0)
    # Back again; and "b" has nothing to do, as "a" holds all tasks, and does not answer.
    clock.now += 15
    found.look({"a": record(century, executing=1), "b": record(80.0)})
    assert not found.stand_still
    clock.now += 15
    found.look({"a": record(century, executing=1), "b": record(95.0)})
    assert (found.stand_still, found.worked) == (True, 1015.0)
    assert found.states(0.0)[0] == ("silent", "worker a has not answered for 30 s")
    # It is no standstill while another works, or if the silent one is gone.
    found.look({"a": record(century, executing=1), "b": record(95.1, executing=1)})
    assert not found.stand_still
    found.look({"b": record(95.2)})
    assert not found.stand_still
    assert found.states(0.0)[0] == ("lost", "worker a is lost")
    found.look({"b": record(95.3, status="paused")})
    assert found.stand_still
    found.look({"b": record(95.4, executing=1, status="paused")})
    assert not found.stand_still
    found.look({})
    assert found.stand_still


def test_the_limit_of_every_kind() -> None:
    """Five minutes, or what the cluster file says; null there is for ever, elsewhere it is what Dask begins with."""
    assert patience() == 300
    for own, seconds in (
        ({}, 300),
        ({"distributed.scheduler.no-workers-timeout": "7 s"}, 7),
        ({"distributed.scheduler.no-workers-timeout": None}, 36500 * 86_400),
    ):
        with in_force(own):
            assert patience() == seconds


def test_an_adaptive_cluster_without_workers_is_waited_for(sets, tmp_path: Path) -> None:
    query, gallery = FeatureSet.open(sets.query), FeatureSet.open(sets.gallery)
    with local_cluster(n_workers=0, processes=False, protocol="tcp://", local_directory=str(tmp_path)) as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="100ms")
        with Client(cluster) as client:
            assert evaluate(query, gallery, client=client).result_digest == sets.digest
        # As of a cluster file, after it has let its worker go.
        wait_until(lambda: not cluster.scheduler.workers, "no workers")
        file = ExistingCluster(kind="existing", address=cluster.scheduler_address, timeout_s=20.0)
        with connect(file) as client:
            assert evaluate(query, gallery, client=client).result_digest == sets.digest


def test_a_cluster_that_gets_no_workers(sets, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "WARNED_AFTER_S", 0.3)
    with (
        started(0, tmp_path, processes=False, host=None) as client,
        dask.config.set({"distributed.scheduler.no-workers-timeout": "1s"}),
        pytest.raises(ClusterError, match="the cluster had no workers for 1 s: start some"),
        pytest.warns(UserWarning, match="has no workers: waiting for one, at most until 1 s have passed"),
    ):
        evaluate(FeatureSet.open(sets.query), FeatureSet.open(sets.gallery), client=client)


@pytest.mark.slow
def test_a_worker_that_is_stopped_before_the_run(start_on, sets, cluster_file: str, tmp_path: Path) -> None:
    with dask_process(tmp_path, *_WORKER) as worker, Client(scheduler_file=str(tmp_path / "scheduler.json")) as client:
        client.wait_for_workers(1)
        # The scheduler is connected to it by then.
        client.run(time.sleep, 0)
        worker.send_signal(signal.SIGSTOP)
        try:
            done = start_on(cluster_file, sets).end(60)
        finally:
            worker.send_signal(signal.SIGCONT)
    done.assert_one_line(3, "a worker has not answered for 6 s")
