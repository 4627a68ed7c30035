"""Local clusters that start in a thread: joined, left alone, or failed."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

import pytest

import reid_dist.clusters.local as local
from reid_dist.clusters import EarlyCluster, LocalCluster
from reid_dist.errors import ClusterError

CONFIG = LocalCluster(kind="local", workers=1, dask={"distributed.worker.memory.terminate": 0.9})


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What happens to a cluster, which is a text; it starts once the lock is free."""
    found: list[str] = []

    @contextlib.contextmanager
    def cluster(config: LocalCluster) -> Iterator[str]:
        import dask

        assert dask.config.get("distributed.worker.memory.terminate") == 0.9
        assert threading.current_thread() is not threading.main_thread()
        found.append("started")
        yield "cluster"
        found.append("ended")

    monkeypatch.setattr(local, "local_cluster", cluster)
    return found


def test_it_ends_with_what_joins_it(events: list[str]) -> None:
    interval = sys.getswitchinterval()
    with EarlyCluster(CONFIG) as early:
        with early.joined() as cluster:
            assert cluster == "cluster"
            assert sys.getswitchinterval() == interval
            assert events == ["started"]
        assert events == ["started", "ended"]
    assert events == ["started", "ended"]


def test_it_ends_if_nothing_joins_it(events: list[str]) -> None:
    interval = sys.getswitchinterval()
    with pytest.raises(ValueError, match="input"), EarlyCluster(CONFIG):
        raise ValueError("input")
    assert events == ["started", "ended"]
    assert sys.getswitchinterval() == interval


def test_settings_of_dask_end_with_it(events: list[str]) -> None:
    import dask

    before = dask.config.get("distributed.worker.memory.terminate", None)
    with EarlyCluster(CONFIG) as early, early.joined():
        pass
    assert dask.config.get("distributed.worker.memory.terminate", None) == before


def test_its_error_is_raised_where_it_is_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def refused(config: LocalCluster) -> Iterator[str]:
        raise ClusterError("no memory")
        yield

    monkeypatch.setattr(local, "local_cluster", refused)
    with EarlyCluster(CONFIG) as early, pytest.raises(ClusterError, match="no memory"), early.joined():
        pass
    with EarlyCluster(CONFIG):
        pass
