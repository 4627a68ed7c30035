"""One SLURM job whose tasks all run the command: one answer, and all of them end."""

from __future__ import annotations

import atexit
import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from held_runs import assert_closed, held, private_keys
from mini_slurm import MiniSlurm, mini_slurm, missing_programs
from support.processes import COMMAND

from reid_dist.clusters import read_cluster, take_part
from reid_dist.errors import ClusterError

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


def words_of(sets: Any, cluster_file: Path, output: Path) -> list[str]:
    words = [*COMMAND, "evaluate", sets.query, sets.gallery, "--cluster", cluster_file, "--output", output]
    return ["srun", "--kill-on-bad-exit=1", *map(str, words)]


def run_in_four_tasks(slurm: MiniSlurm, sets: Any, cluster_file: Path, output: Path, late_s: int = 0) -> None:
    """Evaluate in a job of its own, without the seconds that `sbatch --wait` looks away; the last task may be late."""
    late = ["sh", "-c", '[ "$SLURM_PROCID" != 3 ] || sleep "$0"; exec "$@"', str(late_s)]
    srun, bad_exit, *rest = words_of(sets, cluster_file, output)
    done = slurm.attempt(srun, bad_exit, "--ntasks=4", "--mem-per-cpu=900", *late, *rest)
    assert done.returncode == 0, done.stderr
    assert json.loads((output / "report.json").read_text())["result_digest"] == sets.digest
    # A worker that is being started while the job ends has lost what it shares with its parent.
    assert "Traceback" not in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("Error: ")]


def test_all_tasks_run_the_command(sets, slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    """Submitted as a script, as users do; the directory that only one task may make is made once."""
    script, log, output = tmp_path / "job.sh", tmp_path / "log.txt", tmp_path / "output"
    script.write_text(f"#!/bin/sh\nexec {shlex.join(words_of(sets, cluster_file, output))}\n")
    done = slurm.attempt("sbatch", "--wait", "--ntasks=4", "--mem-per-cpu=900", f"--output={log}", str(script))
    written = log.read_text() if log.exists() else ""
    # What went wrong is in the log alone, and what SLURM makes of it in its own account.
    assert done.returncode == 0, f"{done.stderr}{written}{slurm.attempt('scontrol', 'show', 'job').stdout}"
    assert json.loads((output / "report.json").read_text())["result_digest"] == sets.digest, written
    assert written.count("mAP ") == 1
    assert "distributed." not in written
    assert "Traceback" not in written
    assert slurm.jobs() == []


def test_an_unauthorised_client_is_not_admitted(sets, slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    words = ("evaluate", sets.query, sets.gallery, "--cluster", cluster_file)
    srun = ("srun", "--kill-on-bad-exit=1", "--ntasks=4", "--mem-per-cpu=900")
    with held(tmp_path, *words, kind="slurm_single_job", before=srun, **slurm.environment) as run:
        assert_closed(run.processes, at_least=8)
        run.end()


def test_a_job_that_is_cancelled_leaves_no_keys(sets, slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    words = ("evaluate", sets.query, sets.gallery, "--cluster", cluster_file)
    srun = ("srun", "--kill-on-bad-exit=1", "--ntasks=4", "--mem-per-cpu=900")
    with held(tmp_path, *words, kind="slurm_single_job", before=srun, **slurm.environment) as run:
        assert private_keys(tmp_path / "shared")
        (job,) = slurm.running()
        slurm.run("scancel", job)
        _, err = run.process.communicate(timeout=60)
        assert run.process.returncode != 0
        assert "Traceback" not in err
    assert private_keys(tmp_path / "shared") == []


@pytest.mark.parametrize("late_s", [0, 3, 20])
def test_a_worker_that_comes_late_does_not_fail_the_job(
    sets, slurm: MiniSlurm, cluster_file: Path, tmp_path: Path, late_s: int
) -> None:
    """The command begins with one worker, and may have ended before the other has begun, or while it does so."""
    cluster_file.write_text(cluster_file.read_text().replace("wait_for_workers: 2", "wait_for_workers: 1"))
    run_in_four_tasks(slurm, sets, cluster_file, tmp_path / "output", late_s)


def test_numbers_of_jobs_begin_again(sets, cluster_file: Path, tmp_path: Path) -> None:
    """A SLURM that is set up anew counts from 1, and finds what jobs of these numbers have left before."""
    for number in range(2):
        with mini_slurm(cpus=2) as anew:
            run_in_four_tasks(anew, sets, cluster_file, tmp_path / f"output-{number}")
    left = sorted(path.name for path in (tmp_path / "shared").iterdir())
    assert len(left) == 2
    assert len({name.rpartition("-")[0] for name in left}) == 1


def test_a_folder_that_is_there_already_is_not_used(
    cluster_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_the_step = {"JOB_ID": "7", "STEP_ID": "0", "NTASKS": "4", "JOB_START_TIME": "1", "SRUN_COMM_PORT": "4000"}
    for name, value in {**of_the_step, "PROCID": "1"}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    monkeypatch.setattr(atexit, "register", lambda *_: None)
    cluster = read_cluster(cluster_file)
    take_part(cluster)
    with pytest.raises(ClusterError, match=r"job-7\.0-0-[0-9a-f]+ is what an earlier job of the same number has left"):
        take_part(cluster)
    # Another start of the same job, and another step, are others.
    for name, value in (("RESTART_COUNT", "1"), ("STEP_ID", "1"), ("JOB_START_TIME", "2"), ("SRUN_COMM_PORT", "5")):
        monkeypatch.setenv(f"SLURM_{name}", value)
        take_part(cluster)
    assert len(list((tmp_path / "shared").iterdir())) == 5


def test_a_command_that_ends_before_it_needs_the_others(slurm: MiniSlurm, cluster_file: Path, tmp_path: Path) -> None:
    words = [*COMMAND, "evaluate", tmp_path / "absent", tmp_path / "absent", "--cluster", cluster_file]
    done = slurm.attempt("srun", "--ntasks=4", "--mem-per-cpu=900", *map(str, words))
    assert done.returncode == 2
    # The others have started nothing that could fail; apart from messages of srun there is one line.
    message = [line for line in done.stderr.splitlines() if not line.startswith("srun: ")]
    assert len(message) == 1, done.stderr
    assert message[0].startswith("Error: no such file or store: ")
    assert slurm.jobs() == []


def test_other_numbers_of_tasks_than_in_the_file(slurm: MiniSlurm, cluster_file: Path, sets) -> None:
    words = [*COMMAND, "evaluate", sets.query, sets.gallery, "--cluster", cluster_file]
    done = slurm.attempt("srun", "--ntasks=3", *map(str, words))
    assert done.returncode == 2
    assert "takes 4 tasks with the scheduler and the client; this job step has 3" in done.stderr


def test_outside_a_job(evaluate_on, cluster_file: Path) -> None:
    evaluate_on(cluster_file.read_text()).assert_one_line(2, "srun --ntasks=4")
