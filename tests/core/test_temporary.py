"""Temporary directories: of this user alone, and removed by the next process once their own has ended."""

from __future__ import annotations

import os
import platform
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.processes import state_of, wait_until

import reid_dist.core.temporary as temporary
from reid_dist.core.processes import discard_output, has_ended, start_of

_MAKE = "from reid_dist.core.temporary import temporary_folder; print(temporary_folder({place!r}), flush=True)"


@pytest.fixture(autouse=True)
def _first_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not looked for abandoned directories yet."""
    monkeypatch.setattr(temporary, "_searched", set())


def _of_an_ended_process(place: Path) -> Path:
    words = [sys.executable, "-c", _MAKE.format(place=str(place))]
    return Path(subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip())


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_may_enter(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with temporary.temporary_directory(str(tmp_path)) as scoped:
            for path in (scoped, temporary.temporary_folder(str(tmp_path))):
                assert stat.S_IMODE(Path(path).stat().st_mode) == 0o700
    finally:
        os.umask(before)
    assert not Path(scoped).exists()


def test_what_an_ended_process_has_left_is_removed(tmp_path: Path) -> None:
    left = _of_an_ended_process(tmp_path)
    (left / "inner").mkdir()
    (left / "inner" / "file").write_text("x")
    kept = Path(temporary.temporary_folder(str(tmp_path)))
    assert list(tmp_path.iterdir()) == [kept]


def test_what_a_running_process_has_made_stays(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _MAKE.format(place=str(tmp_path)) + "; input()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        made = Path(process.stdout.readline().strip())
        temporary.remove_abandoned(str(tmp_path))
        assert made.is_dir()
        process.communicate("\n")


def test_a_number_that_another_process_has_since(tmp_path: Path) -> None:
    """The number is this process's own, the start is not."""
    name = temporary.new_name()
    began = int(str(start_of(os.getpid())))
    earlier = tmp_path / name.replace(f"-{began:x}-", f"-{began - 1:x}-")
    same = tmp_path / name
    earlier.mkdir()
    same.mkdir()
    temporary.remove_abandoned(str(tmp_path))
    assert list(tmp_path.iterdir()) == [same]


def test_links_files_other_names_and_other_hosts_stay(tmp_path: Path) -> None:
    """A link with the name of an abandoned directory leads to something that matters."""
    place, precious = tmp_path / "place", tmp_path / "precious"
    place.mkdir()
    precious.mkdir()
    (precious / "file").write_text("x")
    ended = _of_an_ended_process(place)
    ended.rmdir()
    ended.symlink_to(precious)
    host = re.fullmatch(r"reid-dist-([0-9a-f]{8})-.*", ended.name)
    assert host is not None
    elsewhere = place / ended.name.replace(host[1], format(int(host[1], 16) ^ 1, "08x"))
    elsewhere.mkdir()
    (place / f"{ended.name}x").write_text("a file")
    (place / "reid-dist-demo").mkdir()
    before = sorted(place.iterdir())
    temporary.remove_abandoned(str(place))
    assert sorted(place.iterdir()) == before
    assert (precious / "file").read_text() == "x"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give directories away")
def test_directories_of_other_users_stay(tmp_path: Path) -> None:
    left = _of_an_ended_process(tmp_path)
    os.chown(left, 65534, 65534)
    temporary.remove_abandoned(str(tmp_path))
    assert left.is_dir()


def test_names_are_short_enough_for_sockets() -> None:
    assert len(temporary.new_name()) <= temporary.NAME_BYTES


def test_processes_by_number_and_start() -> None:
    started = start_of(os.getpid())
    assert started is not None
    assert not has_ended(os.getpid(), started)
    assert has_ended(os.getpid(), str(int(started) - 1))
    # Without a start, nothing is certain.
    assert not has_ended(os.getpid(), None)
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        begun = start_of(process.pid)
    assert has_ended(process.pid, begun)


def test_a_zombie_has_ended() -> None:
    """In a container without an init, the number of a killed process is never free again."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        begun = start_of(process.pid)
        wait_until(lambda: state_of(process.pid) == "Z", "the end of the process")
        assert has_ended(process.pid, begun)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the number of a system call differs by architecture")
def test_a_process_with_a_running_thread_has_not_ended() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "ctypes.CDLL(None).syscall(60, 0)  # the end of the main thread alone\n"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        begun = start_of(process.pid)
        wait_until(lambda: state_of(process.pid) == "Z", "the end of the main thread")
        assert not has_ended(process.pid, begun)
        process.kill()
        wait_until(lambda: has_ended(process.pid, begun), "the end of the process")


def test_discarded_output_leaves_no_open_file(tmp_path: Path) -> None:
    def open_on(path: Path) -> int:
        """Open files of this process on a path; others come and go meanwhile."""
        return sum(path == Path(os.path.realpath(each)) for each in Path("/proc/self/fd").iterdir())

    output, nothing = tmp_path / "out.txt", Path(os.devnull)
    before = open_on(nothing)
    with output.open("w") as stream:
        stream.write("kept\n")
        assert open_on(output) == 1
        discard_output(stream)
        stream.write("discarded\n")
        stream.flush()
        assert (open_on(output), open_on(nothing)) == (0, before + 1)
    assert (tmp_path / "out.txt").read_text() == "kept\n"


_MAKE_SEMAPHORE = """
import multiprocessing, os, signal, sys
from reid_dist.core.semaphores import noted_semaphores
from reid_dist.core.temporary import temporary_folder

with noted_semaphores(temporary_folder({place!r})):
    lock = multiprocessing.get_context("spawn").Lock()
print(os.getpid(), flush=True)
input()
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="this system keeps semaphores elsewhere")
def test_semaphores_of_a_killed_group_are_removed_and_others_stay(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _MAKE_SEMAPHORE.format(place=str(tmp_path))]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(words, **pipes, start_new_session=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        (folder,) = tmp_path.iterdir()
        made = Path("/dev/shm", f"sem.{(folder / 'semaphores').read_text().split()[0]}")
        assert made.exists()
        temporary.remove_abandoned(str(tmp_path))
        assert made.exists(), "its owner runs"
        os.killpg(process.pid, signal.SIGKILL)
    # Noted by nobody, under the number of another file, or no semaphore at all.
    other, precious = Path(f"{made.parent}/sem.mp-{os.getpid():08d}"), tmp_path / "precious"
    other.touch()
    precious.touch()
    try:
        with (folder / "semaphores").open("a") as file:
            file.write(f"{other.name.removeprefix('sem.')} {other.stat().st_ino + 1}\n")
            file.write(f"../../{precious} {precious.stat().st_ino}\nmp-\n")
        temporary._searched.clear()
        temporary.remove_abandoned(str(tmp_path))
        assert not made.exists()
        assert not folder.exists()
        assert other.exists()
        assert precious.exists()
    finally:
        other.unlink()
