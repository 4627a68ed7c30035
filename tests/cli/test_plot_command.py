"""``reid-dist plot``: figures as files, and refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    rng = np.random.default_rng(8)
    centres, pids, camids = rng.standard_normal((12, 8)), rng.integers(0, 12, 90), rng.integers(0, 3, 90)
    folder = tmp_path_factory.mktemp("runs")
    for name, noise, protocol in (("weak", 2.0, "market1501"), ("strong", 0.7, "no_cameras")):
        features = (centres[pids] + noise * rng.standard_normal((90, 8))).astype(np.float32)
        query, gallery = (
            FeatureSet.from_arrays(features[at], pids[at], camids[at]) for at in (slice(30), slice(30, 90))
        )
        evaluate(query, gallery, protocol=protocol).save(folder / name)
    return [folder / "weak", folder / "strong"]


def test_a_figure(reid_dist, folders: list[Path], tmp_path: Path) -> None:
    output = tmp_path / "new" / "cmc.svg"
    done = reid_dist("plot", folders[0], "--name", "ours", "--output", output, "--width", "two", "--style", "ggplot")
    assert (done.code, done.out, done.err) == (0, f"written: {output}\n", "")
    text = output.read_text()
    assert 'width="495pt"' in text, "6.875 inches"
    again = reid_dist("plot", folders[0], "--output", output)
    again.assert_refused("is there already")
    assert output.read_text() == text


def test_runs_that_do_not_compare_are_named(reid_dist, folders: list[Path], tmp_path: Path) -> None:
    done = reid_dist("plot", *folders, "--curve", "PR", "--output", tmp_path / "pr.PDF")
    assert done.code == 0
    assert "weak; strong" in done.err
    assert (tmp_path / "pr.PDF").read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--output", "figure.jpg"], "figure.jpg"),
        (["--output", "figure.png", "--name", "one", "--name", "two"], "--name"),
        (["--output", "figure.png", "--width", "three"], "--width"),
        (["--output", "figure.png", "--width", "nan"], "width"),
        (["--output", "figure.png", "--curve", "roc"], "--roc"),
        (["--output", "figure.png", "--curve", "distractor"], "--breakdown gallery_size"),
        (["--output", "figure.png", "--style", "no such style"], "no such style"),
    ],
)
def test_refusals(reid_dist, folders: list[Path], tmp_path: Path, monkeypatch, words: list[str], named: str) -> None:
    monkeypatch.chdir(tmp_path)
    reid_dist("plot", folders[0], *words).assert_refused(named)
    assert not list(tmp_path.iterdir())
