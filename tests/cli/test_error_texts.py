"""The commonest errors as the command prints them, and the form that all have.

``golden/errors.txt`` holds what standard error shows.  After a sentence was changed on purpose, write the file anew:
``REID_DIST_WRITE_GOLDEN=1 pytest tests/cli/test_error_texts.py``.
"""

from __future__ import annotations

import json
import os
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import reid_dist as package
from reid_dist import FeatureSet
from reid_dist.errors import LONGEST_MESSAGE

GOLDEN = Path(__file__).parent / "golden" / "errors.txt"

PIPELINE = """query: q.zarr
qallery: g.zarr
# A comment.
distance: cosin
max_rank: ten
metrics: [mapp, CMC@0]
protocol:
  name: own
  bse: market1501
"""
SUITE = """suite: s
models:
  a: {path: ., labls: {}}
datasets:
  d: {query: q.zarr, gallery: g.zarr, distance: cosin}
jobs:
  plain: {metrics: [mapp]}
"""
CLUSTER = "kind: local\nworkers: two\nthread: 1\n"

EVALUATE = "evaluate q.zarr g.zarr "
COMMANDS = (
    "evaluate",
    "evalute q.zarr g.zarr",
    "evaluate nosuch.npz g.zarr",
    "evaluate empty g.zarr",
    "evaluate features.pkl g.zarr",
    "evaluate notes.txt g.zarr",
    "evaluate nan.npz g.zarr",
    "evaluate zero.npz g.zarr",
    "evaluate short.npz g.zarr",
    "evaluate nameless.npz g.zarr",
    "evaluate narrow.zarr g.zarr",
    "evaluate no_cameras.npz no_cameras.npz",
    "evaluate other.zarr g.zarr",
    "evaluate q.zarr damaged.zarr",
    EVALUATE + "--protcol x",
    EVALUATE + "--max-rank ten",
    EVALUATE + "--metric map",
    EVALUATE + "--distance cosin --protocol xx --metric mapp --rerank foo",
    EVALUATE + "--output full",
    EVALUATE + "--output run --resume --distance euclidean",
    EVALUATE + "--cluster cluster.yaml",
    "run job.yaml",
    "run twice.yaml",
    "run broken.yaml",
    "nightly suite.yaml --history nights.sqlite",
    "compare run changed",
    "compare run other_run",
    "table changed empty",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with files that commands refuse."""
    here = tmp_path_factory.mktemp("errors")

    def side(n: int, seed: int, dim: int = 8, shift: int = 0) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(seed)
        features = rng.standard_normal((n, dim)).astype(np.float32)
        return {"features": features, "pids": rng.integers(0, 5, n) + shift, "camids": rng.integers(0, 3, n)}

    def store(name: str, arrays: dict[str, np.ndarray]) -> None:
        FeatureSet.from_arrays(arrays["features"], arrays["pids"], arrays["camids"]).save(here / name, chunk_rows=20)

    store("q.zarr", side(20, 1))
    store("g.zarr", side(60, 2))
    store("damaged.zarr", side(60, 2))
    store("narrow.zarr", side(20, 1, dim=4))
    store("other.zarr", side(20, 1, shift=100))
    store("q2.zarr", side(20, 3))
    chunk = here / "damaged.zarr" / "features" / "c" / "1" / "0"
    content = bytearray(chunk.read_bytes())
    content[5] ^= 1
    chunk.write_bytes(content)
    plain = side(20, 1)
    wrong, zero = plain["features"].copy(), plain["features"].copy()
    wrong[3, 2], wrong[7, 0], zero[5] = np.nan, np.inf, 0
    np.savez(here / "nan.npz", **{**plain, "features": wrong})
    np.savez(here / "zero.npz", **{**plain, "features": zero})
    np.savez(here / "short.npz", **{**plain, "pids": plain["pids"][:-2], "camids": plain["camids"][:-3]})
    np.savez(here / "nameless.npz", a=plain["pids"])
    np.savez(here / "no_cameras.npz", features=plain["features"], pids=plain["pids"])
    (here / "features.pkl").write_bytes(pickle.dumps({"features": 1}))
    (here / "notes.txt").write_text("notes\n")
    (here / "empty").mkdir()
    (here / "full").mkdir()
    (here / "full" / "thesis.tex").write_text("")
    package.evaluate(here / "q.zarr", here / "g.zarr").save(here / "run")
    package.evaluate(here / "q2.zarr", here / "g.zarr").save(here / "other_run")
    package.evaluate(here / "q.zarr", here / "g.zarr").save(here / "changed")
    document = json.loads((here / "changed" / "report.json").read_text())
    document["metrics"]["mAP"] = 0.99
    (here / "changed" / "report.json").write_text(json.dumps(document))
    texts = {"job": PIPELINE, "suite": SUITE, "cluster": CLUSTER, "twice": "query: a\ngallery: b\nquery: c\n"}
    for name, text in {**texts, "broken": "query: q.zarr\n gallery: [g.zarr\n"}.items():
        (here / f"{name}.yaml").write_text(text)
    return here


@pytest.fixture
def error_of(folder: Path, reid_dist: Callable, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Run a command in the directory, and return its error."""
    monkeypatch.chdir(folder)
    return lambda words: reid_dist(*words.split()).assert_refused().rstrip("\n").replace(str(folder), "DIR")


@pytest.mark.parametrize(
    ("words", "lines"),
    [("run job.yaml", [1, 2, 4, 5, 6, 6, 9]), ("nightly suite.yaml --history n.sqlite", [3, 5, 7])],
)
def test_all_faults_of_a_file_are_in_one_error(error_of: Callable[[str], str], words: str, lines: list[int]) -> None:
    first, *faults = error_of(words).split("\n")
    places = [int(found[1]) if (found := re.match("  line ([0-9]+), ", fault)) else 1 for fault in faults]
    assert places == lines
    assert f"{len(lines)} problems" in first


def test_events_have_the_details_apart(folder: Path, reid_dist: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    done = reid_dist("run", "job.yaml", "--log-json")
    (event,) = (each for each in map(json.loads, done.err.splitlines()) if each["event"] == "error")
    assert (event["kind"], event["exit_code"], len(event["details"])) == ("FaultsError", 2, 7)
    assert "\n" not in event["message"]


def test_the_texts_are_those_of_the_file(error_of: Callable[[str], str]) -> None:
    """The first line is short, and details follow; digests are among these alone, and short."""
    errors = {words: error_of(words) for words in COMMANDS}
    for error in errors.values():
        first, *details = error.split("\n")
        assert first.startswith("Error: ")
        assert len(first) <= LONGEST_MESSAGE
        assert not re.search("[0-9a-f]{12}", first)
        assert not re.search("[0-9a-f]{13}", "".join(details))
        assert all(re.match("  +[^ ]", line) for line in details)
    text = "\n".join(f"$ reid-dist {words}\n{error}\n" for words, error in errors.items())
    text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
    if os.environ.get("REID_DIST_WRITE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")
