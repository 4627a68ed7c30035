"""The line for cron: what cron makes of it, run by the shell that cron starts."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import psutil
import pytest
from schedule_files import SCHEDULES, SUITE, StandIn, install_command, save_features

TEXT = (SCHEDULES / "crontab").read_text()
LINES = [line for line in TEXT.splitlines() if line and not line.startswith("#")]
(ENTRY,) = [line for line in LINES if not re.match(r"[A-Z]+=", line)]
SETTINGS = dict(line.split("=", 1) for line in LINES if line != ENTRY)

pytestmark = pytest.mark.skipif(shutil.which("flock") is None, reason="flock is not here")


class Cron:
    """What cron does with the entry when its time has come."""

    def __init__(self, directory: Path, programs: Path) -> None:
        directory.mkdir()
        self.directory = directory
        command = ENTRY.split(None, 5)[5]
        # To cron a % that has no backslash ends the command: what follows would be its input.
        assert not re.search(r"(?<!\\)%", command)
        assert command.count("/srv/reid-dist") == 1
        self._command = command.replace("\\%", "%").replace("/srv/reid-dist", str(directory))
        path = SETTINGS["PATH"]
        assert "/opt/reid-dist/bin" in path
        self._env = {"PATH": path.replace("/opt/reid-dist/bin", str(programs)), "HOME": "/", "LOGNAME": "x"}

    def start(self) -> subprocess.Popen[str]:
        # Both streams are one: cron mails what comes of either.
        words = [SETTINGS["SHELL"], "-c", self._command]
        return subprocess.Popen(
            words,
            env=self._env,
            cwd="/",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self) -> tuple[int, str]:
        """Run it: its exit code, and the mail."""
        process = self.start()
        mail = process.communicate(timeout=60)[0]
        return process.returncode, mail

    @property
    def logs(self) -> list[str]:
        return [path.read_text() for path in sorted((self.directory / "logs").iterdir())]


def session_of(process: int) -> int | None:
    """The session of a process that runs; None for others."""
    with contextlib.suppress(ProcessLookupError, psutil.NoSuchProcess):
        return None if psutil.Process(process).status() == psutil.STATUS_ZOMBIE else os.getsid(process)
    return None


@pytest.fixture
def cron(tmp_path: Path, stand_in: StandIn) -> Cron:
    return Cron(tmp_path / "nights", stand_in.programs)


def test_the_entry_is_one_time_a_night() -> None:
    fields = ENTRY.split(None, 5)[:5]
    bounds = [(0, 59), (0, 23)]
    for field, (low, high) in zip(fields, bounds, strict=False):
        assert low <= int(field) <= high
    assert fields[2:] == ["*", "*", "*"]
    assert "@" in SETTINGS["MAILTO"]


@pytest.mark.skipif(shutil.which("crontab") is None, reason="crontab is not here")
def test_syntax_validates_by_the_program_crontab(tmp_path: Path) -> None:
    """It reads the file and installs nothing."""
    wrong = tmp_path / "wrong"
    wrong.write_text(TEXT.replace(ENTRY, "77" + ENTRY[2:]))
    codes = [
        subprocess.run(["crontab", "-n", path], capture_output=True, check=False, timeout=60).returncode
        for path in (SCHEDULES / "crontab", wrong)
    ]
    assert codes == [0, 1]


def test_a_quiet_night_is_logged_and_mails_nothing(cron: Cron, stand_in: StandIn) -> None:
    assert cron.run() == (0, "")
    assert stand_in.record == [f"started {cron.directory} nightly nightly.yaml --history nightly.db", "ended"]
    assert cron.logs == ["output of the night\nerrors of the night\n"]


@pytest.mark.parametrize("code", [2, 3, 4])
def test_trouble_is_mailed_with_its_exit_code(cron: Cron, stand_in: StandIn, code: int) -> None:
    stand_in.end_with(code)
    ended, mail = cron.run()
    assert ended == code
    assert f"exit code {code};" in mail
    assert "errors of the night" in mail
    # Where to look.
    (log,) = (cron.directory / "logs").iterdir()
    assert str(log) in mail


@pytest.mark.slow
def test_a_second_night_does_not_start(cron: Cron, stand_in: StandIn) -> None:
    stand_in.end_with(0, after=3)
    first = cron.start()
    stand_in.await_start()
    ended, mail = cron.run()
    assert ended == 75
    assert "exit code 75" in mail
    assert first.poll() is None
    assert first.communicate(timeout=60)[0] == ""
    assert [line.split()[0] for line in stand_in.record] == ["started", "ended"]
    # And the lock goes with the night.
    stand_in.end_with(0)
    assert cron.run() == (0, "")


def test_a_lock_ends_with_its_night(cron: Cron, stand_in: StandIn) -> None:
    stand_in.end_with(0, after=60)
    first = cron.start()
    stand_in.await_start()
    # Until none is left: one may start another before it is killed, or end with it.
    while others := [each for each in psutil.pids() if each != first.pid and session_of(each) == first.pid]:
        for process in others:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
    assert first.wait(timeout=20) != 0
    first.communicate()
    stand_in.end_with(0)
    assert cron.run() == (0, "")


def test_a_directory_that_is_gone_is_mailed(cron: Cron, stand_in: StandIn) -> None:
    cron.directory.rmdir()
    ended, mail = cron.run()
    assert ended != 0
    assert str(cron.directory) in mail
    assert stand_in.record == []


@pytest.mark.slow
def test_nights_of_the_command_itself(tmp_path: Path) -> None:
    install_command(tmp_path / "programs")
    cron = Cron(tmp_path / "nights", tmp_path / "programs")
    (cron.directory / "nightly.yaml").write_text(SUITE)
    save_features(cron.directory, noise=0.5)
    assert cron.run() == (0, "")
    (log,) = cron.logs
    assert "small/toy/plain" in log
    shutil.rmtree(cron.directory / "features" / "gallery.zarr")
    code, mail = cron.run()
    assert code == 3
    assert "exit code 3;" in mail
    assert "gallery.zarr" in mail
    # As long as the history is one, so is its page.
    assert (cron.directory / "nightly" / "index.html").exists()
    assert (cron.directory / "nightly.db").exists()
