"""``reid-dist compare``: the table, the JSON, the exit codes that a scheduler reads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.pages import tables

from reid_dist import FeatureSet, Report, evaluate
from reid_dist.reports.comparison import compare


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of a good and a bad model, of another protocol, gallery and query set."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((35, 16))
    labels = {side: (rng.integers(0, 35, n), rng.integers(0, 3, n)) for side, n in (("query", 80), ("gallery", 250))}
    folder = tmp_path_factory.mktemp("runs")

    def sets(noise: float, seed: int, n_query: int = 80, n_gallery: int = 250) -> list[FeatureSet]:
        dice = np.random.default_rng(seed)
        made = []
        for side, n in (("query", n_query), ("gallery", n_gallery)):
            pids, camids = (label[:n] for label in labels[side])
            features = centres[pids] + noise * dice.standard_normal((n, 16))
            made.append(FeatureSet.from_arrays(features.astype(np.float32), pids, camids))
        return made

    made = {
        "good": evaluate(*sets(1.2, 1)),
        "bad": evaluate(*sets(2.5, 2)),
        "no_cameras": evaluate(*sets(1.2, 1), protocol="no_cameras"),
        "gallery": evaluate(*sets(1.2, 1, n_gallery=249)),
        "query": evaluate(*sets(1.2, 1, n_query=79)),
    }
    for name, report in made.items():
        report.save(folder / name)
    return {name: folder / name for name in made}


def test_a_regression_ends_with_code_4_and_a_gain_with_0(reid_dist, runs) -> None:
    worse = reid_dist("compare", runs["good"], runs["bad"], "--resamples", 500)
    assert worse.code == 4
    assert worse.err == ""
    lines = worse.out.splitlines()
    assert max(map(len, lines)) <= 80
    good, bad = (Report.load(runs[name]).metrics["mAP"] for name in ("good", "bad"))
    row = next(line for line in lines if line.split()[:1] == ["mAP"])
    assert f"{100 * good:.2f}%" in row
    assert f"{100 * bad:.2f}%" in row
    assert f"{100 * (bad - good):+.2f}" in row
    assert row.split()[-1] == "worse"
    assert "80 paired of 80" in worse.out
    per_query = Report.load(runs["good"]).per_query
    n_identities = len(set(per_query["pid"][per_query["reason"] == ""].tolist()))
    assert f"500 of {n_identities} identities, seed 0" in worse.out
    assert "query.content_digest" in worse.out
    assert "queries lost" in worse.out
    better = reid_dist("compare", runs["bad"], runs["good"], "--resamples", 500)
    assert better.code == 0
    assert next(line for line in better.out.splitlines() if "mAP" in line).split()[-1] == "better"


def test_json_is_the_comparison_and_nothing_else(reid_dist, runs, tmp_path: Path) -> None:
    options = ("--metric", "mAP", "--metric", "CMC@5", "--level", 0.9, "--seed", 3, "--resamples", 300, "--by", "query",
               "--minimum-effect", 0.01)  # fmt: skip
    kept = tmp_path / "comparison.json"
    done = reid_dist("compare", runs["good"], runs["bad"], *options, "--json", "--output", kept)
    assert done.code == 4
    expected = compare(
        Report.load(runs["good"]), Report.load(runs["bad"]), metrics=["mAP", "CMC@5"], level=0.9, seed=3,
        n_resamples=300, unit="query", minimum_effect=0.01,
    )  # fmt: skip
    assert json.loads(done.out) == expected.to_dict()
    assert kept.read_text() == done.out
    again = reid_dist("compare", runs["good"], runs["bad"], "--output", kept)
    assert (again.code, again.out) == (2, "")
    assert "is there already" in again.err


def test_a_comparison_that_cannot_be_written_leaves_nothing(reid_dist, runs, tmp_path: Path, monkeypatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    kept = tmp_path / "new" / "comparison.json"
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        failed = reid_dist("compare", runs["good"], runs["good"], "--output", kept)
    assert failed.code == 2
    assert failed.err == f"Error: cannot write {kept}: No space left on device; choose another --output\n"
    assert list(kept.parent.iterdir()) == []
    assert reid_dist("compare", runs["good"], runs["good"], "--output", kept).code == 0
    assert [path.name for path in kept.parent.iterdir()] == ["comparison.json"]


@pytest.mark.parametrize(
    ("candidate", "words", "parts"),
    [
        ("no_cameras", (), ("not comparable", "protocol.name: market1501", "no_cameras", "--allow-different")),
        ("gallery", (), ("n_gallery: 250 in the baseline, 249", "labels of the gallery set")),
        ("query", ("--allow-different",), ("80 queries against 79", "same query set")),
        ("bad", ("--metric", "mAPP"), ("did you mean 'mAP'",)),
        ("bad", ("--by", "camera"), ("--by",)),
        ("bad", ("--output", "/proc/none/x.json"), ("cannot write",)),
        ("nowhere", (), ("nowhere",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, runs, candidate: str, words, parts) -> None:
    place = runs.get(candidate, runs["good"].parent / candidate)
    reid_dist("compare", runs["good"], place, *words).assert_refused(*parts)


def test_the_page_of_two_runs_has_change_curves_and_queries(reid_dist, runs, tmp_path: Path) -> None:
    done = reid_dist("compare", runs["good"], runs["bad"], "--resamples", 200, "--output", tmp_path / "two.html")
    assert done.code == 4
    text = (tmp_path / "two.html").read_text()
    changes = next(table for table in tables(text) if table[0][-1] == "verdict")
    assert {row[0]: row[-1] for row in changes[1:]}["mAP"] == "worse"
    assert '<svg class="plot"' in text
    assert "queries lost" in text
    # Of runs that do not compare, the changes alone.
    place = tmp_path / "unlike.html"
    words = ("--allow-different", "--resamples", 200, "--output", place)
    assert reid_dist("compare", runs["good"], runs["no_cameras"], *words).code in (0, 4)
    assert "<svg" not in place.read_text()
