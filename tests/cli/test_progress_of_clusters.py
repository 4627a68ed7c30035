"""Address of the dashboard and Dask's performance report, on request."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

_FETCHED = re.compile(r"<(?:script|link|img)[^>]*(?:src|href)=[\"'](?:https?:)?//", re.IGNORECASE)

needs_bokeh = pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="bokeh is not installed")


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A cluster file of a local cluster with a dashboard."""
    path = tmp_path / "watched.yaml"
    path.write_text("kind: local\nworkers: 1\ndashboard: true\n")
    return path


@needs_bokeh
@pytest.mark.slow
def test_report_and_dashboard(reid_dist, stores, watched: Path, tmp_path: Path) -> None:
    page = tmp_path / "performance.html"
    done = reid_dist("evaluate", *stores, "--cluster", watched, "--performance-report", page)
    assert done.code == 0, done.err
    (link,) = (line for line in done.err.splitlines() if line.startswith("dashboard: "))
    assert re.fullmatch(r"dashboard: http://127\.0\.0\.1:\d+/status", link)
    (warning,) = (line for line in done.err.splitlines() if line.startswith("warning: "))
    assert "at least every user of its machine, can read" in warning
    text = page.read_text()
    assert "sweep" in text
    assert "PRIVATE KEY" not in text
    assert not _FETCHED.search(text), "it must be readable without a network"
    again = reid_dist("evaluate", *stores, "--cluster", watched, "--performance-report", page)
    assert again.code == 2
    assert again.err == f"Error: {page} is there already; choose another --performance-report\n"
    assert page.read_text() == text


@needs_bokeh
def test_a_failed_run_leaves_no_report_and_prints_no_dashboard(reid_dist, stores, tmp_path: Path) -> None:
    page = tmp_path / "performance.html"
    words = ("--workers", 1, "--performance-report", page, "--protocol", "oxford", "--ground-truth", tmp_path / "no")
    refused = reid_dist("evaluate", *stores, *words)
    assert refused.code == 2
    assert refused.err.count("\n") == 1
    assert "dashboard" not in refused.err
    assert not page.exists()


def test_what_has_no_cluster_has_no_report(reid_dist, stores, threads: Path, tmp_path: Path) -> None:
    page = tmp_path / "performance.html"
    for words in (("evaluate",), ("sweep", "--expand", "aqe", "--k", "1"), ("splits",)):
        refused = reid_dist(words[0], *stores, *words[1:], "--cluster", threads, "--performance-report", page)
        assert refused.code == 2
        (line,) = refused.err.splitlines()
        assert line.startswith("Error: --performance-report is of a cluster, and threads of this process have none")
    assert not page.exists()


def test_what_cannot_be_written_is_refused(reid_dist, stores, tmp_path: Path) -> None:
    pytest.importorskip("bokeh")
    page = tmp_path / "missing" / "performance.html"
    refused = reid_dist("evaluate", *stores, "--workers", 1, "--performance-report", page)
    assert refused.code == 2
    assert "No such file or directory; choose another --performance-report" in refused.err.splitlines()[-1]


@pytest.mark.parametrize("requested", ["report", "dashboard"])
def test_bokeh_is_missing(
    reid_dist, stores, watched: Path, tmp_path: Path, requested: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "bokeh" else real(name, *more))
    words = ("--workers", 1, "--performance-report", tmp_path / "p.html") if requested == "report" else (
        "--cluster", watched)  # fmt: skip
    refused = reid_dist("evaluate", *stores, *words)
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert line.endswith("needs bokeh, which is not installed: pip install 'reid-dist[dashboard]'")
