"""One SLURM job whose tasks all run the command: one answer, and all of them end."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_words import COMMAND
from mini_slurm import MiniSlurm, mini_slurm, missing_programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"SLURM is not here: {missing_programs()}"),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[MiniSlurm]:
    with mini_slurm(cpus=2) as running:
        yield running


@pytest.fixture
def cluster_file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "kind: slurm_single_job\nworkers: 2\nthreads_per_worker: 1\nmemory: 900MiB\ninterface: lo\n"
        f"wait_for_workers: 2\ntimeout_s: 60\nshared_directory: {tmp_path / 'shared'}\n"
    )
    return path


def test_all_tasks_run_the_command(sets, slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    """Submitted as a script, as users do; the directory that only one task may make is made once."""
    words = [*COMMAND, "evaluate", sets.query, sets.gallery, "--cluster", cluster_file, "--output", tmp_path / "output"]
    script = tmp_path / "job.sh"
    script.write_text(f"#!/bin/sh\nexec srun --kill-on-bad-exit=1 {shlex.join(map(str, words))}\n")
    log = tmp_path / "log.txt"
    slurm.run("sbatch", "--wait", "--ntasks=4", "--mem-per-cpu=900", f"--output={log}", str(script))
    assert json.loads((tmp_path / "output" / "report.json").read_text())["result_digest"] == sets.digest, (
        log.read_text()
    )
    assert log.read_text().count("mAP ") == 1
    assert "distributed." not in log.read_text()
    assert "Traceback" not in log.read_text()
    assert slurm.jobs() == []


def test_a_command_that_ends_before_it_needs_the_others(slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    words = [*COMMAND, "evaluate", tmp_path / "absent", tmp_path / "absent", "--cluster", cluster_file]
    done = slurm.attempt("srun", "--ntasks=4", "--mem-per-cpu=900", *map(str, words))
    assert done.returncode == 2
    # The others have started nothing that could complain; what srun says of itself aside, there is one line.
    said = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert len(said) == 1, done.stderr
    assert said[0].startswith("Error: no features at ")
    assert slurm.jobs() == []


def test_other_tasks_than_the_file_says(slurm: MiniSlurm, cluster_file: Path, sets) -> None:
    words = [*COMMAND, "evaluate", sets.query, sets.gallery, "--cluster", cluster_file]
    done = slurm.attempt("srun", "--ntasks=3", *map(str, words))
    assert done.returncode == 2
    assert "takes 4 tasks with the scheduler and the client; this job step has 3" in done.stderr


def test_outside_a_job(evaluate_on, cluster_file: Path) -> None:
    evaluate_on(cluster_file.read_text()).assert_one_line(2, "srun --ntasks=4")
