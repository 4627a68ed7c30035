"""Two writers at one place: one writes, the other is refused in one line, and what was there stays."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.feature_arrays import SIDES, make_piece, save_model
from support.refusals import printed_error

from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.stores import FeatureSet, FeatureWriter, check_store, ingest
from reid_dist.stores.locks import lock, stage_lock
from reid_dist.stores.sparse import GraphWriter

# Ingests, and waits after the first rows until a file appears.
SLOW = """
import sys, time
from pathlib import Path
from reid_dist.stores import ingest
def progress(done, total, what):
    print(done, flush=True)
    while not Path(sys.argv[3]).exists():
        time.sleep(0.01)
ingest(sys.argv[1], sys.argv[2], chunk_rows=20, overwrite=len(sys.argv) > 4, progress=progress)
"""

# Ingests as soon as a file appears, by the command.
AT_ONCE = """
import sys, time
from pathlib import Path
import reid_dist.stores.importers
from reid_dist.cli import main
print("ready", flush=True)
while not Path(sys.argv[1]).exists():
    pass
main(sys.argv[2:])
"""


def digests(out: Path) -> list[str]:
    assert not any(check_store(out / f"{role}.zarr").damaged for role in SIDES)
    return [FeatureSet.open(out / f"{role}.zarr").content_digest for role in SIDES]


def started(*words: object) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", *map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()
    return process


@pytest.fixture
def old(tmp_path: Path) -> list[str]:
    ingest(save_model(tmp_path / "old.npz", 1, (300, 500), 64), tmp_path / "out")
    return digests(tmp_path / "out")


def refused(tmp_path: Path, *options: str) -> str:
    """The error of a command that is refused."""
    command = [sys.executable, "-m", "reid_dist.cli", "ingest", "new.npz", "--output", "out", *options]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    return printed_error(done.stderr)


@pytest.mark.slow
def test_a_second_writer_is_refused_while_the_first_replaces(tmp_path: Path, old: list[str]) -> None:
    out, new = tmp_path / "out", save_model(tmp_path / "new.npz", 2, (300, 500), 64)
    first = started(SLOW, new, out, tmp_path / "go", "overwrite")
    line = refused(tmp_path, "--overwrite")
    assert line.startswith(f"Error: {out}/query.zarr is being written by process {first.pid} on ")
    assert digests(out) == old
    (tmp_path / "go").touch()
    text = first.communicate(timeout=60)[1]
    assert first.returncode == 0, text
    assert not set(digests(out)) & set(old)
    assert sorted(entry.name for entry in out.iterdir()) == ["gallery.zarr", "query.zarr"]
    ingest(tmp_path / "old.npz", out, overwrite=True)
    assert digests(out) == old


@pytest.mark.slow
def test_a_second_writer_is_refused_where_nothing_was(tmp_path: Path) -> None:
    new = save_model(tmp_path / "new.npz", 2, (300, 500), 64)
    first = started(SLOW, new, tmp_path / "out", tmp_path / "go")
    for options in ((), ("--overwrite",)):
        assert f"is being written by process {first.pid} on " in refused(tmp_path, *options)
    (tmp_path / "go").touch()
    text = first.communicate(timeout=60)[1]
    assert first.returncode == 0, text
    ingest(new, tmp_path / "other")
    assert digests(tmp_path / "out") == digests(tmp_path / "other")


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--overwrite",)])
def test_of_two_that_start_together_one_writes(tmp_path: Path, options: tuple[str, ...]) -> None:
    """With `--overwrite` the other one may come after the first, and is refused otherwise."""
    out, new = tmp_path / "out", save_model(tmp_path / "new.npz", 2, (300, 500), 64)
    if options:
        ingest(save_model(tmp_path / "old.npz", 1, (300, 500), 64), out)
    both = [started(AT_ONCE, tmp_path / "go", "ingest", new, "--output", out, *options) for _ in range(2)]
    (tmp_path / "go").touch()
    ended = [(process.communicate(timeout=120)[1], process.returncode) for process in both]
    codes = sorted(code for _, code in ended)
    assert codes in ([0, 2], [0, 0] if options else [0, 2])
    for text, code in ended:
        assert "Traceback" not in text
        if code:
            line = text.strip().splitlines()[-1]
            assert "is being written by process " in line or "is already a complete store" in line
    ingest(new, tmp_path / "other")
    assert digests(out) == digests(tmp_path / "other")
    assert sorted(entry.name for entry in out.iterdir()) == ["gallery.zarr", "query.zarr"]


def test_the_lock_of_a_killed_writer_does_not_block(tmp_path: Path, old: list[str]) -> None:
    new = save_model(tmp_path / "new.npz", 2, (300, 500), 64)
    first = started(SLOW, new, tmp_path / "out", tmp_path / "go", "overwrite")
    first.send_signal(signal.SIGKILL)
    first.communicate(timeout=60)
    assert (tmp_path / "out" / ".query.zarr.lock").exists()
    assert digests(tmp_path / "out") == old
    ingest(new, tmp_path / "out", overwrite=True)
    assert not set(digests(tmp_path / "out")) & set(old)
    assert sorted(entry.name for entry in (tmp_path / "out").iterdir()) == ["gallery.zarr", "query.zarr"]


class TestLock:
    @pytest.fixture
    def uri(self, tmp_path: Path) -> str:
        return str(tmp_path / "a.zarr")

    @pytest.fixture
    def held(self, tmp_path: Path) -> Path:
        return tmp_path / ".a.zarr.lock"

    def test_it_is_refused_to_others_until_it_is_released(self, uri: str, held: Path) -> None:
        mine = lock(uri)
        assert held.read_text() == f"process {os.getpid()} on {os.uname().nodename}"
        with pytest.raises(StoreExistsError, match=f"by process {os.getpid()} on"):
            lock(uri)
        mine.release()
        assert not held.exists()
        lock(uri).release()

    def test_what_an_ended_process_left_is_taken(self, uri: str, held: Path) -> None:
        """Whatever it holds, and whosever number it is by now: the system knows who has a lock."""
        for content in ("", "process 1 on another", f"process {os.getpid()} on {os.uname().nodename}, and more"):
            held.write_text(content)
            mine = lock(uri)
            assert held.read_text() == f"process {os.getpid()} on {os.uname().nodename}"
            mine.release()

    def test_without_a_name_yet(self, uri: str, held: Path) -> None:
        """Its process is about to write it."""
        with held.open("w") as file, ThreadPoolExecutor(1) as pool:
            fcntl.flock(file, fcntl.LOCK_EX)
            refused = pool.submit(lock, uri)
            time.sleep(0.1)
            file.write("process 5 on another")
            file.flush()
            with pytest.raises(StoreExistsError, match="by process 5 on another"):
                refused.result()

    def test_a_forked_process_releases_nothing(self, uri: str, held: Path) -> None:
        """And what it has open keeps no lock."""
        mine = lock(uri)
        ready, end = os.pipe(), os.pipe()
        child = os.fork()
        if child == 0:
            mine.release()
            os.write(ready[1], b"x")
            os.read(end[0], 1)
            os._exit(0)
        try:
            os.read(ready[0], 1)
            with pytest.raises(StoreExistsError, match="is being written"):
                lock(uri)
            mine.release()
            lock(uri).release()
        finally:
            os.write(end[1], b"x")
            os.waitpid(child, 0)
            for each in (*ready, *end):
                os.close(each)

    def test_a_newer_lock_is_not_removed(self, uri: str, held: Path) -> None:
        mine = lock(uri)
        held.unlink()
        newer = lock(uri)
        mine.release()
        with pytest.raises(StoreExistsError, match="is being written"):
            lock(uri)
        newer.release()
        assert not held.exists()

    def test_a_file_system_without_locks(self, uri: str, held: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def unsupported(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr(fcntl, "flock", unsupported)
        FeatureSet.from_arrays([[1.0]], [1]).save(uri)
        assert not check_store(uri).damaged
        with stage_lock(uri, pytest.fail):
            pass
        assert not held.exists()

    def test_a_writer_that_is_dropped_releases(self, uri: str, held: Path) -> None:
        writer = FeatureWriter(uri, dim=2)
        with pytest.raises(StoreExistsError, match="is being written"):
            FeatureWriter(uri, dim=2)
        del writer
        assert not held.exists()
        FeatureWriter(uri, dim=2).abort()

    def test_a_graph_is_written_under_it(self, uri: str, held: Path) -> None:
        mine = lock(uri)
        with pytest.raises(StoreExistsError, match="is being written"):
            GraphWriter(uri, (1, 1, 1), {}, overwrite=True)
        mine.release()
        with GraphWriter(uri, (1, 1, 1), {}, overwrite=True) as writer:
            writer.append(make_piece(1, 1))
        assert not held.exists()


# Takes its turn at a stage, prints a line, and keeps it until it ends.
HELD = """
import sys, time
from reid_dist.stores.locks import stage_lock
with stage_lock(sys.argv[1], print):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.slow
def test_users_of_a_stage_take_turns(tmp_path: Path) -> None:
    """Also where the one that has it is killed; what was locked is gone afterwards."""
    stage = str(tmp_path / "workspace" / "neighbours-1")
    warnings: list[str] = []
    with subprocess.Popen([sys.executable, "-c", HELD, stage], stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        killing = threading.Timer(0.7, other.kill)
        killing.start()
        begun = time.monotonic()
        with stage_lock(stage, warnings.append):
            waited = time.monotonic() - begun
            # Another stage is not concerned.
            with stage_lock(f"{stage}0", warnings.append):
                pass
        killing.join()
    assert waited > 0.4
    assert warnings == [f"another run works on {stage}: waiting for it"]
    assert list((tmp_path / "workspace").iterdir()) == []


def test_a_stage_where_nothing_can_be_written(tmp_path: Path) -> None:
    """What is written next reports it."""
    (tmp_path / "file").write_text("x")
    with stage_lock(str(tmp_path / "file" / "stage"), pytest.fail):
        pass


@pytest.mark.timeout(20)
@pytest.mark.parametrize("take", [lock, lambda uri: stage_lock(uri, print).__enter__()])
def test_a_pipe_in_the_place_of_a_lock_is_not_waited_for(tmp_path: Path, take: Callable[[str], object]) -> None:
    os.mkfifo(tmp_path / ".set.zarr.lock")
    with pytest.raises(StoreError, match=r"\.set\.zarr\.lock is a pipe and no file"):
        take(str(tmp_path / "set.zarr"))
