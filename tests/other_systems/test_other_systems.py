"""Systems without what Linux alone has, as macOS is, give the same results; others are refused in one line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import package_results
import pytest
from lacking.sitecustomize import lacking_names
from package_results import RERANK
from support.processes import COMMAND

from reid_dist import evaluate
from reid_dist.reports import Report

# Not on the path of the tests themselves, whose child processes would lack it all, too.
LACKING = Path(__file__).parent / "lacking"


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program on such a system."""
    paths = os.pathsep.join(filter(None, [str(LACKING), os.environ.get("PYTHONPATH", "")]))
    return subprocess.run(
        [*map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of query and gallery, with pixels of few values so that distances are exact.

    Features are in Fortran order and compressed, so that rows are read at places of a temporary file.
    """
    rng = np.random.default_rng(9)
    arrays = {}
    for side, n in (("query", 30), ("gallery", 240)):
        pids = rng.integers(0, 12, n)
        features = rng.integers(-4, 5, (12, 16))[pids] + rng.integers(-3, 4, (n, 16))
        arrays |= {
            f"{side}_f": np.asfortranarray(features.astype(np.float32)),
            f"{side}_label": pids,
            f"{side}_cam": rng.integers(0, 4, n),
        }
    path = tmp_path_factory.mktemp("systems") / "both.npz"
    np.savez_compressed(path, **arrays)
    return path


_MISSING = """
import fcntl, os
from pathlib import Path

assert not hasattr(os, "sched_getaffinity") and not hasattr(os, "preadv")
assert not Path("/proc/self/stat").exists() and not Path("/sys/fs").is_dir()
try:
    fcntl.flock(1, fcntl.LOCK_EX)
except OSError:
    print("no locks")
"""


def test_results_are_those_of_linux(source: Path, tmp_path: Path) -> None:
    assert run(sys.executable, "-c", _MISSING).stdout == "no locks\n"
    done = run(sys.executable, "-W", "error", package_results.__file__, source, tmp_path / "there")
    assert (done.returncode, done.stderr) == (0, "")
    here = package_results.results(source, tmp_path / "here")
    assert json.loads(done.stdout) == here | {"cores": os.cpu_count(), "knows peaks": False}
    with np.load(source) as arrays:
        assert here["rows"] == [arrays["gallery_f"][::2].sum(dtype=np.float64)] * 2
    assert (here["damaged"], here["left"]) == ([False, False], ["gallery.zarr", "query.zarr"])


def test_calls_that_systems_lack_are_made_in_one_place_each() -> None:
    package = Path(__file__).parents[2] / "reid_dist"
    names = {f"{module.__name__}.{name}" for module, name in lacking_names()}
    made = {path: names.intersection(re.findall(r"\b[a-z]+\.\w+", path.read_text())) for path in package.rglob("*.py")}
    assert {path.relative_to(package).as_posix(): found for path, found in made.items() if found} == {
        "core/environment.py": {"os.sched_getaffinity"},
        "core/system_calls.py": {"os.preadv", "mmap.MADV_WILLNEED"},
    }


@pytest.mark.slow
def test_commands_on_a_cluster_and_nights(source: Path, tmp_path: Path) -> None:
    words = ("evaluate", source, source, "--rerank", RERANK, "--workers", 2, "--output", tmp_path / "run")
    done = run(*COMMAND, *words)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    expected = evaluate(source, source, rerank=RERANK)
    assert Report.load(tmp_path / "run").result_digest == expected.result_digest
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "suite: small\nmodels:\n  one: {}\n"
        f"datasets:\n  market: {{query: {source}, gallery: {source}}}\n"
        "jobs:\n  plain: {}\n"
    )
    for _ in range(2):
        done = run(*COMMAND, "nightly", suite, "--history", tmp_path / "history.sqlite")
        assert done.returncode == 0, done.stderr
    shown = run(*COMMAND, "history", "show", tmp_path / "history.sqlite")
    assert shown.returncode == 0, shown.stderr


WINDOWS = "import sys; sys.platform = 'win32'; sys.argv[:] = [{name!r}]; sys.orig_argv[:] = {words!r}; import {module}"


def on_windows(module: str, *, name: str, words: list[str]) -> subprocess.CompletedProcess[str]:
    program = WINDOWS.format(name=name, words=words, module=module)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize("module", ["reid_dist", "reid_dist.stores", "reid_dist.cli"])
def test_an_import_on_windows_is_refused(module: str) -> None:
    done = on_windows(module, name=r"C:\work\reid-dist\train.py", words=["python", "train.py"])
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ImportError: reid-dist does not run on Windows, which lacks the locks and signals of POSIX: install "
        "and use it in the Windows Subsystem for Linux (wsl --install)"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (r"C:\work\Scripts\reid-dist.exe", [r"C:\work\Scripts\python.exe", r"C:\work\Scripts\reid-dist.exe", "demo"]),
        (r"C:\work\Scripts\reid-dist", [r"C:\work\Scripts\python.exe", r"C:\work\Scripts\reid-dist", "--help"]),
        ("-m", ["python", "-m", "reid_dist.cli", "demo"]),
    ],
)
def test_the_command_on_windows_is_refused_in_one_line(name: str, words: list[str]) -> None:
    done = on_windows("reid_dist.cli", name=name, words=words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "Error: reid-dist does not run on Windows, which lacks the locks and signals of POSIX: install "
        "and use it in the Windows Subsystem for Linux (wsl --install)"
    ]
