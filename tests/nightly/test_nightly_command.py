"""``reid-dist nightly`` in this process: what it prints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import yaml
from small_nights import save_model, write_suite

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


def test_a_gallery_that_grows_every_night_is_reported_as_not_compared(reid_dist, tmp_path: Path) -> None:
    """Also while mAP falls: nothing tests it, so the night is not a good one."""
    suite = write_suite(tmp_path, {"ours": tmp_path / "ours"}, {"plain": {}})
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    words = ("nightly", suite, "--history", tmp_path / "nights.db", "--cluster", tmp_path / "threads.yaml")

    def night(noise: float, n_more: int = 0) -> Any:
        save_model(tmp_path / "ours", noise, n_more=n_more)
        return reid_dist(*words)

    def files() -> dict[str, str]:
        return {name: (tmp_path / "nights" / name).read_text() for name in ("index.html", "summary.md", "verdict.json")}

    first = night(0.5)
    assert first.code == 0, "without a baseline there is nothing to compare with"
    assert first.out.startswith("run 1 of suite small: nothing failed, nothing is worse\n")
    for number, noise in ((2, 1.5), (3, 4.0)):
        grown = night(noise, 10 * number)
        assert grown.code == 5
        ending = "a job could not be compared with its baseline, nothing failed, and no other is worse"
        assert grown.out.startswith(f"run {number} of suite small: {ending}\n")
        (line,) = (line for line in grown.out.splitlines() if line.startswith("ours/set/plain: "))
        lasting = " for 2 nights in a row, since run 2" if number == 3 else ""
        assert line.startswith(f"ours/set/plain: accuracy not compared{lasting}: mAP ")
        assert "the conditions changed since run" in line
        assert "n_gallery" in line
        # Both values: what the metric was, and what it is.
        before, after = map(float, re.findall(r"mAP ([\d.]+) % . ([\d.]+) %", line)[0])
        assert after < before - 5
        found = files()
        verdict = json.loads(found["verdict.json"])
        assert verdict["exit_code"] == 5
        assert (verdict["counts"]["uncompared"], verdict["counts"]["incomparable"]) == (1, 0)
        assert "could not be compared with earlier nights" in verdict["headline"]
        assert "No gate found a change" not in "".join(found.values())
        assert found["summary.md"].splitlines()[0].endswith("could not be compared with earlier nights")
        assert f"mAP {before:.2f} % \N{RIGHTWARDS ARROW} {after:.2f} %" in found["index.html"]
    again = night(4.0, 30)
    assert (again.code, again.out.splitlines()[0]) == (0, "run 4 of suite small: nothing failed, nothing is worse")
