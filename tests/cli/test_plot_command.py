"""``reid-dist plot``: figures as files, and refusals."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")


@pytest.fixture
def weak(finished_runs: dict[str, Path]) -> Path:
    return finished_runs["weak"]


def test_a_figure(reid_dist, weak: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "cmc.svg"
    done = reid_dist("plot", weak, "--name", "ours", "--output", output, "--width", "two", "--style", "ggplot")
    assert (done.code, done.out, done.err) == (0, f"written: {output}\n", "")
    text = output.read_text()
    assert 'width="495pt"' in text, "6.875 inches"
    again = reid_dist("plot", weak, "--output", output)
    again.assert_refused("is there already")
    assert output.read_text() == text


def test_runs_that_do_not_compare_are_named(reid_dist, weak: Path, tmp_path: Path) -> None:
    done = reid_dist("plot", weak, weak.with_name("unlike"), "--curve", "PR", "--output", tmp_path / "pr.PDF")
    assert done.code == 0
    assert "weak; unlike" in done.err
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
def test_refusals(reid_dist, weak: Path, tmp_path: Path, monkeypatch, words: list[str], named: str) -> None:
    monkeypatch.chdir(tmp_path)
    reid_dist("plot", weak, *words).assert_refused(named)
    assert not list(tmp_path.iterdir())
