"""Workers that pause for their memory while they hold tasks: the run ends in words, and does not wait for ever."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import dask
import pytest
from distributed import Client, Status
from distributed.worker import Worker
from local_workers import started

from reid_dist.clusters.failures import cluster_failures
from reid_dist.errors import RunFailedError

pytestmark = pytest.mark.slow


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    """A worker in this process that takes more tasks than it runs, and a scheduler that waits for two seconds."""
    settings = {"distributed.scheduler.no-workers-timeout": "2s", "distributed.scheduler.worker-saturation": "inf"}
    with (
        dask.config.set(settings),
        started(1, tmp_path, processes=False, host=None, memory_limit=0) as client,
    ):
        yield client


def pause(dask_worker: Worker) -> None:
    dask_worker.status = Status.paused


def test_a_task_that_a_paused_worker_holds(client: Client) -> None:
    first, second = (client.submit(time.sleep, seconds, pure=False, key=f"sleep-{seconds}") for seconds in (1, 0.5))
    time.sleep(0.3)
    client.run(pause, wait=True)
    with (
        pytest.raises(RunFailedError, match=r"out of memory: no worker took the task sleep-0\.5 for 2 s"),
        cluster_failures(client, lambda key: f"the task {key}"),
    ):
        client.gather([first, second])


def test_a_long_task_of_a_paused_worker_is_waited_for(client: Client) -> None:
    future = client.submit(time.sleep, 5, pure=False)
    time.sleep(0.5)
    client.run(pause, wait=True)
    with cluster_failures(client, str):
        assert future.result() is None
