"""Systems without what Linux alone has, as macOS is, give the same results; others are refused in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.processes import COMMAND

from reid_dist import compare, evaluate, sweep_parameters
from reid_dist.reports import Report
from reid_dist.stores import open_features

RERANK = "k_reciprocal(k1=6,k2=3)"
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
    """A file of query and gallery, with pixels of few values so that distances are exact."""
    rng = np.random.default_rng(9)
    arrays = {}
    for side, n in (("query", 30), ("gallery", 240)):
        pids = rng.integers(0, 12, n)
        features = rng.integers(-4, 5, (12, 16))[pids] + rng.integers(-3, 4, (n, 16))
        arrays |= {
            f"{side}_f": features.astype(np.float32),
            f"{side}_label": pids,
            f"{side}_cam": rng.integers(0, 4, n),
        }
    path = tmp_path_factory.mktemp("systems") / "both.npz"
    np.savez(path, **arrays)
    return path


PROGRAM = """
import fcntl, json, os, sys
from pathlib import Path
from reid_dist import DistanceBlock, compare, compare_runs, evaluate, ingest, reranked_distances, sweep_parameters
from reid_dist.reports import Report

source, folder = Path(sys.argv[1]), Path(sys.argv[2])
query, gallery = ingest(source, folder / "stores")
plain = evaluate(query, gallery, topk=5)
reranked = evaluate(query, gallery, rerank="RERANK", expand="aqe(k=3)", workspace=folder / "workspace")
again = evaluate(query, gallery, rerank="RERANK", expand="aqe(k=3)", workspace=folder / "workspace")
swept = sweep_parameters(query, gallery, rerank="k_reciprocal", k1="5:7", workspace=folder / "workspace")
for name, report in (("plain", plain), ("reranked", reranked)):
    report.save(folder / name)
loaded = Report.load(folder / "plain")
block = DistanceBlock.from_array(reranked_distances(query, gallery, rerank="RERANK")).save(folder / "block.npy")
lacking = [name for name in ("sched_getaffinity", "posix_fadvise", "preadv") if not hasattr(os, name)]
try:
    fcntl.flock(1, fcntl.LOCK_EX)
except OSError:
    lacking.append("locks")
if not Path("/proc/self/stat").exists() and not Path("/sys/fs").is_dir():
    lacking.append("/proc")
print(json.dumps({
    "lacking": lacking,
    "digests": [each.result_digest for each in (plain, reranked, again, swept, loaded)],
    "stores": [query.content_digest, gallery.content_digest],
    "cores": plain.environment["cores"],
    "difference": compare(loaded, reranked).metrics[0].difference,
    "rows": len(compare_runs([loaded, reranked]).to_csv().splitlines()),
    "left": sorted(each.name for each in (folder / "stores").iterdir()),
}))
""".replace("RERANK", RERANK)


def test_results_are_those_of_linux(source: Path, tmp_path: Path) -> None:
    done = run(sys.executable, "-W", "error", "-c", PROGRAM, source, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["lacking"] == ["sched_getaffinity", "posix_fadvise", "preadv", "locks", "/proc"]
    query, gallery = (open_features(source, role=side) for side in ("query", "gallery"))
    plain = evaluate(query, gallery)
    reranked = evaluate(query, gallery, rerank=RERANK, expand="aqe(k=3)")
    swept = sweep_parameters(query, gallery, rerank="k_reciprocal", k1="5:7")
    expected = [plain, reranked, reranked, swept, plain]
    assert found["digests"] == [each.result_digest for each in expected]
    assert found["cores"] == os.cpu_count()
    assert found["difference"] == compare(plain, reranked).metrics[0].difference
    assert found["rows"] == 3
    assert found["stores"] == [query.content_digest, gallery.content_digest]
    # Lock files are beside the stores, and hidden.
    assert [name for name in found["left"] if not name.startswith(".")] == ["gallery.zarr", "query.zarr"]


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
