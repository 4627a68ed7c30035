"""What is handed to PBS, LSF, Grid Engine and SLURM: the script, from the fields of a cluster file."""

from __future__ import annotations

import base64
import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from reid_dist.clusters import cluster_size, connect, read_cluster
from reid_dist.clusters.batch import batch_cluster
from reid_dist.errors import ClusterError, InputError

FIELDS: dict[str, Any] = {
    "jobs": 3,
    "cores": 4,
    "processes": 2,
    "memory": "8GiB",
    "walltime": "01:30:00",
    "queue": "gpu-long",
    "account": "project_7",
    "interface": "lo",
    "modules": ["python/3.12"],
    "lifetime": "50m",
    "lifetime_stagger": "30m",
    "python": "/opt/python/bin/python3",
    "local_directory": "/scratch/me",
    "dask": {"distributed.scheduler.allowed-failures": 5},
}
OWN: dict[str, dict[str, Any]] = {
    "slurm": {"qos": "high", "constraint": "avx512", "reservation": "mine"},
    "pbs": {},
    "lsf": {},
    "sge": {"parallel_environment": "smp", "resource_spec": "h_vmem=2G"},
}
CLASSES = {"slurm": "SLURMCluster", "pbs": "PBSCluster", "lsf": "LSFCluster", "sge": "SGECluster"}
DIRECTIVES = {
    "slurm": [
        "#SBATCH -J reid-dist",
        "#SBATCH -p gpu-long",
        "#SBATCH -A project_7",
        "#SBATCH -n 1",
        "#SBATCH --cpus-per-task=4",
        "#SBATCH --mem=8G",
        "#SBATCH -t 01:30:00",
        "#SBATCH --qos=high",
        "#SBATCH --constraint=avx512",
        "#SBATCH --reservation=mine",
    ],
    "pbs": [
        "#PBS -N reid-dist",
        "#PBS -q gpu-long",
        "#PBS -A project_7",
        "#PBS -l select=1:ncpus=4:mem=8192MB",
        "#PBS -l walltime=01:30:00",
    ],
    "lsf": [
        "#BSUB -J reid-dist",
        "#BSUB -q gpu-long",
        '#BSUB -P "project_7"',
        "#BSUB -n 4",
        '#BSUB -R "span[hosts=1]"',
        "#BSUB -M 8589935",
        "#BSUB -W 01:30",
    ],
    "sge": [
        "#$ -N reid-dist",
        "#$ -q gpu-long",
        "#$ -P project_7",
        "#$ -l h_vmem=2G",
        "#$ -l h_rt=01:30:00",
        "#$ -pe smp 4",
    ],
}


def _file(tmp_path: Path, kind: str, **changed: Any) -> Path:
    path = tmp_path / "cluster.yaml"
    fields = {"kind": kind, **FIELDS, **OWN[kind], "shared_directory": str(tmp_path / "shared"), **changed}
    path.write_text(yaml.safe_dump(fields))
    return path


@pytest.mark.parametrize("kind", OWN)
def test_the_script(tmp_path: Path, kind: str) -> None:
    with batch_cluster(read_cluster(_file(tmp_path, kind))) as cluster:
        assert type(cluster).__name__ == CLASSES[kind]
        script = cluster.job_script()
        assert cluster.scheduler_address.startswith("tls://127.0.0.1:")
    lines = script.splitlines()
    for directive in DIRECTIVES[kind]:
        assert directive in lines
    assert "module load python/3.12" in lines
    command = lines[-1]
    assert command.startswith("/opt/python/bin/python3 -m distributed.cli.dask_worker tls://127.0.0.1:")
    for words in (
        "--nthreads 2",
        "--nworkers 2",
        "--memory-limit 4.00GiB",
        "--nanny",
        "--preload-nanny reid_dist.clusters.remote_scratch",
        "--no-dashboard --dashboard-address 127.0.0.1:0",
        "--lifetime 50m --lifetime-stagger 30m",
        "--interface lo",
        "--protocol tls://",
    ):
        assert words in command
    # Keys are in files of this user alone, not in the script, and gone with the cluster.
    assert "PRIVATE KEY" not in script
    assert re.search(rf"--tls-key {tmp_path}/shared/\S+", command)
    assert not list((tmp_path / "shared").rglob("*.pem"))


def test_the_script_of_jobs_with_gpus(tmp_path: Path) -> None:
    with batch_cluster(read_cluster(_file(tmp_path, "slurm", gpus=2))) as cluster:
        *lines, command = cluster.job_script().splitlines()
    assert "#SBATCH --gres=gpu:2" in lines
    assert "--nworkers 2" in command
    assert "--preload-nanny reid_dist.clusters.remote_scratch" in command
    assert "--preload-nanny reid_dist.clusters.own_gpu" in command
    with batch_cluster(read_cluster(_file(tmp_path, "slurm"))) as cluster:
        assert "gpu" not in cluster.job_script().replace("gpu-long", "")


