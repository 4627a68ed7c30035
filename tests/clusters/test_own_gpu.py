"""Workers with a GPU each: which one a worker sees, by what a nanny tells of itself."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from reid_dist.clusters import LocalCluster, connect, own_gpu
from reid_dist.core import gpus
from reid_dist.core.gpus import visible_gpus
from reid_dist.engine.distances.devices import may_have
from reid_dist.engine.policy import Policy
from reid_dist.errors import ClusterError


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with eight GPUs."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(gpus, "_count", lambda: 8)
    return monkeypatch


def test_gpus_of_a_process(eight) -> None:
    assert visible_gpus() == tuple("01234567")
    for chosen, seen in (("3, 7", ("3", "7")), ("GPU-1a,MIG-2b", ("GPU-1a", "MIG-2b")), ("", ()), ("-1", ())):
        eight.setenv("CUDA_VISIBLE_DEVICES", chosen)
        assert visible_gpus() == seen
    eight.setenv("CUDA_VISIBLE_DEVICES", "0")
    eight.setattr(gpus, "_count", lambda: 0)
    assert visible_gpus() == ()


@pytest.mark.parametrize(
    ("name", "own"), [(0, "3"), (1, "7"), (2, "3"), ("SLURMCluster-5-0", "3"), ("SLURMCluster-5-1", "7"), ("tcp", "3")]
)
def test_the_gpu_of_a_worker(eight, name, own: str) -> None:
    eight.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    nanny = SimpleNamespace(name=name, env={"OMP_NUM_THREADS": "1"})
    own_gpu.dask_setup(nanny)
    assert nanny.env == {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": own}


def test_local_workers_see_one_gpu_each_and_again_when_they_are_restarted(eight) -> None:
    eight.setenv("CUDA_VISIBLE_DEVICES", "3,7")
    with connect(LocalCluster(kind="local", gpus=2, threads_per_worker=1)) as client:
        before = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
        assert client.scheduler.address.startswith("tls://127.0.0.1:")
        client.restart()
        after = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
    assert sorted(before.values()) == sorted(after.values()) == ["3", "7"]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,7"


def test_more_gpus_than_there_are(eight) -> None:
    wanted = LocalCluster(kind="local", gpus=9)
    with pytest.raises(ClusterError, match=r"the cluster wants 9 GPUs, and 8 can be used here: look at nvidia-smi"):
        connect(wanted).__enter__()
    eight.setattr(gpus, "_count", lambda: 0)
    with pytest.raises(ClusterError, match="wants 9 GPUs, and none can be used here"):
        connect(wanted).__enter__()


@pytest.mark.slow
def test_the_command_says_what_is_missing(evaluate_on) -> None:
    """The extra where torch is missing, or else a GPU."""
    missing = "finds no GPU and driver here" if may_have("cpu") else "pip install 'reid-dist[cuda]'"
    evaluate_on("kind: local\ngpus: 1\n", env={"CUDA_VISIBLE_DEVICES": ""}).assert_one_line(2, missing)


@pytest.mark.parametrize("field", ["gpus: 2\nprocesses: 2", "device: cuda"])
def test_jobs_for_workers_with_gpus_are_planned_where_there_is_none(tmp_path: Path, field: str, monkeypatch) -> None:
    from reid_dist.clusters import read_cluster
    from reid_dist.clusters.settings import forcing

    monkeypatch.setattr("reid_dist.engine.policy.may_have", lambda where: False)
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    path = tmp_path / "cluster.yaml"
    path.write_text(f"kind: slurm\njobs: 2\ncores: 8\nmemory: 8GiB\nwalltime: 01:00:00\n{field}\n")
    cluster = read_cluster(path)
    assert cluster.expects_gpus
    with forcing(cluster.screen, cluster.device, gpus=cluster.expects_gpus):
        assert Policy.in_force().expects_device(1 << 40)
    assert not Policy.in_force().expects_device(1 << 40)
    assert Policy.in_force(gpus=True).describe()["on_workers"]
    with forcing(None, "cpu", gpus=True):
        assert not Policy.in_force().expects_device(1 << 40)
