"""Local clusters that cannot start, or whose processes end at the start: one line, or workers that are restarted."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import resource
import signal
import subprocess
import sys
from pathlib import Path

import distributed
import pytest
from held_runs import descendants, held
from support.processes import is_running, wait_until
from support.refusals import printed_error

from reid_dist.clusters import LocalCluster, connect
from reid_dist.errors import ClusterError

# Ends the first process that the fork server of this one has forked, or the server itself, before the process has what
# it is to run: a worker that has started would be started again.
_ENDED = """
import os, signal, threading, time
from multiprocessing import forkserver
from reid_dist.cli import main

connect, lock, ended = forkserver.connect_to_new_process, threading.Lock(), []

def connect_and_end(handles):
    with lock:
        connected = connect(handles)
        if not ended:
            from reid_dist.clusters import workers

            server = forkserver._forkserver._forkserver_pid
            while not (forked := workers._children(server)):
                time.sleep(0.002)
            os.kill({process}, signal.SIGKILL)
            ended.append(forked)
    return connected

if __name__ == "__main__":
    forkserver.connect_to_new_process = connect_and_end
    main()
"""


def _assert_one_line(sets, folder: Path, process: str) -> None:
    (folder / "program.py").write_text(_ENDED.format(process=process))
    words = [sys.executable, "program.py", "evaluate", sets.query, sets.gallery, "--workers", 2]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=90, cwd=folder, check=False)
    assert done.returncode == 3, done.stderr
    assert done.stdout == ""
    line = printed_error(done.stderr)
    assert line == done.stderr.rstrip()
    assert line.startswith("Error: cannot start 2 local workers of ")
    assert "a process of theirs ended while it started" in line
    assert "ran out of memory" in line
    assert "fewer --workers" in line


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_is_forked(sets, tmp_path: Path) -> None:
    _assert_one_line(sets, tmp_path, "forked[0]")


@pytest.mark.slow
def test_the_fork_server_is_killed_while_it_forks(sets, tmp_path: Path) -> None:
    _assert_one_line(sets, tmp_path, "server")


@pytest.mark.slow
def test_workers_that_go_with_their_fork_server_are_waited_for(sets, tmp_path: Path) -> None:
    """After they have started, and before the job is planned; their nannies start others."""
    with held(tmp_path, "evaluate", sets.query, sets.gallery, "--workers", 2, "--json") as run:
        # Its workers have the same words, and come later.
        server = next(each for each in descendants([run.process.pid]) if _is_fork_server(each))
        workers = descendants([server])[1:]
        assert len(workers) == 2
        os.kill(server, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, workers)), "the end of the workers", 20)
        run.go_on()
        out, err = run.process.communicate(timeout=90)
    assert run.process.returncode == 0, err
    assert json.loads(out)["result_digest"] == sets.digest


@pytest.mark.slow
def test_semaphores_of_a_run_that_is_killed_with_all_its_processes(sets, tmp_path: Path) -> None:
    words = ("evaluate", sets.query, sets.gallery, "--workers", 2, "--json")
    shown = Path("/dev/shm")
    with held(tmp_path, *words, before=("setsid",)) as run:
        os.killpg(run.process.pid, signal.SIGKILL)
        wait_until(lambda: not any(map(is_running, run.processes)), "the end of the processes", 20)
    (noted,) = tmp_path.glob("t/**/semaphores")
    left = [path for line in noted.read_text().splitlines() if (path := shown / f"sem.{line.split()[0]}").exists()]
    # Of two queues, at least, for each worker.
    assert len(left) >= 8
    with held(tmp_path, *words) as run:
        run.end()
    assert not [path for path in left if path.exists()]


# Of what it leaves undone, the process prints nothing: it ends where its semaphore is removed and still registered, and
# where a forked process has half of what it is to run.
_HALF_DONE = """
import os
from multiprocessing import forkserver, get_context
import _multiprocessing
from reid_dist.clusters.workers import prepare_local_workers

