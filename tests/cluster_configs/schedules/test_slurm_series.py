"""The series of nights on a real SLURM: each night queues the next and ends as the command did."""

from __future__ import annotations

import fcntl
import json
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from mini_slurm import MiniSlurm, mini_slurm, missing_programs
from schedule_files import SCHEDULES, SUITE, StandIn, install_command, save_features

pytestmark = pytest.mark.skipif(bool(missing_programs()), reason=f"SLURM is not here: {missing_programs()}")

NAME = "reid-dist-nightly"


@pytest.fixture(scope="module")
def slurm() -> Iterator[MiniSlurm]:
    with mini_slurm(n_nodes=1, cpus=2) as running:
        yield running


class Series:
    """nightly.sbatch, cut to the size of the node, in a directory of its own."""

    def __init__(self, slurm: MiniSlurm, directory: Path, programs: Path) -> None:
        directory.mkdir()
        self.directory = directory
        self._slurm = slurm
        text = (SCHEDULES / "nightly.sbatch").read_text()
        for mine, theirs in {
            "--cpus-per-task=16": "--cpus-per-task=1",
            "--mem=64G": "--mem=500M",
            # Longer than the five minutes before its end in which SLURM signals a night to stop.
            "--time=04:00:00": "--time=00:20:00",
            "PATH=/opt/reid-dist/bin:": f"PATH={programs}:",
        }.items():
            assert text.count(mine) == 1
            text = text.replace(mine, theirs)
        self.script = directory / "nightly.sbatch"
        self.script.write_text(text)

    def submit(self, *words: str) -> str:
        """Queue a night; without words for the next 04:00, as users do.  Returns its number."""
        done = self._slurm.run("sbatch", f"--chdir={self.directory}", *words, str(self.script))
        return done.split()[-1]

    def jobs(self) -> dict[str, str]:
        """State of every job of the series that waits or runs."""
        words = ("squeue", "--noheader", f"--name={NAME}", "--format=%A %T")
        return dict(line.split() for line in self._slurm.run(*words).splitlines())

    def show(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self._slurm.run("scontrol", "show", "job", job)))

    def await_end(self, job: str) -> str:
        """Wait until it ends; its exit code, as SLURM writes it."""
        deadline = time.monotonic() + 60
        while (shown := self.show(job))["JobState"] in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)
        return shown["ExitCode"]

    def log(self, job: str) -> str:
        return (self.directory / f"nightly-{job}.log").read_text()

    def cancel(self) -> None:
        self._slurm.run("scancel", "--me", f"--name={NAME}")


@pytest.fixture
def series(slurm: MiniSlurm, tmp_path: Path, stand_in: StandIn) -> Iterator[Series]:
    series = Series(slurm, tmp_path / "nights", stand_in.programs)
    yield series
    series.cancel()
    assert slurm.jobs() == []


def assert_the_next_night(shown: dict[str, str], at_least: timedelta) -> None:
    """It begins at 04:00, one night from now."""
    begin = datetime.fromisoformat(shown["EligibleTime"])
    assert begin.strftime("%H:%M:%S") == "04:00:00"
    assert at_least < begin - datetime.now() <= at_least + timedelta(days=1)


# A job that starts this long before 04:00, or less, is that night's, though early.
EARLY = timedelta(minutes=59)


def test_the_first_night_waits_for_its_time(series: Series) -> None:
    job = series.submit()
    assert series.jobs() == {job: "PENDING"}
    assert_the_next_night(series.show(job), timedelta(0))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("code", [0, 3, 4])
def test_a_night_queues_the_next_and_ends_as_the_command(series: Series, stand_in: StandIn, code: int) -> None:
    stand_in.end_with(code)
    job = series.submit("--begin=now")
    assert series.await_end(job) == f"{code}:0"
    assert series.show(job)["JobState"] == ("COMPLETED" if code == 0 else "FAILED")
    assert stand_in.record == [f"started {series.directory} nightly nightly.yaml --history nightly.db", "ended"]
    assert "output of the night" in series.log(job)

    ((following, state),) = series.jobs().items()
    assert following != job
    assert state == "PENDING"
    shown = series.show(following)
    assert_the_next_night(shown, EARLY)
    assert (shown["WorkDir"], shown["NumCPUs"], shown["TimeLimit"]) == (str(series.directory), "1", "00:20:00")


