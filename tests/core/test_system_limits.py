"""What limits of the system refuse: one line with the limit to raise, and never damage of a store."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import COMMAND

from reid_dist.cli.ending import ending_of
from reid_dist.core.limits import shortage
from reid_dist.errors import ShortageError
from reid_dist.stores.object_errors import storage_errors

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
