"""``reid-dist splits`` as users call it: mean and spread on the console, one file, one clear line for a mistake."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support.processes import COMMAND

from reid_dist import FeatureSet, sweep_parameters
from reid_dist.evaluation.splits import evaluate_splits


def test_splits_prints_and_writes_the_result_of_python(reid_dist, stores, threads, tmp_path: Path) -> None:
    output = tmp_path / "out"
    words = ("--repeats", 4, "--per-identity", 2, "--seed", 9, "--metric", "mAP", "--metric", "CMC@1")
    done = reid_dist("splits", *stores, "--cluster", threads, "--output", output, *words)
    assert done.code == 0, done.err
    expected = evaluate_splits(
        *map(FeatureSet.open, stores), repeats=4, per_identity=2, seed=9, metrics=["mAP", "CMC@1"]
    )
    assert sorted(path.name for path in output.iterdir()) == ["splits.html", "splits.json"]
    assert json.loads((output / "splits.json").read_text())["result_digest"] == expected.result_digest
    head, _, table = done.out.partition("\n\n")
    assert head.splitlines()[:2] == ["out", "market1501 \N{MIDDLE DOT} cosine"]
    lines = [line.split() for line in table.splitlines()]
    assert lines[0] == ["metric", "mean", "spread", "lowest", "highest", "convention"]
    for name in expected.metrics:
        values = (expected.metrics[name], expected.spread[name], *np.sort(expected.per_split[name])[[0, -1]])
        row = next(line for line in lines if line[:1] == [name])
        assert row[1:5] == [f"{100 * value:.2f}%" for value in values]
    assert "4, 2 of each identity, seed 9" in done.out
    assert expected.result_digest[:16] in done.out
    assert "splits: 4/4 tasks" in done.err


def test_every_option_reaches_the_evaluation(reid_dist, stores, threads) -> None:
    words = ("--per-camera", "--protocol", "no_cameras", "--distance", "euclidean", "--repeats", 2, "--max-rank", 7)
    done = reid_dist("splits", *stores, "--cluster", threads, "--json", *words, "--chunk-rows", 33)
    document = json.loads(done.out)
    expected = evaluate_splits(
        *map(FeatureSet.open, stores), repeats=2, per_camera=True, protocol="no_cameras", distance="euclidean"
    )
    assert document["metrics"] == expected.metrics
    assert document["draw"]["per_camera"] is True
    assert document["distance"]["name"] == "euclidean"
    assert document["digests"]["gallery"] == expected.digests["gallery"]


FROM_FILE = {
    "splits": ("--rest-as-queries", "--repeats", "2", "--protocol", "no_cameras"),
    "sweep": ("--expand", "dba(k=2)+aqe", "--k", "0:2", "--protocol", "same_set"),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", FROM_FILE)
def test_a_local_cluster_takes_files(tmp_path: Path, command: str) -> None:
    """Sets in memory are spilled once for worker processes, and nothing of that is left."""
    rng = np.random.default_rng(4)
    pids = rng.integers(0, 12, 90)
    features = (rng.standard_normal((12, 10))[pids] + rng.standard_normal((90, 10))).astype(np.float32)
    np.savez(tmp_path / "items.npz", features=features, pids=pids)
    source = str(tmp_path / "items.npz")
    words = [*COMMAND, command, source, source, *FROM_FILE[command]]
    words += ["--workers", "1", "--output", str(tmp_path / "out"), "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    whole = FeatureSet.from_arrays(features, pids)
    if command == "splits":
        expected = evaluate_splits(whole, whole, rest_as_queries=True, repeats=2, protocol="no_cameras")
        assert document["counts"]["n_query"] == [78, 78]
    else:
        expected = sweep_parameters(whole, whole, expand="dba(k=2)+aqe", k="0:2", protocol="same_set")
    assert document["result_digest"] == expected.result_digest
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [f"{command}.html", f"{command}.json"]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--repeats", "many"), ("--repeats",)),
        (("--rest-as-queries",), ("--rest-as-queries", "give the same one twice")),
        (("--cluster", "nowhere.yaml"), ("nowhere.yaml",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, stores, threads, tmp_path: Path, words, parts) -> None:
    output = tmp_path / "out"
    reid_dist("splits", *stores, "--cluster", threads, "--output", output, *words).assert_refused(*parts)
    assert not output.exists()


def test_a_finished_run_is_taken_up(reid_dist, stores, threads, tmp_path: Path) -> None:
    words = ("splits", *stores, "--cluster", threads, "--repeats", 2, "--output", tmp_path / "out", "--resume")
    words += ("--json",)
    first = reid_dist(*words)
    assert first.code == 0, first.err
    again = reid_dist(*words)
    assert (again.code, again.out) == (0, first.out)
    assert "splits:" not in again.err
    # What is the same by another name is the same.
    assert reid_dist(*words, "--chunk-rows", 9).out == first.out
    for more, differs in (
        (("--seed", 1), "seed"),
        (("--protocol", "no_cameras"), "protocol"),
        (("--distance", "euclidean"), "distance"),
        (("--metric", "mAP"), "metrics"),
        (("--max-rank", 20), "max_rank"),
    ):
        reid_dist(*words, *more).assert_refused(f"holds other splits (different {differs}); choose another --output")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["splits.html", "splits.json"]