@pytest.mark.slow
def test_the_next_night_runs_too_and_queues_one_more(series: Series, stand_in: StandIn, slurm: MiniSlurm) -> None:
    job = series.submit("--begin=now")
    for generation in (1, 2, 3):
        assert series.await_end(job) == "0:0"
        assert stand_in.record.count("ended") == generation
        (following,) = series.jobs()
        assert_the_next_night(series.show(following), EARLY)
        slurm.run("scontrol", "update", f"JobId={following}", "StartTime=now")
        job = following


def test_the_next_night_is_queued_before_the_work(series: Series, stand_in: StandIn) -> None:
    """So that it is there also when the night is killed."""
    stand_in.end_with(0, after=60)
    job = series.submit("--begin=now")
    stand_in.await_start()
    states = series.jobs()
    assert states.pop(job) == "RUNNING"
    assert list(states.values()) == ["PENDING"]


def test_scancel_ends_the_series(series: Series, stand_in: StandIn, slurm: MiniSlurm) -> None:
    stand_in.end_with(0, after=60)
    series.submit("--begin=now")
    stand_in.await_start()
    assert len(series.jobs()) == 2
    series.cancel()
    assert slurm.jobs() == []
    assert "ended" not in stand_in.record


@pytest.mark.slow
def test_a_series_started_twice_is_one_after_a_night(series: Series, stand_in: StandIn) -> None:
    """They run one after the other, and the one that finds a night in the queue queues none."""
    stand_in.end_with(0, after=2)
    first, second = series.submit("--begin=now"), series.submit("--begin=now")
    stand_in.await_start()
    assert series.jobs() == {first: "RUNNING", second: "PENDING"}
    assert series.await_end(first) == "0:0"
    assert series.await_end(second) == "0:0"
    assert [line.split()[0] for line in stand_in.record] == ["started", "ended"] * 2
    assert list(series.jobs().values()) == ["PENDING"]


def test_a_night_outside_of_slurm_is_not_joined(series: Series, stand_in: StandIn) -> None:
    with (series.directory / "nightly.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        job = series.submit("--begin=now")
        assert series.await_end(job) == "75:0"
    assert stand_in.record == []
    assert "nightly.lock is taken" in series.log(job)
    assert list(series.jobs().values()) == ["PENDING"]


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("code", "ended"), [(0, "3:0"), (4, "4:0")])
def test_a_night_that_cannot_queue_the_next_runs_and_reports_it(
    series: Series, stand_in: StandIn, code: int, ended: str
) -> None:
    refusing = stand_in.programs / "sbatch"
    refusing.write_text("#!/bin/sh\nexit 1\n")
    refusing.chmod(0o755)
    stand_in.end_with(code)
    job = series.submit("--begin=now")
    assert series.await_end(job) == ended
    assert stand_in.record[1:] == ["ended"]
    assert "the series ends with this one" in series.log(job)
    assert series.jobs() == {}


@pytest.mark.slow
def test_nights_of_the_command_itself(series: Series, stand_in: StandIn, slurm: MiniSlurm) -> None:
    """The second has a model that is worse."""
    install_command(stand_in.programs)
    (series.directory / "nightly.yaml").write_text(SUITE)
    save_features(series.directory, noise=0.5)
    job = series.submit("--begin=now")
    assert series.await_end(job) == "0:0", series.log(job)
    (following,) = series.jobs()
    save_features(series.directory, noise=3.0)
    slurm.run("scontrol", "update", f"JobId={following}", "StartTime=now")
    assert series.await_end(following) == "4:0", series.log(following)
    verdict = json.loads((series.directory / "nightly" / "verdict.json").read_text())
    assert (verdict["run"], verdict["exit_code"]) == (2, 4)
    assert len(series.jobs()) == 1


@pytest.mark.slow
def test_it_is_interrupted_before_its_time_is_over(series: Series, stand_in: StandIn, slurm: MiniSlurm) -> None:
    """As by Ctrl-C, which the command answers in order."""
    assert "--signal=B:INT@300" in series.script.read_text()
    stand_in.end_with(0, after=100)
    job = series.submit("--begin=now")
    stand_in.await_start()
    # The last five minutes begin only now: before the command, the signal would end the script.
    slurm.run("scontrol", "update", f"JobId={job}", "TimeLimit=00:05:00")
    assert series.await_end(job) == "130:0"
    assert stand_in.record[1:] == ["interrupted"]
