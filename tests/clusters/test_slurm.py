"""Workers as jobs of a real SLURM of three nodes: the answer of threads, also when jobs and nodes go away."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from held_runs import assert_closed, held, private_keys
from mini_slurm import MiniSlurm, mini_slurm, missing_programs
from support.processes import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"SLURM is not here: {missing_programs()}"),
]

SMALL_TILES = ("--chunk-rows", "60")


@pytest.fixture(scope="module")
def slurm() -> Iterator[MiniSlurm]:
    with mini_slurm(cpus=2) as running:
        yield running


@pytest.fixture
def cluster_text(tmp_path) -> str:
    return (
        "kind: slurm\njobs: 2\ncores: 2\nmemory: 900MiB\nwalltime: 00:10:00\nqueue: debug\ninterface: lo\n"
        f"wait_for_workers: 2\ntimeout_s: 60\nshared_directory: {tmp_path / 'shared'}\n"
    )


def test_the_answer_of_threads(evaluate_on, sets, slurm: MiniSlurm, cluster_text: str) -> None:
    done = evaluate_on(cluster_text, env=slurm.environment)
    assert done.digest == sets.digest


def test_an_unauthorised_client_is_not_admitted(sets, slurm: MiniSlurm, cluster_text: str, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(cluster_text)
    words = ("evaluate", sets.query, sets.gallery, "--cluster", "cluster.yaml")
    with held(tmp_path, *words, kind="slurm", **slurm.environment) as run:
        # Scheduler, two nannies, two workers, and the pages of three.
        assert_closed(run.processes, at_least=8)
        run.end()

    def left() -> list[str]:
        # What a nanny of another program makes by itself is empty.
        found = [name for _, *names in os.walk(tmp_path / "t") for name in itertools.chain(*names)]
        return [name for name in found if name != "dask-scratch-space"]

    # Jobs end after the command that cancels them.
    wait_until(lambda: not left(), "the removal of all temporary files of the jobs", 30)


def test_the_only_job_is_cancelled(start_on, larger_sets, slurm: MiniSlurm, cluster_text: str) -> None:
    """Nothing would ever finish the work, were it not submitted again."""
    text = cluster_text.replace("jobs: 2", "jobs: 1").replace("for_workers: 2", "for_workers: 1")
    text += "dask: {distributed.deploy.lost-worker-timeout: 2s}\n"
    run = start_on(text, larger_sets, *SMALL_TILES, env=slurm.environment)
    run.await_partial_results()
    (job,) = slurm.running()
    slurm.run("scancel", job)
    while (now := slurm.running()) in ([], [job]):
        assert run.runs, run.end().err
    assert int(now[0]) > int(job)
    assert run.end().digest == larger_sets.digest


def test_a_node_that_goes_down(start_on, larger_sets, slurm: MiniSlurm, cluster_text: str) -> None:
    run = start_on(cluster_text, larger_sets, *SMALL_TILES, env=slurm.environment)
    run.await_partial_results()
    node = slurm.run("squeue", "--noheader", "--states=RUNNING", "--format=%N").split()[0]
    with slurm.down(node):
        assert run.runs
        assert run.end().digest == larger_sets.digest


def test_jobs_that_slurm_refuses(evaluate_on, slurm: MiniSlurm, cluster_text: str) -> None:
    done = evaluate_on(cluster_text.replace("debug", "absent"), env=slurm.environment)
    done.assert_one_line(3, "sbatch refused the job", "Invalid partition")


def test_jobs_that_only_wait(evaluate_on, slurm: MiniSlurm, cluster_text: str) -> None:
    """More cores than all nodes have in use at once."""
    text = cluster_text.replace("jobs: 2", "jobs: 9").replace("for_workers: 2", "for_workers: 9")
    done = evaluate_on(text.replace("timeout_s: 60", "timeout_s: 5"), env=slurm.environment)
    done.assert_one_line(3, "fewer than 9 workers after 5 s", "wait in the queue")
    assert slurm.jobs() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_neither_jobs_nor_keys(
    start_on, larger_sets, slurm: MiniSlurm, cluster_text: str, tmp_path: Path, number: signal.Signals
) -> None:
    run = start_on(cluster_text, larger_sets, *SMALL_TILES, env=slurm.environment)
    run.await_partial_results()
    assert slurm.running()
    assert private_keys(tmp_path / "shared")
    run.send(number)
    ended = run.end()
    assert ended.code == 128 + number, ended.err
    assert "Traceback" not in ended.err
    assert slurm.jobs() == []
    assert private_keys(tmp_path / "shared") == []
