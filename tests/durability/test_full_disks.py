"""A disk that is full, and files that a killed run never finished: nothing looks whole that is not, nothing stays."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disturbed_runs import CHUNK_ROWS, Command, command, finished, save_sets, undisturbed

pytestmark = pytest.mark.slow

# A file of more than so many bytes cannot be written: where nothing may be mounted, this is a disk that is full.
_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2)
from reid_dist.cli import main
main()
"""

# Stops for ever where a part would get its name.
_NEVER_RENAMED = """
import pathlib, time
real = pathlib.Path.replace

def replace(self, target):
    if "rows-00001.npz" in str(target):
        print("here", flush=True)
        time.sleep(600)
    return real(self, target)

pathlib.Path.replace = replace
from reid_dist.cli import main
main()
"""

_WORDS = ("evaluate", "query.zarr", "gallery.zarr", "--chunk-rows", CHUNK_ROWS, "--cluster", "threads.yaml", "--json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_sets(tmp_path)
    return tmp_path


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a disk of a size, or makes it larger."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = []

    def mount(size: str) -> Path:
        how = ["-o", f"remount,size={size}"] if mounted else ["-t", "tmpfs", "-o", f"size={size}", "tmpfs"]
        done = subprocess.run(["mount", *how, str(path)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("no disk can be mounted here: that takes root")
        mounted.append(size)
        return path

    yield mount
    if mounted:
        subprocess.run(["umount", str(path)], check=True)


def files_in(path: Path) -> list[str]:
    return [str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()]


def assert_refused(run: Command, *message: str) -> None:
    error = run.error(2, 3)
    assert all(words in error for words in message), error
    assert run.out == ""


def test_a_full_disk_under_the_workspace(folder: Path, disk: Callable[[str], Path]) -> None:
    room = disk("40k")
    with command(folder, *_WORDS, "--workspace", room, "--output", "out") as run:
        assert_refused(run, "No space left on device", "make room or choose another --workspace")
    assert not files_in(folder / "out")
    left = finished(room)
    # Whole parts, their description, and no temporary files.
    assert len(files_in(room)) == len(left) + bool(left)
    disk("20m")
    with command(folder, *_WORDS, "--workspace", room, "--output", "out", "--resume") as run:
        assert run.report()["result_digest"] == undisturbed(folder)


def test_a_full_disk_under_the_output(folder: Path, disk: Callable[[str], Path]) -> None:
    room = disk("8k")
    with command(folder, *_WORDS, "--workspace", folder / "work", "--output", room / "out") as run:
        assert_refused(run, "No space left on device", "choose another")
    assert not files_in(room)
    disk("20m")
    with command(folder, *_WORDS, "--workspace", folder / "work", "--output", room / "out", "--resume") as run:
        assert run.report()["result_digest"] == undisturbed(folder)
    assert (room / "out" / "report.json").exists()


def test_files_that_may_not_be_large(folder: Path) -> None:
    """As with a quota: no root needed."""
    expected = undisturbed(folder)
    with command(folder, 700, *_WORDS, "--output", "out", program=_LIMITED) as run:
        assert_refused(run, "File too large", "make room or choose another --workspace")
    assert not files_in(folder / "out")
    with command(folder, *_WORDS, "--output", "out", "--resume") as run:
        assert run.report()["result_digest"] == expected


def test_unfinished_files_of_a_killed_run_are_removed_by_the_next(folder: Path) -> None:
    words = (*_WORDS, "--rerank", "k_reciprocal(k1=6,k2=3)", "--output", "out", "--workspace", "kept", "--resume")
    with command(folder, *words, program=_NEVER_RENAMED) as run:
        run.wait_until(lambda: run.out.startswith("here"), "a part that is written")
        run.process.send_signal(signal.SIGKILL)
        run.process.wait()
    unfinished = [name for name in files_in(folder / "kept") if Path(name).name.startswith(".")]
    assert unfinished
    # What a killed run leaves of a report, and a hidden file of another program.
    (folder / "out").mkdir(exist_ok=True)
    (folder / "out" / ".reid-dist-0a1b2c3d-1-1-0a1b2c3d.tmp").write_text("{")
    (folder / "kept" / ".mine").write_text("kept")
    os.utime(folder / "kept" / ".mine", (0, 0))
    with command(folder, *words) as run:
        assert run.end() == 0, run.err
    assert [name for name in files_in(folder / "kept") if Path(name).name.startswith(".")] == [".mine"]
    assert not [name for name in files_in(folder / "out") if name.startswith(".")]
