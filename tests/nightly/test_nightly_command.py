"""``reid-dist nightly`` in this process: what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from small_nights import save_model, write_suite

from reid_dist.nightly.history.history_values import Code
from reid_dist.nightly.wording import SIGNS

CODES = "\x1b]0;title\x07\x1b[31m\x9b2J"
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def test_control_codes_of_a_suite_never_reach_the_terminal(reid_dist, tmp_path: Path) -> None:
    """Of a label and of a path that does not exist: in the list, on both streams, in the summary and on the page."""
    suite = write_suite(tmp_path, {"ours": tmp_path / f"no{CODES}where"}, {"plain": {"labels": {"team": CODES}}})
    assert yaml.safe_load(suite.read_text())["jobs"]["plain"]["labels"]["team"] == CODES
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    listed = reid_dist("nightly", suite, "--list")
    assert listed.code == 0
    assert listed.out.startswith("ours/set/plain   team ]0;title")
    done = reid_dist("nightly", suite, "--history", tmp_path / "nights.db", "--cluster", tmp_path / "threads.yaml")
    assert done.code == 3
    assert "where/query.zarr" in done.err
    assert "where/query.zarr" in done.out
    files = [(tmp_path / "nights" / name).read_text() for name in ("index.html", "summary.md", "verdict.json")]
    for text in (listed.out, done.out, done.err, *files):
        assert not CONTROLS.search(text)


def test_a_night_without_a_history_is_refused(reid_dist, tmp_path: Path) -> None:
    done = reid_dist("nightly", write_suite(tmp_path, {"ours": tmp_path}, {"plain": {}}))
    assert done.code == 2
    assert "Missing option '--history'" in done.err


def test_a_job_that_changes_is_reported_as_not_compared(reid_dist, tmp_path: Path) -> None:
    """Also while mAP falls: nothing tests it, so the night is not a good one unless that is allowed."""
    (tmp_path / "threads.yaml").write_text("kind: threads\n")

    def night(noise: float, max_rank: int, *more: str) -> tuple[Any, dict[str, Any]]:
        save_model(tmp_path / "ours", noise)
        suite = write_suite(tmp_path, {"ours": tmp_path / "ours"}, {"plain": {"max_rank": max_rank}})
        words = ("nightly", suite, "--history", tmp_path / "nights.db", "--cluster", tmp_path / "threads.yaml")
        return reid_dist(*words, *more), json.loads((tmp_path / "nights" / "verdict.json").read_text())

    first, verdict = night(0.5, 50)
    assert (first.code, verdict["counts"]["incomparable"]) == (0, 1), "there is nothing to compare with"
    for number, noise in ((2, 1.5), (3, 4.0)):
        done, verdict = night(noise, number)
        assert (done.code, verdict["exit_code"]) == (5, 5)
        assert first.out.splitlines()[0] != done.out.splitlines()[0]
        assert (verdict["counts"]["uncompared"], verdict["counts"]["incomparable"]) == (1, 0)
        (entry,) = verdict["entries"]
        assert entry["since"] == (2 if number == 3 else None)
        found, *_ = entry["findings"]
        assert (found["code"], found["baseline"]) == (Code.OTHER_JOB, number - 1)
        (change,) = (each for each in found["changes"] if each["name"] == "mAP")
        assert change["candidate"] < change["baseline"] - 0.05
        (line,) = (line for line in done.out.splitlines() if line.startswith("ours/set/plain: "))
        for value in (change["baseline"], change["candidate"]):
            assert f"{100 * value:.2f}" in line
        assert SIGNS["uncompared"].mark in (tmp_path / "nights" / "summary.md").read_text().splitlines()[0]
    done, verdict = night(4.0, 4, "--allow-incomparable")
    assert (done.code, verdict["exit_code"], verdict["counts"]["uncompared"]) == (0, 0, 1)
    assert "not compared" in done.out.splitlines()[0], "it is allowed, and said all the same"
    again, verdict = night(4.0, 4)
    assert (again.code, verdict["counts"]["same"]) == (0, 1)
