"""Files of a night: page, verdict as JSON, summary in Markdown, figures for dashboards."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from operator import methodcaller
from pathlib import Path
from typing import Final

from reid_dist.core.json_text import parse_json
from reid_dist.core.regular_files import read_regular
from reid_dist.errors import InputError, RunFailedError, StoreError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.values import Entry, Run
from reid_dist.nightly.notices import benchmark_accuracy, benchmark_cost, summary_markdown, verdict_document
from reid_dist.nightly.page import render_nights
from reid_dist.reports.files import refuse_uri, write_together

PAGE: Final = "index.html"
VERDICT: Final = "verdict.json"
SUMMARY: Final = "summary.md"
ACCURACY: Final = "benchmark-accuracy.json"
COST: Final = "benchmark-cost.json"

# Number of nights on the page.
_MOST_NIGHTS: Final = 60


def refuse_folder(folder: Path, suite: str) -> Path:
    """Check before a night that its page can be written to a directory; return the directory.

    InputError if it holds the page of another suite, or is not local; StoreError if it cannot be written to.
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
    """Return the runs of a page, oldest first: the last of its suite, and the run itself.

    Entries whose report is not in the directory of the page have no folder.
    """
    runs = [*history.runs(suite=run.suite, last=_MOST_NIGHTS - 1, before=run.number), run]
    return [replace(each, entries=tuple(_linked(entry, folder) for entry in each.entries)) for each in runs]


def verdict_json(runs: list[Run]) -> str:
    """Return the text of ``verdict.json`` for runs of :func:`recent_runs`."""
    return _json(verdict_document(runs[-1], runs[:-1]))


def deliver_night(runs: list[Run], folder: Path) -> None:
    """Write the files of a finished night, of the runs of :func:`recent_runs`, in place of those of the night before.

    RunFailedError if they cannot be written.
    """
    run = runs[-1]
    contents = {
        PAGE: render_nights(runs, suite=run.suite),
        SUMMARY: summary_markdown(run, PAGE, runs[:-1]),
        ACCURACY: _json(benchmark_accuracy(run)),
        COST: _json(benchmark_cost(run)),
        VERDICT: verdict_json(runs),
    }
    # "replace": a text may contain a path that is not UTF-8; it is not read back.
    writers = {name: methodcaller("write", text.encode("utf-8", "replace")) for name, text in contents.items()}
    try:
        write_together(folder, writers)
    except StoreError as error:
        found = error.__cause__
        why = (found.strerror if isinstance(found, OSError) else None) or str(error)
        raise RunFailedError(
            f"cannot write the page of run {run.number} to {folder}: {why}; the history has the run all the same"
        ) from error


def _linked(entry: Entry, folder: Path) -> Entry:
    """Remove the folder of a missing report: it was removed, or is beside the page of another --output."""
    is_there = bool(entry.folder) and (folder / entry.folder / entry.page).is_file()
    return entry if is_there else replace(entry, folder="")


def _suite_of(folder: Path) -> str:
    """Return the suite whose page is in a directory; empty for none."""
    with contextlib.suppress(OSError, ValueError):
        found = parse_json(read_regular(folder / VERDICT))
        if isinstance(found, dict) and isinstance(found.get("suite"), str):
            return str(found["suite"])
    return ""


def _json(content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"
