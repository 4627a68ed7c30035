"""Names at the limit of file systems, 255 bytes: they work, with temporary names beside them; no longer ones.

And paths that cannot be used for another reason: no file system takes them, they are gone, or closed to the user.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.processes import COMMAND
from support.refusals import printed_error

from reid_dist import DistanceBlock, FeatureSet, Report, evaluate, ingest
from reid_dist.clusters import read_cluster
from reid_dist.errors import InputError
from reid_dist.evaluation.pipelines import read_job
from reid_dist.nightly.history import History

N_BYTES = (240, 246, 250, 255)
TOO_LONG = "x" * 256


def _saved(path: Path, seed: int, n_rows: int = 12) -> None:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((n_rows, 4)).astype(np.float32)
    np.savez(path, features=features, pids=np.arange(n_rows) % 4, camids=np.arange(n_rows) % 3)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("n_bytes", N_BYTES)
@pytest.mark.parametrize("letter", ["n", "é"])
@pytest.mark.parametrize("command", ["ingest", "pool"])
def test_a_store_with_a_long_name_is_replaced(
    reid_dist, tmp_path: Path, command: str, n_bytes: int, letter: str
) -> None:
    name = "n" * (n_bytes % len(letter.encode())) + letter * (n_bytes // len(letter.encode()))
    assert len(name.encode()) == n_bytes
    digests = []
    (tmp_path / "out").mkdir()
    for seed in (1, 2):
        _saved(tmp_path / f"{seed}.npz", seed)
        more = ("--by", "pid_camid") if command == "pool" else ()
        words = (command, tmp_path / f"{seed}.npz", *more, "--output", tmp_path / "out" / name, "--overwrite")
        done = reid_dist(*words)
        assert done.code == 0, done.err
        digests.append(FeatureSet.open(tmp_path / "out" / name).content_digest)
    assert digests[0] != digests[1]
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]


def test_a_store_with_a_long_name_stays_where_the_new_one_is_refused(reid_dist, tmp_path: Path) -> None:
    place = tmp_path / "out" / ("n" * 255)
    _saved(tmp_path / "good.npz", 1)
    assert reid_dist("ingest", tmp_path / "good.npz", "--output", place).code == 0
    before = FeatureSet.open(place).content_digest
    features = np.full((12, 4), np.nan, np.float32)
    np.savez(tmp_path / "bad.npz", features=features, pids=np.arange(12), camids=np.zeros(12, int))
    refused = reid_dist("ingest", tmp_path / "bad.npz", "--output", place, "--overwrite")
    assert refused.code == 2
    assert FeatureSet.open(place).content_digest == before
    assert list(place.parent.iterdir()) == [place]


@pytest.fixture
def store(reid_dist, tmp_path: Path) -> Path:
    _saved(tmp_path / "a.npz", 1)
    assert reid_dist("ingest", tmp_path / "a.npz", "--output", tmp_path / "a.zarr").code == 0
    return tmp_path / "a.zarr"


def _with_output(store: Path, command: str) -> tuple[object, ...]:
    same = ("--protocol", "same_set")
    words = {"sweep": (*same, "--expand", "aqe", "--k", "0:1"), "splits": ("--repeats", 2), "evaluate": same}
    return (command, store, store, *words[command])


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("command", ["evaluate", "sweep", "splits"])
def test_an_output_with_a_long_name(reid_dist, store: Path, threads: Path, tmp_path: Path, command: str) -> None:
    place = tmp_path / ("n" * 255)
    words = (*_with_output(store, command), "--cluster", threads, "--output", place)
    assert reid_dist(*words).code == 0
    files = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    assert reid_dist(*words, "--resume").code == 0
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == files


# SPLIT is a path each of whose names fits.
@pytest.mark.parametrize(
    "words",
    [
        *(("evaluate", *more, "--output", "LONG") for more in ((), ("--resume",))),
        *(("sweep", *more, "--output", "LONG") for more in ((), ("--resume",))),
        *(("splits", *more, "--output", "LONG") for more in ((), ("--resume",))),
        ("ingest", "--output", "LONG", "--overwrite"),
        ("pool", "--by", "pid_camid", "--output", "LONG", "--overwrite"),
        ("demo", "--output", "LONG"),
        ("evaluate", "--workers", "1", "--performance-report", "SPLIT"),
    ],
)
def test_paths_that_are_too_long(reid_dist, store: Path, threads: Path, tmp_path: Path, words: tuple[str, ...]) -> None:
    command, *more = words
    sources = {"ingest": (store,), "pool": (store,), "demo": ()}
    where = () if {"--workers", "--overwrite"} & set(more) else ("--cluster", threads)
    begin = (command, *sources[command]) if command in sources else _with_output(store, command)
    places = {"LONG": tmp_path / TOO_LONG, "SPLIT": Path(tmp_path, *["x" * 200] * 21)}
    done = reid_dist(*begin, *where, *(places.get(word, word) for word in more))
    assert (done.code, done.out) == (2, "")
    *others, line = done.err.splitlines()
    what = "a path is too long for the file system" if "SPLIT" in more else "a name of 256 bytes is too long"
    assert line.startswith(f"Error: {what}")
    assert all("rows, " in each for each in others)


UNUSABLE = ("a\0b", "a\ud800b")


@pytest.mark.parametrize("path", UNUSABLE)
def test_paths_that_no_file_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """A zero byte, and half of a surrogate pair, as escapes of JSON, YAML and URIs and strings in Python hold them."""
    monkeypatch.chdir(tmp_path)
    _saved(tmp_path / "a.npz", 1)
    ingest("a.npz", "a.zarr")
    report = evaluate("a.zarr", "a.zarr", protocol="same_set")
    calls = [
        lambda: FeatureSet.open(path),
        lambda: FeatureSet.open("a.zarr").save(path),
        lambda: FeatureSet.open("file:///tmp/a%00b"),
        lambda: FeatureSet.open(f"s3://bucket/{path}"),
        lambda: ingest(path, "b.zarr"),
        lambda: ingest("a.npz", path),
        lambda: evaluate(path, "a.zarr"),
        lambda: evaluate("a.zarr", "a.zarr", protocol="same_set", workspace=path),
        lambda: evaluate("a.zarr", "a.zarr", protocol="oxford", ground_truth=path),
        lambda: report.save(path),
        lambda: Report.load(path),
        lambda: DistanceBlock.open(path),
        lambda: History.open(path, create=False, read_only=True),
        lambda: History.open(path, create=True),
        lambda: read_cluster(path),
        lambda: read_job(path),
    ]
    before = sorted(tmp_path.rglob("*"))
    for call in calls:
        with pytest.raises(InputError, match="no file can have the path '") as refused:
            call()
        assert str(refused.value).isascii()
        assert "\n" not in str(refused.value)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", [["report", "run"], ["evaluate", "a", "b"], ["demo"]])
def test_a_current_directory_that_is_gone(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "gone").mkdir()
    shell = ["sh", "-c", 'cd "$0" && rmdir "$0" && exec "$@"', str(tmp_path / "gone"), *COMMAND, *words]
    done = subprocess.run(shell, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(("Error: the current directory is gone", "Error: no report in run"))


# Root reads and writes everything with these.
_OVERRIDING = "-dac_override,-dac_read_search"
_AS_ANYBODY = ("setpriv", f"--bounding-set={_OVERRIDING}", f"--inh-caps={_OVERRIDING}")


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "FOLDER/q.zarr", "FOLDER/g.zarr"],
        ["splits", "STORE", "STORE", "--rows", "FOLDER/rows.json"],
        ["evaluate", "STORE", "STORE", "--protocol", "oxford", "--ground-truth", "FOLDER/truth.json"],
        ["history", "show", "FOLDER/nights.db"],
        ["table", "FOLDER/run", "--format", "csv"],
        ["pairs", "STORE", "STORE", "--pairs", "FOLDER/pairs.txt"],
    ],
)
def test_a_folder_that_may_not_be_entered(store: Path, tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    before = () if os.geteuid() else _AS_ANYBODY
    if before and (shutil.which("setpriv") is None or subprocess.run([*before, "true"], check=False).returncode):
        pytest.skip("the rights of root cannot be given up")
    named = [word.replace("FOLDER", str(tmp_path / "closed")).replace("STORE", str(store)) for word in words]
    done = subprocess.run([*before, *COMMAND, *named], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    line = printed_error(done.stderr)
    assert line == done.stderr.rstrip()
    assert line.startswith("Error: cannot ")
    assert "Permission denied" in line