prepare_local_workers()
status, data = forkserver.connect_to_new_process([])
os.write(data, {sent})
os.close(data)
forkserver.read_signed(status)
code = forkserver.read_signed(status)
lock = get_context("forkserver").Lock()
_multiprocessing.sem_unlink(lock._semlock.name)
os.write(1, b"%d" % code)
os._exit(0)
"""


# A semaphore of a name that no process has made, as those of a process that has ended.
_WITHOUT_SEMAPHORE = b"\x80\x02cmultiprocessing.synchronize\nLock\n)\x81(K\x00K\x01K\x01U\x05/nonetb."


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("sent", "shown"),
    [(b"\x80\x04\x95", []), (b"", []), (b"cno.such\nname\n.", ["no"]), (_WITHOUT_SEMAPHORE, [])],
)
def test_processes_that_are_ended_half_way_show_no_traceback(sent: bytes, shown: list[str]) -> None:
    words = [sys.executable, "-c", _HALF_DONE.format(sent=sent)]
    # The reader waits for all processes that have its end, the tracker of semaphores among them.
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "1")
    assert re.findall(r"No module named '(\w+)'|warn", done.stderr) == shown
    assert (done.stderr == "") == (shown == [])


def _not_started(error: Exception) -> type:
    """A cluster whose connections end at the start, as those of a scheduler that closes do."""

    class NotStarted:
        def __init__(self, **_: object) -> None:
            logging.getLogger("distributed.batched").critical("Batched Comm Closed")
            raise RuntimeError("Cluster failed to start") from error

    return NotStarted


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (EOFError("unexpected EOF"), r"a process of theirs ended while it started \(unexpected EOF\)"),
        (RuntimeError("Nanny failed to start worker process"), "a process of theirs ended while it started"),
        (AssertionError(distributed.Status.starting), "a process of theirs ended while it started"),
        (RuntimeError("can't start new thread"), "1 local worker of [^:]*: this process cannot start more threads"),
        (RuntimeError("no event loop"), "1 local worker of [^:]*: no event loop$"),
    ],
)
def test_why_workers_did_not_start(monkeypatch: pytest.MonkeyPatch, error: Exception, words: str) -> None:
    """The message has the cause, and what Dask logs meanwhile is not shown."""
    logger, shown = logging.getLogger("distributed"), io.StringIO()
    handler = logging.StreamHandler(shown)
    logger.addHandler(handler)
    monkeypatch.setattr(distributed, "LocalCluster", _not_started(error))
    try:
        with pytest.raises(ClusterError, match=words), connect(LocalCluster(kind="local", workers=1)):
            pass
    finally:
        logger.removeHandler(handler)
    assert shown.getvalue() == ""


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


@pytest.mark.slow
def test_few_open_files(sets, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "reid_dist.cli", "evaluate", sets.query, sets.gallery, "--workers", "2"]
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, timeout=60, preexec_fn=_limited, cwd=tmp_path, check=False
    )
    assert done.returncode == 3
    line = printed_error(done.stderr)
    assert line == done.stderr.rstrip()
    assert line.startswith("Error: 2 local workers need some 72 open files, and the limit of this process is 32")
    assert "ulimit -n 1024" in line


def test_the_required_number_of_open_files_is_enough() -> None:
    """Files that are open before any work, of this process with one worker."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with connect(LocalCluster(kind="local", workers=1, threads_per_worker=1)):
        opened = len(list(Path("/proc/self/fd").iterdir())) - before
    assert opened < 56


def _is_fork_server(process: int) -> bool:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        return b"multiprocessing.forkserver" in words and b"reid_dist" in words
    return False


def test_the_fork_server_is_started_before_anything_large_is_imported() -> None:
    program = "import sys, reid_dist.clusters.workers; print(sorted({'dask', 'numba', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


_OPENED = """
import sys
from reid_dist.clusters import LocalCluster, connect

if __name__ == "__main__":
    with connect(LocalCluster(kind="local", workers=1, threads_per_worker=1)) as client:
        assert client.submit(abs, -1).result() == 1
        print("pandas" in sys.modules)
"""


@pytest.mark.slow
def test_dask_does_not_import_pandas_for_workers_that_are_forked(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    (tmp_path / "program.py").write_text(_OPENED)
    done = subprocess.run(
        [sys.executable, "program.py"], capture_output=True, text=True, check=True, timeout=90, cwd=tmp_path
    )
    assert done.stdout == "False\n"
