"""The files of a night: the page, the verdict for programs, the summary for people, figures for other dashboards."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from reid_dist.history import History
from reid_dist.history.values import Run
from reid_dist.nightly.notices import benchmark_accuracy, benchmark_cost, summary_markdown, verdict_document
from reid_dist.nightly.page import render_nights
from reid_dist.reports.files import write_together

__all__ = ["PAGE", "SUMMARY", "VERDICT", "deliver_night"]

PAGE: Final = "index.html"
VERDICT: Final = "verdict.json"
SUMMARY: Final = "summary.md"
ACCURACY: Final = "benchmark-accuracy.json"
COST: Final = "benchmark-cost.json"

# Nights on the page; the history has all of them.
_MOST_NIGHTS: Final = 60


def deliver_night(run: Run, history: History, folder: Path) -> dict[str, Any]:
    """Write the files of a night that is finished, and return the content of ``verdict.json``.

    Parameters
    ----------
    run
        The night.
    history
        With the nights before it.
    folder
        Where the files go, in place of those of the night before.

    Raises
    ------
    StoreError
        If they cannot be written.
    """
    runs = [each for each in history.runs(suite=run.suite, last=_MOST_NIGHTS) if each.number <= run.number]
    verdict = verdict_document(run, runs[:-1])
    contents = {
        PAGE: render_nights(runs, suite=run.suite),
        SUMMARY: summary_markdown(run, PAGE, runs[:-1]),
        ACCURACY: _json(benchmark_accuracy(run)),
        COST: _json(benchmark_cost(run)),
        VERDICT: _json(verdict),
    }
    # "replace": a path that is not UTF-8 may stand in a text; it is shown there, never read back.
    write_together(folder, {name: partial(_write, text.encode("utf-8", "replace")) for name, text in contents.items()})
    return verdict


def _json(content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
