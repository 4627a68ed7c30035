"""Files of a night: page, verdict as JSON, summary in Markdown, figures for dashboards."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, replace
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from reid_dist.core.formatting import shortened, upper_first
from reid_dist.core.json_text import parse_json
from reid_dist.core.regular_files import read_regular
from reid_dist.errors import InputError, RunFailedError, StoreError
from reid_dist.metrics.metric import metric_family
from reid_dist.nightly import wording
from reid_dist.nightly.causes import brief
from reid_dist.nightly.history import History
from reid_dist.nightly.history.export import finding_document
from reid_dist.nightly.history.history_values import Entry, Estimate, Run, State
from reid_dist.nightly.night_tables import summary_table
from reid_dist.nightly.outcomes import outcome, outcome_counts, removed_jobs, streak
from reid_dist.nightly.page.document import render_nights
from reid_dist.reports.documents import plain
from reid_dist.reports.report_files import refuse_uri, write_together
from reid_dist.reports.tabular.markup import markdown, markdown_link, markdown_text
from reid_dist.reports.words import is_share

PAGE: Final = "index.html"
VERDICT: Final = "verdict.json"
SUMMARY: Final = "summary.md"
ACCURACY: Final = "benchmark-accuracy.json"
COST: Final = "benchmark-cost.json"

# Number of nights on the page.
_MOST_NIGHTS: Final = 60


SCHEMA: Final = 1
"""Schema of ``verdict.json``."""

_LONGEST: Final = 300


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
        PAGE: render_nights(runs),
        SUMMARY: summary_markdown(run, runs[:-1]),
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
            f"cannot write the page of run {run.number} to {folder}: {why}; the run is in the history nevertheless"
        ) from error


def _linked(entry: Entry, folder: Path) -> Entry:
    """Remove the folder of a missing report: it was removed, or is beside the page of another --output."""
    is_there = bool(entry.folder) and (folder / entry.folder / entry.page).is_file()
    is_explored = bool(entry.explorer) and (folder / entry.explorer / "index.html").is_file()
    return replace(entry, folder=entry.folder * is_there, explorer=entry.explorer * is_explored)


def _suite_of(folder: Path) -> str:
    """Return the suite whose page is in a directory; empty for none."""
    with contextlib.suppress(OSError, ValueError):
        found = parse_json(read_regular(folder / VERDICT))
        if isinstance(found, dict) and isinstance(found.get("suite"), str):
            return str(found["suite"])
    return ""


def _json(content: object) -> str:
    return json.dumps(content, indent=2, allow_nan=False) + "\n"


# ------------------------------------------------------------------------------------------------ verdict and summary


def verdict_document(run: Run, earlier: Sequence[Run] = ()) -> dict[str, Any]:
    """Return the content of ``verdict.json``: plain values, None for a number that is not finite.

    The earlier runs, oldest first, are for streaks and baselines.
    """
    first = wording.headline(run, earlier)
    names = ("suite", "suite_digest", "started", "finished", "exit_code", "version", "host")
    return {
        "schema": SCHEMA,
        "run": run.number,
        **{name: getattr(run, name) for name in names},
        "headline": upper_first(first.title),
        "summary": first.sentence,
        "counts": outcome_counts(run),
        "entries": [_entry(entry, earlier) for entry in run.entries],
        "removed": [{"name": name, "last_run": last} for name, last in removed_jobs(run, earlier).items()],
    }


def summary_markdown(run: Run, earlier: Sequence[Run] = ()) -> str:
    """Return a summary in GitHub-flavoured Markdown, of bounded length, with a link to the page beside it.

    Earlier runs as for `verdict_document`.
    """
    first = wording.headline(run, earlier)
    facts = [
        f"run {run.number} of {markdown_text(run.suite)}",
        wording.when(run.started),
        wording.took(run.started, run.finished),
    ]
    facts += [f"exit code {run.exit_code}", markdown_link("page", PAGE)]
    lines = [
        f"### {wording.SIGNS[first.kind].mark} {markdown_text(first.title)}",
        "",
        ", ".join(filter(None, facts)),
        "",
    ]
    if first.clauses:
        lines += [
            f"- **{markdown_text(name)}** {markdown_text(shortened(text, _LONGEST))}" for name, text in first.clauses
        ]
        lines.append("")
    return "\n".join([*lines, markdown([summary_table(run, earlier)])])


def benchmark_accuracy(run: Run) -> list[dict[str, Any]]:
    """Return metrics in per cent for github-action-benchmark, tool ``customBiggerIsBetter``."""
    return [
        figure
        for entry in run.entries
        for name, estimate in entry.metrics.items()
        if not _is_error_rate(name)
        for figure in _metric_figure(entry, name, estimate, run)
    ]


def benchmark_cost(run: Run) -> list[dict[str, Any]]:
    """Return times, memory and error rates for github-action-benchmark, tool ``customSmallerIsBetter``."""
    figures = []
    for entry in run.entries:
        if entry.state != State.DONE:
            continue
        for title, unit, value in (("time", "s", entry.seconds), ("peak memory", "bytes", entry.peak_bytes)):
            if value is not None and math.isfinite(value):
                figures.append(_figure(entry, title, unit, value, run))
        for name, estimate in entry.metrics.items():
            if _is_error_rate(name):
                figures += _metric_figure(entry, name, estimate, run)
    return figures


def _is_error_rate(name: str) -> bool:
    family = metric_family(name)
    return family is not None and family.lower_is_better


def _entry(entry: Entry, earlier: Sequence[Run]) -> dict[str, Any]:
    lasting = streak(entry, reversed(earlier))
    names = ("name", "model", "dataset", "job", "labels", "state", "reason", "accepted", "started", "seconds", "timing")
    document = {
        **{name: getattr(entry, name) for name in (*names, "peak_bytes", "reused")},
        "outcome": outcome(entry),
        "regression": entry.is_regression,
        "since": None if lasting is None else lasting.run,
        "findings": [finding_document(finding) for finding in entry.findings],
        "metrics": {name: asdict(estimate) for name, estimate in entry.metrics.items()},
        "digests": {"inputs": entry.input_digest, "job": entry.job_digest, "result": entry.result_digest},
        "report": entry.folder,
    }
    return dict(plain(document))


def _metric_figure(entry: Entry, name: str, estimate: Estimate, run: Run) -> Iterator[dict[str, Any]]:
    """Yield the figure of a metric; nothing if it is undefined or no share."""
    value, low, high = plain(astuple(estimate))
    if entry.state != State.DONE or value is None or not is_share(name):
        return
    # The dashboard shows one number: the wider side of the interval.
    spread = None if low is None or high is None else 100 * max(value - low, high - value)
    yield _figure(entry, name, "%", 100 * value, run, spread)


def _figure(entry: Entry, title: str, unit: str, value: float, run: Run, spread: float | None = None) -> dict[str, Any]:
    extra: Mapping[str, str] = {
        "run": f"{run.number}",
        "outcome": outcome(entry),
        "inputs": brief(entry.input_digest),
        "result": brief(entry.result_digest),
    }
    figure: dict[str, Any] = {"name": f"{entry.name} {title}", "unit": unit, "value": value}
    if spread is not None:
        figure["range"] = f"\N{PLUS-MINUS SIGN} {spread:.2f}"
    return figure | {"extra": "\n".join(f"{name}: {text}" for name, text in extra.items() if text)}
