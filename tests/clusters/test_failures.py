"""Failures of workers: the error names the tasks that may be the cause, and paused workers end the run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, Status
from distributed.worker import Worker
from support.local_workers import started

from reid_dist.clusters.failures import watched_tasks
from reid_dist.errors import RunFailedError

pytestmark = pytest.mark.slow

# A worker reports twice a second what it runs.
_REPORTED_S = 1.5


def die(place: str, n_others: int) -> None:
    """End the worker as a kernel does that is out of memory, once others run and that is reported."""
    while len(list(Path(place).iterdir())) < n_others:
        time.sleep(0.01)
    time.sleep(_REPORTED_S)
    os.kill(os.getpid(), signal.SIGKILL)


def wait(place: str, name: str) -> None:
    (Path(place) / f"{name}-{os.getpid()}").touch()
    time.sleep(60)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start one worker that is replaced once, and that takes all tasks at once."""
    settings = {"distributed.scheduler.allowed-failures": 1, "distributed.scheduler.worker-saturation": "inf"}
    with dask.config.set(settings):
        yield lambda n_threads: started(1, tmp_path / "dask", threads_per_worker=n_threads, memory_limit="1GiB")


def failure(client: Client, futures: list[Any]) -> str:
    with pytest.raises(RunFailedError) as failed, watched_tasks(client, lambda key: f"the task {key}", pytest.fail):
        client.gather(futures)
    return str(failed.value)


def test_one_of_several_that_were_run(start: Any, tmp_path: Path) -> None:
    place = tmp_path / "begun"
    place.mkdir()
    with start(2) as client:
        tasks = [
            client.submit(wait, str(place), "innocent", key="innocent", pure=False),
            client.submit(die, str(place), 1, key="guilty", pure=False),
        ]
        message = failure(client, tasks)
    assert (
        "with 1.0 GiB for 2 threads died 2 times on one of these tasks, which they had together each time: " in message
    )
    assert "the task guilty" in message
    assert "the task innocent" in message
    assert "--chunk-rows" in message


def test_the_one_that_was_run_and_not_those_that_waited(start: Any, tmp_path: Path) -> None:
    """Whichever of them Dask names."""
    place = tmp_path / "begun"
    place.mkdir()
    with start(1) as client:
        guilty = client.submit(die, str(place), 0, key="guilty", pure=False, priority=10)
        others = [client.submit(wait, str(place), "other", key=f"other-{n}", pure=False) for n in range(5)]
        message = failure(client, [*others, guilty])
    assert "died 2 times on the task guilty;" in message
    assert "other" not in message.replace("the other", "")


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
        watched_tasks(client, lambda key: f"the task {key}", pytest.fail),
    ):
        client.gather([first, second])


def test_a_long_task_of_a_paused_worker_is_waited_for(client: Client) -> None:
    future = client.submit(time.sleep, 5, pure=False)
    time.sleep(0.5)
    client.run(pause, wait=True)
    with watched_tasks(client, str, pytest.fail):
        assert future.result() is None
