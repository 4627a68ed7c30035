"""``reid-dist nightly`` in this process: what it prints."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from small_nights import write_suite

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
