"""Cluster files that are wrong: every problem in one line, before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.refusals import in_full

from reid_dist.clusters import cluster_schema, cluster_size, read_cluster
from reid_dist.clusters.connection import connect
from reid_dist.clusters.kinds import KINDS, PBSCluster
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.errors import InputError

SHIPPED = sorted((Path(__file__).parents[2] / "cluster_configs").glob("*.yaml"))
NEEDS = {
    "slurm": ("dask_jobqueue", "jobqueue"),
    "pbs": ("dask_jobqueue", "jobqueue"),
    "lsf": ("dask_jobqueue", "jobqueue"),
    "sge": ("dask_jobqueue", "jobqueue"),
    "ssh": ("asyncssh", "ssh"),
    "kubernetes": ("dask_kubernetes.operator", "kubernetes"),
    "gateway": ("dask_gateway", "gateway"),
}


def _refusal(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    return in_full(caught.value)


def test_there_is_a_file_of_every_kind() -> None:
    kinds = {read_cluster(path).kind for path in SHIPPED}
    assert {path.stem for path in SHIPPED} == kinds | {"local_cuda"}
    assert len(kinds) == len(KINDS) == len(cluster_schema()["oneOf"])


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.stem != "existing"], ids=lambda path: path.stem)
def test_size_without_starting_anything(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    size = cluster_size(read_cluster(path))
    assert size.n_workers >= 1
    assert size.n_threads >= size.n_workers
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", [path for path in SHIPPED if path.stem in NEEDS], ids=lambda path: path.stem)
def test_an_extra_that_is_not_installed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, extra = NEEDS[path.stem]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match=rf"pip install 'reid-dist\[{extra}\]'"), connect(read_cluster(path)):
        pass


@pytest.mark.quick_cases(8)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kind: slrum\n", "unknown kind 'slrum'; did you mean 'slurm'? known: threads, local, existing, ssh"),
        ("kind: dask_cloudprovider.aws.FargateCluster\n", "unknown kind"),
        ("workers: 2\n", "there is no kind"),
        ("kind: [local]\n", "unknown kind"),
        ("- local\n", "one 'key: value' per line"),
        ("", "found None"),
        ("kind: local\nworker: 2\n", "worker: unknown key, did you mean 'workers'?"),
        ("kind: local\nworkers: many\nthreads_per_worker: 0\n", "2 problems"),
        (
            "kind: threads\ndask: {distributed.worker.memory.pause: 0.5}\n",
            "cluster.yaml: line 2, dask: unknown key for this kind, though others have it; leave it out",
        ),
        ("kind: local\nworkers: 0\n", "greater than or equal to 1"),
        ("kind: existing\naddress: 127.0.0.1\n", "address: string should match"),
        ("kind: local\njobs: 2\n", "jobs: unknown key for this kind, though others have it"),
        ("kind: !!python/object/apply:os.system [reboot]\n", "is not YAML"),
        ("kind: 'local\n", "is not YAML"),
        ("kind: local\ndescription: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("kind: local\ngpus: 2\nworkers: 3\n", "every GPU has one worker: gpus is 2, workers 3; leave workers out"),
        (
            "kind: slurm\njobs: 2\ncores: 4\nmemory: 8GiB\nwalltime: 01:00:00\ngpus: 2\n",
            "every GPU has one worker: gpus is 2, processes 1; make both the same",
        ),
        ("kind: local\nworkers: true\n", "workers: input should be a valid integer, found True"),
        ("kind: local\ndashboard: 1\n", "dashboard: input should be a valid boolean"),
        ("kind: existing\naddress: tcp://127.0.0.1:1\ntimeout_s: .inf\n", "timeout_s: input should be a finite number"),
        ("kind: existing\naddress: tcp://127.0.0.1:1\ntimeout_s: 1e300\n", "timeout_s: input should be less than"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str, words: str) -> None:
    assert words in _refusal(tmp_path, text)


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="it is not UTF-8 text"):
        read_cluster(path)


@pytest.mark.parametrize(
    "setting",
    [
        "distributed.worker.preload",
        "distributed.scheduler.preload",
        "distributed.nanny.preload",
        "distributed.nanny.environ.PYTHONSTARTUP",
        "distributed.nanny.pre-spawn-environ.LD_PRELOAD",
        "distributed.scheduler.http.routes",
        "distributed.comm.tls.key",
        "distributed.scheduler.pickle",
        "jobqueue.slurm.job-script-prologue",
        "temporary-directory",
    ],
)
def test_settings_that_could_run_code(tmp_path: Path, setting: str) -> None:
    assert "could run code" in _refusal(tmp_path, f"kind: local\ndask: {{{setting}: evil}}\n")


@pytest.mark.parametrize(
    ("setting", "value", "wanted"),
    [
        ("scheduler.no-workers-timeout", "evil", "a time such as 90s"),
        ("comm.timeouts.tcp", "-3s", "a time such as 90s"),
        ("worker.memory.pause", "7", "a share from 0 to 1"),
        ("scheduler.allowed-failures", "many", "a whole number"),
        ("worker.multiprocessing-method", "evil", "spawn, fork or forkserver"),
    ],
)
def test_settings_that_dask_cannot_read(tmp_path: Path, setting: str, value: str, wanted: str) -> None:
    refusal = _refusal(tmp_path, f"kind: local\ndask: {{distributed.{setting}: {value}}}\n")
    assert f"distributed.{setting} should be {wanted}" in refusal


@pytest.mark.parametrize("field", ["address: tcp://me:hunter2@10.0.0.1:8786", "address: tls://hunter2@10.0.0.1:8786"])
def test_a_password_in_an_address_is_refused_and_not_repeated(tmp_path: Path, field: str) -> None:
    refusal = _refusal(tmp_path, f"kind: existing\n{field}\n")
    assert "address: string should match" in refusal
    assert "hunter2" not in refusal


@pytest.mark.parametrize("limit", ["plenty", "-5GiB", "1MiB", "150MiB", "191MiB"])
def test_impossible_limits_of_memory_are_refused(tmp_path: Path, limit: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(f"kind: local\nmemory_limit: {limit}\n")
    with pytest.raises(InputError, match=f"memory_limit '{limit}' of the cluster"), connect(read_cluster(path)):
        pass


@pytest.mark.parametrize("walltime", ["10:00:00", "04:30:00"])
def test_times_need_no_quotes(tmp_path: Path, walltime: str) -> None:
    """YAML 1.1 reads the first as 36,000 and the second as a text."""
    path = tmp_path / "cluster.yaml"
    path.write_text(f"kind: pbs\njobs: 2\ncores: 4\nmemory: 8GiB\nwalltime: {walltime}\n")
    cluster = read_cluster(path)
    assert isinstance(cluster, PBSCluster)
    assert cluster.walltime == walltime


def test_what_looks_like_a_date_and_is_none(tmp_path: Path) -> None:
    assert "not YAML" in _refusal(tmp_path, "kind: local\ndescription: 2020-99-99\n")


def test_products_of_a_cluster_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file forces them for its run, unless the environment does, which is left as it is."""
    path = tmp_path / "threads.yaml"
    path.write_text("kind: threads\nscreen: float32\n")
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    assert Policy.in_force() == UNFORCED
    with connect(read_cluster(path)):
        assert Policy.in_force() == Policy("float32")
        assert "REID_DIST_SCREEN" not in os.environ
    assert Policy.in_force() == UNFORCED
    monkeypatch.setenv("REID_DIST_SCREEN", "int8")
    with connect(read_cluster(path)):
        assert Policy.in_force() == Policy("int8")
    assert Policy.in_force() == Policy("int8")
    assert "float32" in _refusal(tmp_path, "kind: threads\nscreen: int4\n")
