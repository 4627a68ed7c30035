"""The units for systemd: read, timed and checked by systemd's own programs; what they start is started without it.

No systemd runs here, so that its sandbox is not tried: what is shown is that the units are valid, and how they score.
"""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
from datetime import datetime
from pathlib import Path

import pytest
from schedule_files import SCHEDULES, StandIn

pytestmark = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")

SERVICE, TIMER, FAILED = "reid-dist-nightly.service", "reid-dist-nightly.timer", "reid-dist-nightly-failed.service"


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "LC_ALL": "C.UTF-8", "TZ": "Europe/Berlin"}
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, env=env, check=False, timeout=60)


def setting(unit: str, name: str) -> str:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str
    parser.read(SCHEDULES / unit)
    (value,) = [parser[section][name] for section in parser.sections() if name in parser[section]]
    return value


@pytest.fixture
def units(tmp_path: Path, stand_in: StandIn) -> Path:
    """The units as installed: with a command that exists."""
    folder = tmp_path / "units"
    folder.mkdir()
    for name in (SERVICE, TIMER, FAILED):
        text = (SCHEDULES / name).read_text()
        assert text.count("/opt/reid-dist/bin/reid-dist") == (name == SERVICE)
        (folder / name).write_text(text.replace("/opt/reid-dist/bin/reid-dist", str(stand_in.path)))
    return folder


def test_the_units_are_valid(units: Path) -> None:
    done = analyze("verify", *sorted(units.iterdir()))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("right", "wrong"), [("ProtectSystem=", "ProtectSytem="), ("=strict", "=strct")])
def test_the_validation_finds_errors(units: Path, right: str, wrong: str) -> None:
    unit = units / SERVICE
    unit.write_text(unit.read_text().replace(right, wrong))
    assert wrong.strip("=") in analyze("verify", unit).stderr


def test_the_sandbox_scores_well(units: Path) -> None:
    """By systemd's own measure, from 0 (closed) to 100 (open); without any sandbox it is above 90."""
    done = analyze("security", "--offline=true", "--threshold=20", units / SERVICE)
    assert done.returncode == 0, done.stdout
    bare = units / "bare.service"
    bare.write_text("[Service]\nExecStart=/bin/true\n")
    assert analyze("security", "--offline=true", "--threshold=90", bare).returncode != 0


def test_the_sandbox_leaves_what_the_command_needs() -> None:
    """Kernels are compiled as they run, and Dask reads the memory of the machine."""
    lines = (SCHEDULES / SERVICE).read_text().splitlines()
    set_names = {line.split("=")[0] for line in lines if re.match(r"[A-Za-z]+=", line)}
    assert not set_names & {"MemoryDenyWriteExecute", "ProcSubset", "PrivateNetwork", "SuccessExitStatus"}
    # The cache of compiled kernels is in a directory that the service may write.
    assert setting(SERVICE, "Environment") == f"NUMBA_CACHE_DIR=%C/{setting(SERVICE, 'CacheDirectory')}"
    assert setting(SERVICE, "WorkingDirectory") == f"%S/{setting(SERVICE, 'StateDirectory')}"


def test_the_timer_elapses_once_a_night() -> None:
    done = analyze("calendar", "--iterations=3", "--base-time=2027-03-26 12:00:00", setting(TIMER, "OnCalendar"))
    assert done.returncode == 0, done.stderr
    nights = [datetime.fromisoformat(found) for found in re.findall(r": \w+ (\S+ \S+) CES?T", done.stdout)]
    # Also in the night that has no 02:17, because clocks are put forward.
    assert [(night.month, night.day) for night in nights] == [(3, 27), (3, 28), (3, 29)]


def test_the_service_ends_before_the_next_night() -> None:
    spans = [
        setting(SERVICE, "TimeoutStartSec"),
        setting(SERVICE, "TimeoutStopSec"),
        setting(TIMER, "RandomizedDelaySec"),
    ]
    done = analyze("timespan", *spans)
    assert done.returncode == 0, done.stderr
    microseconds = [int(found) for found in re.findall(r"μs: (\d+)", done.stdout)]
    assert len(microseconds) == 3
    assert sum(microseconds) < 86400 * 1_000_000


def test_failure_starts_the_unit_that_mails() -> None:
    assert setting(SERVICE, "OnFailure") == FAILED
    # A unit of the same name as the timer is what the timer starts.
    assert Path(TIMER).stem == Path(SERVICE).stem


def command_of(unit: str) -> list[str]:
    """Its words, as systemd reads them; specifiers and variables of systemd are not used but for these."""
    words = shlex.split(setting(unit, "ExecStart"))
    return [word.replace("$$", "$").replace("%%", "%") for word in words]


@pytest.mark.parametrize("code", [0, 3, 4])
def test_the_command_of_the_service_run_without_systemd(tmp_path: Path, stand_in: StandIn, code: int) -> None:
    stand_in.end_with(code)
    program, *words = command_of(SERVICE)
    assert Path(program).is_absolute()
    done = subprocess.run([stand_in.path, *words], cwd=tmp_path, check=False, capture_output=True, timeout=60)
    assert done.returncode == code
    assert stand_in.record == [f"started {tmp_path} nightly /etc/reid-dist/nightly.yaml --history nightly.db", "ended"]


def test_the_mail_of_a_failure_run_without_systemd(tmp_path: Path, stand_in: StandIn) -> None:
    for name, text in {
        "sendmail": f"#!/bin/sh\necho \"$@\" >'{tmp_path}/words'\ncat >'{tmp_path}/mail'\n",
        "journalctl": '#!/bin/sh\necho "the journal of" "$@"\n',
    }.items():
        (stand_in.programs / name).write_text(text)
        (stand_in.programs / name).chmod(0o755)
    variable, _, value = setting(FAILED, "Environment").partition("=")
    env = {
        variable: value,
        "PATH": stand_in.search_path,
        "MONITOR_UNIT": SERVICE,
        "MONITOR_SERVICE_RESULT": "exit-code",
        "MONITOR_EXIT_STATUS": "4",
        "MONITOR_INVOCATION_ID": "0123456789abcdef",
    }
    done = subprocess.run(command_of(FAILED), env=env, check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "words").read_text() == "-t\n"
    to, subject, empty, body = (tmp_path / "mail").read_text().splitlines()
    assert to == f"To: {value}"
    assert subject.startswith(f"Subject: {SERVICE} on ")
    assert subject.endswith(": exit-code, 4")
    assert empty == ""
    assert body.endswith("_SYSTEMD_INVOCATION_ID=0123456789abcdef")
