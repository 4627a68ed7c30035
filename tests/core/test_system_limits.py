"""What limits of the system refuse: one line with the limit to raise, and never damage of a store."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.processes import COMMAND
from support.refusals import printed_error

from reid_dist import FeatureSet
from reid_dist.cli.ending import ending_of
from reid_dist.core.limits import shortage
from reid_dist.errors import ShortageError
from reid_dist.stores.objects import storage_errors

THREAD = RuntimeError("can't start new thread")
FILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


@pytest.mark.parametrize(("error", "limit"), [(THREAD, "ulimit -v"), (FILE, "ulimit -n")])
@pytest.mark.parametrize("uri", ["/data/gallery.zarr", "s3://bucket/gallery.zarr"])
def test_a_refusal_is_no_damage(error: Exception, limit: str, uri: str) -> None:
    with pytest.raises(ShortageError, match=limit) as caught, storage_errors(uri):
        raise error
    # Readers pass it on as they do with missing memory.
    assert isinstance(caught.value, MemoryError)
    for each in (error, caught.value):
        ending = ending_of(each)
        assert ending is not None
        assert ending.code == 3
        assert str(ending.error) == str(caught.value)
        assert "\n" not in str(ending.error)


_WITHOUT_PROCESSES = ("unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


def without_processes(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a program where nothing is in /proc; skip the test where that is not permitted."""
    try:
        subprocess.run([*_WITHOUT_PROCESSES, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("nothing can be mounted here")
    return subprocess.run([*_WITHOUT_PROCESSES, *words], capture_output=True, text=True, check=False)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [("check", "a.zarr"), ("demo", "--output", "d"), ("history", "show", "h.db")])
def test_a_system_without_proc_is_reported_in_one_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask cannot be imported there."""
    monkeypatch.chdir(tmp_path)
    done = without_processes(*COMMAND, *words)
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch("Error: this system shows no processes in /proc, .*mount it .*\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_library_without_proc_names_it() -> None:
    program = "import reid_dist\ntry: reid_dist.evaluate\nexcept reid_dist.errors.ShortageError as error: print(error)"
    assert "this system shows no processes in /proc" in without_processes(sys.executable, "-c", program).stdout
    done = without_processes(*COMMAND, "--version")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("make", [lambda: RuntimeError("other"), lambda: OSError(errno.ENOENT, "absent")])
def test_other_errors_stay_what_they_are(make: Callable[[], Exception]) -> None:
    error = make()
    assert shortage(error) is None
    with pytest.raises(type(error)) as caught, storage_errors("/data/gallery.zarr"):
        raise error
    assert caught.value is error


def _limited(megabytes: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose address space is limited, as by ``ulimit -v``."""
    n_bytes = megabytes * 1_000_000
    return subprocess.run(
        [*words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (n_bytes, n_bytes)),
    )


def _is_one_line_with_the_limit(done: subprocess.CompletedProcess[str], megabytes: int) -> None:
    assert (done.returncode, done.stdout) == (3, "")
    progress = re.compile(".* tasks, .*|compiling kernels of this kind of job, once per machine")
    shown = "\n".join(line for line in done.stderr.splitlines() if not progress.fullmatch(line))
    error = printed_error(shown)
    assert error == shown
    assert f"(ulimit -v {megabytes * 1_000_000 // 1024})" in error


@pytest.fixture
def sides(tmp_path: Path) -> list[str]:
    rng = np.random.default_rng(2)
    for side in ("query", "gallery"):
        features = rng.standard_normal((40, 6)).astype(np.float32)
        FeatureSet.from_arrays(features, np.arange(40) % 5, np.arange(40) % 3).save(tmp_path / side)
    return [str(tmp_path / side) for side in ("query", "gallery")]


@pytest.mark.parametrize("megabytes", [80, 400])
def test_a_small_address_space(sides: list[str], megabytes: int) -> None:
    """Below, BLAS ends the process by itself when it is loaded; Numba, in between, fails in many ways."""
    done = _limited(megabytes, *COMMAND, "evaluate", *sides)
    _is_one_line_with_the_limit(done, megabytes)


@pytest.mark.slow
@pytest.mark.parametrize("is_first", [False, True])
@pytest.mark.parametrize("megabytes", range(100, 901, 200))
def test_every_small_address_space(
    sides: list[str], tmp_path: Path, megabytes: int, is_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a first run, which compiles kernels."""
    if is_first:
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "kernels"))
    done = _limited(megabytes, *COMMAND, "evaluate", *sides, "--output", str(tmp_path / "out"))
    if done.returncode:
        _is_one_line_with_the_limit(done, megabytes)
        assert not (tmp_path / "out").exists()
    else:
        assert (tmp_path / "out" / "report.json").exists()


@pytest.mark.parametrize("n_free", [0, 50, 100, 150])
def test_an_extra_without_room_is_not_loaded(n_free: int) -> None:
    """Some of these libraries end the process instead of an error."""
    program = (
        "import resource, numpy, reid_dist.errors\n"
        "from reid_dist.core.optional_packages import import_extra\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        f"resource.setrlimit(resource.RLIMIT_AS, (used + {n_free} * 10**6, -1))\n"
        "try: import_extra('pyarrow.parquet', 'parquet', 'a file')\n"
        "except reid_dist.errors.ShortageError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "too small to load pyarrow" in done.stdout


@pytest.mark.parametrize(
    ("error", "library"),
    [
        (ImportError("libarrow.so.2600: failed to map segment from shared object"), "libarrow.so.2600"),
        (OSError("/a/libllvm.so: cannot allocate memory in static TLS block"), "libllvm.so"),
    ],
)
def test_a_library_without_room(error: Exception, library: str) -> None:
    try:
        try:
            raise error
        except (ImportError, OSError):
            raise OSError("Could not find/load shared object file; see the manual") from None
    except OSError as last:
        found = shortage(last)
    assert found is not None
    assert f"to load {library}" in found


def test_an_absent_library_stays_one() -> None:
    missing = ImportError("libcuda.so.1: cannot open shared object file: No such file or directory")
    assert shortage(missing) is None
    assert shortage(ModuleNotFoundError("No module named 'h5py'")) is None


@pytest.mark.parametrize("error", ["MemoryError()", "RunFailedError('no memory') from MemoryError()"])
def test_no_thread_is_waited_for_where_memory_ran_short(error: str) -> None:
    """It may compile, which does not survive that: the exit code is that of the command."""
    program = f"""
import threading, time
from reid_dist.cli import ending
from reid_dist.errors import RunFailedError

threading.Thread(target=time.sleep, args=[600]).start()
ending.prepare()
try:
    raise {error}
except Exception as found:
    ended = ending.ending_of(found)
ending.leave(ended.code)
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 3
