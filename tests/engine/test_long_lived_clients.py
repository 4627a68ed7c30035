"""Evaluations on one client, one after the other: scheduler and workers keep nothing of those that are done."""

from __future__ import annotations

import collections
import gc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client, span
from support.local_workers import started
from support.processes import wait_until

from reid_dist import FeatureSet, evaluate

# Without a process of its own for the worker, which takes seconds to start.
_HERE = {"processes": False, "protocol": "tcp://"}


def _on_scheduler(dask_scheduler: Any) -> dict[str, int]:
    spans = dask_scheduler.extensions["spans"]
    names = ("tasks", "task_groups", "task_prefixes")
    return {name: len(getattr(dask_scheduler, name)) for name in names} | {"spans": len(spans.spans)}


def _on_worker(dask_worker: Any) -> dict[str, int]:
    """Tasks, and spans that statistics are kept of."""
    spans = {key[1] for key in dask_worker.digests_total if isinstance(key, tuple) and key[0] == "execute"}
    return {"tasks": len(dask_worker.state.tasks), "spans": len(spans)}


def _objects() -> dict[str, int]:
    """Live objects of this package by class."""
    gc.collect()
    classes = collections.Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.get_objects())
    return {name: n for name, n in classes.items() if name.startswith("reid_dist.")}


def _span_names(dask_scheduler: Any) -> list[tuple[str, ...]]:
    return [each.name for each in dask_scheduler.extensions["spans"].spans.values()]


@pytest.fixture
def saved(tmp_path: Path) -> tuple[FeatureSet, FeatureSet]:
    rng = np.random.default_rng(3)

    def made(name: str, n: int) -> FeatureSet:
        features = rng.standard_normal((n, 8)).astype(np.float32)
        return FeatureSet.from_arrays(features, rng.integers(0, 6, n), rng.integers(0, 3, n)).save(tmp_path / name)

    return made("query.zarr", 20), made("gallery.zarr", 60)


def _evaluate(saved: tuple[FeatureSet, FeatureSet], client: Client, n: int) -> None:
    for k in range(n):
        evaluate(*saved, client=client, max_rank=5 + k)


def _kept(client: Client) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """Counts once no task is left: the client releases tasks by messages that nothing waits for."""

    def counts() -> tuple[dict[str, int], dict[str, dict[str, int]]]:
        return client.run_on_scheduler(_on_scheduler), client.run(_on_worker)

    def is_released() -> bool:
        scheduler, workers = counts()
        return not scheduler["tasks"] and not any(each["tasks"] for each in workers.values())

    wait_until(is_released, "the release of all tasks", 20)
    return counts()


@pytest.mark.slow
def test_nothing_is_kept_of_evaluations(saved, tmp_path: Path) -> None:
    with started(1, tmp_path, **_HERE) as client:
        _evaluate(saved, client, 2)
        before = _kept(client)
        assert before[0]["task_prefixes"] > 2
        assert [each["spans"] for each in before[1].values()] == [1]
        _evaluate(saved, client, 6)
        assert _kept(client) == before


@pytest.mark.slow
def test_no_object_is_kept_in_a_worker(saved, tmp_path: Path) -> None:
    with started(1, tmp_path) as client:
        _evaluate(saved, client, 3)
        (before,) = client.run(_objects).values()
        assert before
        _evaluate(saved, client, 30)
        (after,) = client.run(_objects).values()
        # A worker releases the tasks of the last evaluation some time after it: a dozen objects of a class.
        # What is kept grows with every evaluation.
        assert {name: n - before.get(name, 0) for name, n in after.items() if n - before.get(name, 0) >= 30} == {}


def test_a_span_of_the_caller_is_kept(saved, tmp_path: Path) -> None:
    with started(1, tmp_path, **_HERE) as client:
        with span("night"):
            _evaluate(saved, client, 1)
        assert client.run_on_scheduler(_span_names) == [("night",)]
