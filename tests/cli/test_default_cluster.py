"""Where commands run without a cluster file: threads of the process where one process serves all cores."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

import reid_dist.clusters.connection as connection
import reid_dist.clusters.local as local
import reid_dist.core.environment as environment
import reid_dist.core.limits as limits
from reid_dist.clusters import LocalCluster, Threads, cluster_size
from reid_dist.clusters.workers import prepare_local_workers
from reid_dist.errors import ClusterError
from reid_dist.stages.session import Session, planned_memory


@contextlib.contextmanager
def refused(config: LocalCluster) -> Iterator[None]:
    raise ClusterError(f"{config.workers} workers were requested")
    yield


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch):
    """Set the number of cores, and refuse local clusters."""
    monkeypatch.setattr(connection, "prepare_local_workers", lambda: None)
    monkeypatch.setattr(prepare_local_workers.__module__ + ".prepare_local_workers", lambda: None)
    monkeypatch.setattr(local, "local_cluster", refused)
    return lambda number: monkeypatch.setattr(environment, "usable_cores", lambda: number)


def test_one_process_serves_up_to_eight_cores(stores, cores, reid_dist, tmp_path: Path) -> None:
    cores(8)
    done = reid_dist("evaluate", *stores)
    assert done.code == 0
    for more in (("--workers", "1"), ("--performance-report", tmp_path / "page.html")):
        asked = reid_dist("evaluate", *stores, *more)
        assert asked.code == 3
        assert "workers were requested" in asked.err


def test_more_cores_have_several_processes(stores, cores, reid_dist) -> None:
    cores(9)
    found = reid_dist("evaluate", *stores)
    assert found.code == 3
    assert "None workers were requested" in found.err


def test_demonstrations_have_a_cluster_on_any_machine(cores, reid_dist, tmp_path: Path) -> None:
    cores(1)
    found = reid_dist("demo", "--output", tmp_path / "demo")
    assert found.code == 3
    assert "workers were requested" in found.err


@pytest.mark.parametrize(
    ("groups", "texts", "least"),
    [
        ("0::/", {"memory.max": "max"}, None),
        ("0::/", {"memory.max": "4096"}, 4096),
        ("0::/slurm/job", {"memory.max": "max", "slurm/memory.max": "8192", "slurm/job/memory.max": "max"}, 8192),
        ("0::/docker/name", {"memory.max": "4096"}, 4096),
        ("0::/../outer", {"memory.max": "4096", "../outer/memory.max": "1"}, 4096),
        (
            "4:cpu,memory:/job\n3:cpuset:/other",
            {f"memory/{name}memory.limit_in_bytes": text for name, text in (("", "9" * 19), ("job/", "8192"))}
            | {"memory/other/memory.limit_in_bytes": "1"},
            8192,
        ),
    ],
)
def test_memory_of_a_container_or_job(groups, texts, least, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The least limit of the groups that contain the process; without any, the memory of the machine."""
    mount, listed = tmp_path / "mount", tmp_path / "groups"
    mount.mkdir()
    listed.write_text(groups + "\n")
    for name, text in texts.items():
        (mount / name).parent.mkdir(parents=True, exist_ok=True)
        (mount / name).write_text(text + "\n")
    monkeypatch.setattr(limits, "_GROUPS", listed)
    monkeypatch.setattr(limits, "_GROUPS_MOUNT", mount)
    # The function itself keeps what it found first.
    found = limits.usable_memory.__wrapped__()
    assert found == least if least is not None else found > 1 << 27


@pytest.mark.parametrize(("wanted", "expected"), [("auto", 1 << 30), ("1.5GiB", 3 << 29), ("4GiB", 2 << 30)])
def test_memory_of_local_workers_in_a_batch_job(wanted: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers share the limit of the job, which Dask does not read."""
    monkeypatch.setattr(local, "usable_memory", lambda: 2 << 30)
    assert local.memory_of_worker(LocalCluster(kind="local", workers=2, memory_limit=wanted)) == expected


def test_threads_plan_with_the_memory_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "usable_cores", lambda: 4)
    monkeypatch.setattr(environment, "usable_memory", lambda: 4 << 30)
    assert cluster_size(Threads(kind="threads")).memory_per_thread == 1 << 30
    assert Session().execution().memory_per_thread == planned_memory(1 << 30) < 1 << 30
