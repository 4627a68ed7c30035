"""``reid-dist browse``: the folder, the server, refusals."""

from __future__ import annotations

import shlex
import signal
import subprocess
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from help_texts import examples
from support.processes import COMMAND

from reid_dist import FeatureSet, evaluate
from reid_dist.reports.browse import ListServer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs with lists and one without, where the examples of the help have them."""
    rng = np.random.default_rng(8)
    place = tmp_path_factory.mktemp("runs")
    sides = {}
    for side, n in (("query", 20), ("gallery", 50)):
        pids, features = rng.integers(0, 6, n), rng.standard_normal((n, 6)).astype(np.float32)
        features[np.arange(n), pids] += 3
        sides[side] = FeatureSet.from_arrays(features, pids, np.arange(n) % 3).save(place / f"{side}.zarr")
    for name, distance in (("plain", "cosine"), ("reranked", "euclidean")):
        evaluate(*sides.values(), distance=distance, topk=5).save(place / "results" / name)
    evaluate(*sides.values()).save(place / "without")
    return place


@pytest.mark.slow
def test_the_examples(reid_dist, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    served: list[str] = []
    monkeypatch.setattr(ListServer, "serve_forever", lambda server: served.append(server.address))
    for line in examples(reid_dist("browse", "--help").out, "browse"):
        # Any free port, as that of the example may be in use.
        done = reid_dist(*("0" if word == "8000" else word for word in shlex.split(line)[1:]))
        assert done.code == 0, done.err
        if "--static" in line:
            assert done.out == "written: lists/index.html\n"
            assert (folder / "lists" / "data" / "lists-00000.js").exists()
        else:
            assert done.out == f"{served[-1]}\n"
    assert len(served) == 2


@pytest.mark.slow
def test_it_serves_until_it_is_interrupted(folder: Path) -> None:
    words = [*COMMAND, "browse", str(folder / "results" / "plain")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        with urllib.request.urlopen(f"{address}data/run.js", timeout=20) as answer:
            assert b'"n_query":20' in answer.read()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (130, "", "Ctrl-C ends the server.\nInterrupted.\n")


def test_missing_stores_are_notes(reid_dist, folder: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    (folder / "gallery.zarr").rename(moved)
    try:
        run = folder / "results" / "plain"
        done = reid_dist("browse", run, "--static", tmp_path / "lists")
        assert done.code == 0
        assert "gallery.zarr is not there; pass its store with --gallery." in done.err
        done = reid_dist("browse", run, "--gallery", moved, "--static", tmp_path / "again")
        assert (done.code, "not shown" in done.err) == (0, False)
    finally:
        moved.rename(folder / "gallery.zarr")


def test_refusals(reid_dist, folder: Path, tmp_path: Path) -> None:
    plain = folder / "results" / "plain"
    reid_dist("browse", tmp_path).assert_refused("no report in")
    reid_dist("browse", folder / "without").assert_refused("no topk.npz", "evaluate again with --topk 50")
    reid_dist("browse", plain, "--query", tmp_path / "no").assert_refused("no such file or store")
    reid_dist("browse", plain, "--query", folder / "gallery.zarr").assert_refused("not those of the query")
    reid_dist("browse", plain, "--static", folder).assert_refused("is not empty")
    outcome = reid_dist("browse", plain, "--static", tmp_path / "x", "--port", 8000)
    assert (outcome.code, "--static serves nothing" in outcome.err) == (2, True)
    assert not (tmp_path / "x").exists()
