"""``reid-dist average``: the tables, the JSON, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, Report, average_runs, evaluate


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of three splits of different sizes, and of one under another distance."""
    folder = tmp_path_factory.mktemp("runs")
    made = {}
    for name, seed in (("a", 1), ("b", 2), ("c", 3), ("euclidean", 1)):
        rng = np.random.default_rng(seed)
        centres = rng.standard_normal((9, 8))
        sides = []
        for n in (15 + seed, 40 + seed):
            pids = rng.integers(0, 9, n)
            features = centres[pids] + 1.5 * rng.standard_normal((n, 8))
            sides.append(FeatureSet.from_arrays(features.astype(np.float32), pids, rng.integers(0, 3, n)))
        evaluate(*sides, distance="euclidean" if name == "euclidean" else "cosine").save(folder / name)
        made[name] = folder / name
    return made


def words_of(text: str, first: str) -> list[str]:
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [first])


def test_tables_of_80_columns(reid_dist, splits) -> None:
    done = reid_dist("average", splits["a"], splits["b"], splits["c"], "--level", 0.9)
    assert (done.code, done.err) == (0, "")
    assert max(map(len, done.out.splitlines())) <= 80
    reports = [Report.load(splits[name]) for name in "abc"]
    values = 100 * np.array([report.metrics["mAP"] for report in reports])
    shown = [f"{number:.2f}%" for number in (values.mean(), values.std(ddof=1), values.min(), values.max())]
    row = words_of(done.out, "mAP")
    assert [row[1], *row[4:]] == shown
    # t of 2 degrees of freedom that 5% exceed.
    half = 2.9199856 * values.std(ddof=1) / np.sqrt(3)
    assert row[2:4] == [f"[{values.mean() - half:.2f},", f"{values.mean() + half:.2f}]"]
    assert "90% interval" in done.out
    for name, value in zip("abc", values, strict=True):
        assert words_of(done.out, name)[1] == f"{value:.2f}"
    folded = "".join(done.out.split())
    for name, report in zip("abc", reports, strict=True):
        assert f"{splits[name]}({report.result_digest[:16]})" in folded
        assert f"of{report.counts['n_query']}queries,gallery{report.counts['n_gallery']}rows" in folded
    assert "2degreesoffreedom" in folded


def test_json_is_the_average_and_nothing_else(reid_dist, splits, tmp_path: Path) -> None:
    kept = tmp_path / "new" / "mean.json"
    places = [splits[name] for name in "abc"]
    options = ("--metric", "CMC@1", "--metric", "mAP", "--level", 0.8, "--json", "--output", kept)
    done = reid_dist("average", *places, *options)
    assert done.code == 0
    expected = average_runs(
        [Report.load(place) for place in places], names=list(map(str, places)), metrics=["CMC@1", "mAP"], level=0.8
    )
    assert done.out == expected.to_json() == kept.read_text()
    assert list(json.loads(done.out)["metrics"]) == ["CMC@1", "mAP"]
    again = reid_dist("average", *places, "--output", kept)
    assert (again.code, again.out) == (2, "")
    assert "is there already" in again.err


def test_other_conventions_are_averaged_on_request(reid_dist, splits) -> None:
    done = reid_dist("average", splits["a"], splits["euclidean"], "--allow-different")
    assert done.code == 0
    assert "differs   distance: cosine in run 1, euclidean in run 2" in done.out


@pytest.mark.parametrize(
    ("names", "words", "parts"),
    [
        (("a", "euclidean"), (), ("distance: cosine in run 1 (", "euclidean in run 2 (", "--allow-different")),
        (("a",), (), ("two runs or more, found 1",)),
        ((), (), ("Missing argument 'RUN...'",)),
        (("a", "b"), ("--metric", "mAPP"), ("did you mean 'mAP'",)),
        (("a", "b"), ("--level", "95"), ("level must lie between 0 and 1",)),
        (("a", "b"), ("--output", "/proc/none/x.json"), ("cannot write",)),
        (("a", "nowhere"), (), ("nowhere",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, splits, names, words, parts) -> None:
    places = [splits.get(name, splits["a"].parent / name) for name in names]
    reid_dist("average", *places, *words).assert_refused(*parts)
