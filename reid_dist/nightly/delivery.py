"""The files of a night: the page, the verdict for programs, the summary for people, figures for other dashboards."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Final

from reid_dist.errors import InputError, RunFailedError, StoreError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.values import Entry, Run
from reid_dist.nightly.notices import benchmark_accuracy, benchmark_cost, summary_markdown, verdict_document
from reid_dist.nightly.page import render_nights
from reid_dist.reports.files import refuse_uri, write_together

__all__ = ["PAGE", "SUMMARY", "VERDICT", "deliver_night", "recent_runs", "refuse_folder", "verdict_json"]

PAGE: Final = "index.html"
VERDICT: Final = "verdict.json"
SUMMARY: Final = "summary.md"
ACCURACY: Final = "benchmark-accuracy.json"
COST: Final = "benchmark-cost.json"

# Nights on the page; the history has all of them.
_MOST_NIGHTS: Final = 60


def refuse_folder(folder: Path, suite: str) -> Path:
    """Refuse a directory that the page of a night could not be written to, before the night begins; return it.

    Raises
    ------
    InputError
        If it holds the page of another suite, or is no local directory.
    StoreError
        If nothing can be written there.
    """
    refuse_uri(folder)
    above = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    if not above.is_dir():
        raise StoreError(f"cannot write the page to {folder}: {above} is no directory; choose another --output")
    if not os.access(above, os.W_OK | os.X_OK):
        raise StoreError(f"cannot write the page to {folder}: {above} is read-only; choose another --output")
    other = _suite_of(folder)
    if other not in ("", suite):
        raise InputError(
            f"{folder} holds the page of suite {other}, which that of suite {suite} would replace; choose another "
            f"--output, or remove {folder / VERDICT} if the suite only has another name now"
        )
    return folder


def recent_runs(run: Run, history: History, folder: Path) -> list[Run]:
    """Return the nights of the page of a run: itself, the last one, and those of its suite before it.

    Parameters
    ----------
    run
        The run.
    history
        Where it is.
    folder
        Directory of the page: of reports that are not there, nothing is told.
    """
    runs = [*history.runs(suite=run.suite, last=_MOST_NIGHTS - 1, before=run.number), run]
    return [replace(each, entries=tuple(_linked(entry, folder) for entry in each.entries)) for each in runs]


def verdict_json(runs: list[Run]) -> str:
    """Return the text of ``verdict.json``, of runs as :func:`recent_runs` gives them."""
    return _json(verdict_document(runs[-1], runs[:-1]))


def deliver_night(runs: list[Run], folder: Path) -> None:
    """Write the files of a night that is finished.

    Parameters
    ----------
    runs
        As :func:`recent_runs` gives them.
    folder
        Where the files go, in place of those of the night before.

    Raises
    ------
    RunFailedError
        If they cannot be written.
    """
    run = runs[-1]
    contents = {
        PAGE: render_nights(runs, suite=run.suite),
        SUMMARY: summary_markdown(run, PAGE, runs[:-1]),
        ACCURACY: _json(benchmark_accuracy(run)),
        COST: _json(benchmark_cost(run)),
        VERDICT: verdict_json(runs),
    }
    # "replace": a path that is not UTF-8 may stand in a text; it is shown there, never read back.
    writers = {name: partial(_write, text.encode("utf-8", "replace")) for name, text in contents.items()}
    try:
        write_together(folder, writers)
    except StoreError as error:
        found = error.__cause__
        why = (found.strerror if isinstance(found, OSError) else None) or str(error)
        raise RunFailedError(
            f"cannot write the page of run {run.number} to {folder}: {why}; the history has the run all the same"
        ) from error


def _linked(entry: Entry, folder: Path) -> Entry:
    """Leave out a report that is not there: it was removed, or written beside the page of another --output."""
    is_there = bool(entry.folder) and (folder / entry.folder / "report.html").is_file()
    return entry if is_there else replace(entry, folder="")


def _suite_of(folder: Path) -> str:
    """Return the suite whose page is in a directory; empty where there is none, or none that can be read."""
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((folder / VERDICT).read_bytes())
        if isinstance(found, dict) and isinstance(found.get("suite"), str):
            return str(found["suite"])
    return ""


def _json(content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