@pytest.mark.parametrize("kind", OWN)
def test_settings_reach_workers(tmp_path: Path, kind: str) -> None:
    with batch_cluster(read_cluster(_file(tmp_path, kind))) as cluster:
        script = cluster.job_script()
    given = re.search(r"^export DASK_INTERNAL_INHERIT_CONFIG=([A-Za-z0-9+/=_-]+)$", script, re.MULTILINE)
    assert given is not None
    whole = json.loads(base64.urlsafe_b64decode(given[1]))
    # Below it, each nanny makes a directory that no other user can enter.
    assert whole["temporary-directory"] == "/scratch/me"
    settings = whole["distributed"]
    # Pages are served outside TLS.
    assert settings["worker"]["http"]["routes"] == settings["scheduler"]["http"]["routes"] == []
    assert settings["scheduler"]["allowed-failures"] == 5
    assert settings["worker"]["memory"]["spill"] is False


@pytest.mark.parametrize("kind", OWN)
def test_size_without_starting_anything(tmp_path: Path, kind: str) -> None:
    size = cluster_size(read_cluster(_file(tmp_path, kind)))
    assert (size.n_workers, size.n_threads, size.memory_per_thread) == (6, 12, 2**31)
    assert not (tmp_path / "shared").exists()


# What would end a line, a word or a quotation, start a command, or be taken for an option.
HOSTILE = [
    "a\nrm -rf x",
    "a; reboot",
    "$(reboot)",
    "`reboot`",
    "a b",
    "a'b",
    'a"b',
    "a|b",
    "a&b",
    "a>b",
    "-a",
    "a\x00",
    "",
]
NAMES = (
    "queue",
    "account",
    "interface",
    "local_directory",
    "shared_directory",
    "python",
    "walltime",
    "memory",
    "lifetime",
)


@pytest.mark.quick_cases(94)
@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    ("kind", "field"),
    [
        *(("slurm", name) for name in (*NAMES, *OWN["slurm"])),
        *(("sge", name) for name in OWN["sge"]),
        *((kind, "queue") for kind in OWN),
    ],
)
def test_no_field_holds_words_for_a_shell(tmp_path: Path, kind: str, field: str, hostile: str) -> None:
    with pytest.raises(InputError, match=field):
        read_cluster(_file(tmp_path, kind, **{field: hostile}))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_no_module_is_a_command(tmp_path: Path, hostile: str) -> None:
    with pytest.raises(InputError, match="modules"):
        read_cluster(_file(tmp_path, "slurm", modules=["gcc", hostile]))


@pytest.mark.parametrize(
    "field", ["job_script_prologue", "env_extra", "job_extra_directives", "worker_command", "shebang"]
)
def test_free_text_is_no_field(tmp_path: Path, field: str) -> None:
    with pytest.raises(InputError, match=f"{field}: unknown key"):
        read_cluster(_file(tmp_path, "slurm", **{field: "reboot"}))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lifetime_stagger": None}, "go together"),
        ({"lifetime_stagger": "10m"}, "at least half"),
        ({"lifetime_stagger": "45m"}, "less than walltime"),
        ({"processes": 3}, "4 cores, 3 processes"),
        ({"wait_for_workers": 7}, "3 jobs have 6"),
        ({"jobs": 0}, "jobs"),
        ({"memory": "150MiB"}, "at least 192 MiB"),
        ({"memory": 8}, "memory"),
    ],
)
def test_fields_that_do_not_go_together(tmp_path: Path, changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        read_cluster(_file(tmp_path, "slurm", **changed))


@pytest.mark.parametrize("kind", OWN)
def test_where_jobs_cannot_be_submitted(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with (
        pytest.raises(ClusterError, match=f"run this where {kind} jobs can be submitted"),
        connect(read_cluster(_file(tmp_path, kind))),
    ):
        pass


def test_an_interface_that_is_not_there(tmp_path: Path) -> None:
    with (
        pytest.raises(ClusterError, match="absent0"),
        batch_cluster(read_cluster(_file(tmp_path, "slurm", interface="absent0"))),
    ):
        pass


def test_unencrypted_on_request(tmp_path: Path) -> None:
    with batch_cluster(read_cluster(_file(tmp_path, "slurm", insecure=True))) as cluster:
        assert cluster.scheduler_address.startswith("tcp://127.0.0.1:")


def test_ctrl_c_still_interrupts(tmp_path: Path) -> None:
    """Dask-jobqueue takes it, and would end the process as if all had been done."""
    before = signal.getsignal(signal.SIGINT)
    with batch_cluster(read_cluster(_file(tmp_path, "slurm"))):
        assert signal.getsignal(signal.SIGINT) is before
