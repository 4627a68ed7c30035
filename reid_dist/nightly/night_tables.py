"""Tables of a night: its jobs, and of one job its metrics, lost queries, changes and earlier nights."""

from __future__ import annotations

import math
import urllib.parse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from markupsafe import Markup

from reid_dist.core.formatting import duration, first_few, shortened, upper_first
from reid_dist.nightly import wording
from reid_dist.nightly.causes import PastEntry
from reid_dist.nightly.history.history_values import Change, Entry, Estimate, Outcome, Run, State
from reid_dist.nightly.outcomes import outcome, ranked, removed_jobs, streak
from reid_dist.reports.tabular.table import (
    Cell,
    Column,
    Ends,
    Kind,
    Note,
    Row,
    Table,
    bare_cell,
    metric_cell,
    metric_column,
)

_MOST_ROWS: Final = 40
_MOST_LOST: Final = 20
_MOST_CHANGES: Final = 20
_MOST_NIGHTS: Final = 30
_LONGEST: Final = 300

_NAMED: Final = (Column("Job", Kind.NAME), Column("Verdict", Kind.TEXT))


# ---------------------------------------------------------------------------------------------------- jobs of a night


def jobs_table(run: Run, earlier: Sequence[Run]) -> Table:
    """Return a line for each job, the most urgent first.

    A column of every metric, time and gate would hide the answer; the page and ``history show`` have them.
    """
    rows: list[Row] = []
    for entry in ranked(run):
        name, value, change = wording.first_metric(entry, earlier)
        seconds = "-" if entry.seconds is None else duration(entry.seconds)
        rows.append([entry.name, _signed(entry), f"{name} {value}".lstrip(), change, seconds])
    return Table(columns=[*_NAMED, *map(Column, ("Tonight", "Change", "Time"))], rows=rows)


def summary_table(run: Run, earlier: Sequence[Run]) -> Table:
    """Return all jobs with another outcome than same, the most urgent first, and notes on the number of the others."""
    changed = [entry for entry in ranked(run) if outcome(entry) != Outcome.SAME]
    removed, n_same = removed_jobs(run, earlier), len(run.entries) - len(changed)
    notes = [f"{name}: {wording.removed_text(last)}" for name, last in [*removed.items()][:_MOST_ROWS]]
    if n_same:
        notes.insert(0, f"{upper_first(wording.jobs(n_same))} {'is' if n_same == 1 else 'are'} the same as before.")
    for n_all, what in ((len(changed), "with another outcome"), (len(removed), "that are no longer in the suite")):
        if n_all > _MOST_ROWS:
            notes.append(f"{wording.jobs(n_all - _MOST_ROWS)} more {what} are on the page.")
    return Table(
        columns=[*_NAMED, Column("Why", Kind.PROSE)],
        rows=[
            [entry.name, _signed(entry), shortened(_why(entry, earlier), _LONGEST)] for entry in changed[:_MOST_ROWS]
        ],
        notes=[*map(Note, notes)],
    )


def outcomes_table(places: Sequence[tuple[int, Entry]], nights: Sequence[Run]) -> Table:
    """Return the outcome of every job in the last nights, for a page on which its section has the number of a job."""
    heads = (
        Markup('{}<span class="run">run {}</span>').format(wording.tick_day(run.started), run.number) for run in nights
    )
    rows: list[Row] = [
        [Cell(with_breaks(entry.name), link=f"#job-{number}"), *(_square(run.entry(entry.name)) for run in nights)]
        for number, entry in places
    ]
    rows.append(["Exit code", *("-" if run.exit_code is None else f"{run.exit_code}" for run in nights)])
    return Table(columns=[Column("Night", Kind.NAME), *(Column(head, Kind.TEXT) for head in heads)], rows=rows)


def with_breaks(name: str) -> Markup:
    """Return a name that breaks after its slashes before it breaks anywhere else."""
    return Markup("/<wbr>").join(name.split("/"))


def _signed(entry: Entry) -> str:
    sign = wording.SIGNS[outcome(entry)]
    return f"{sign.mark} {sign.words}"


def _square(entry: Entry | None) -> Cell:
    sign = (
        wording.Sign("", "\N{NO-BREAK SPACE}", "no part of the run") if entry is None else wording.SIGNS[outcome(entry)]
    )
    css = f"cell {sign.kind}".strip()
    return Cell(Markup('<abbr class="{}" title="{}">{}</abbr>').format(css, sign.words, sign.mark))


def _why(entry: Entry, earlier: Sequence[Run]) -> str:
    lasting = streak(entry, reversed(earlier))
    # First, since a long reason is shortened.
    parts = [wording.lasting_text(lasting)] if lasting else []
    return "; ".join([*parts, *(f"{gates}: {reason}" if gates else reason for gates, reason in wording.reasons(entry))])


# ------------------------------------------------------------------------------------------------------------- one job


def estimate_cell(name: str, estimate: Estimate) -> Cell:
    """Return a metric with its interval, if known."""
    value = math.nan if estimate.value is None else estimate.value
    return metric_cell(name, value, (estimate.low, estimate.high))


def bare_estimate(name: str, estimate: Estimate | None, *, is_best: bool = False, mark: str = "") -> Cell:
    """Return a metric and its interval for a column whose head has the unit."""
    found = estimate or Estimate(None)
    value = math.nan if found.value is None else found.value
    ends = None if found.low is None or found.high is None else (found.low, found.high)
    return bare_cell(name, value, ends, is_best=is_best, mark=mark)


def change_cell(change: Change) -> Cell:
    """Return the difference of a change with its interval, if known."""
    ends = None
    if change.low is not None and change.high is not None:
        ends = Ends(wording.interval_text(change.name, change.low, change.high), change.low, change.high)
    return Cell(wording.difference_text(change) or "-", change.difference, ends)


def metrics_table(entry: Entry) -> Table:
    """Return the metrics of an entry, and their changes by the gate of accuracy."""
    accuracy = entry.finding("accuracy")
    rows: list[Row] = []
    for name, estimate in entry.metrics.items():
        change = None if accuracy is None else accuracy.change(name)
        tonight = estimate_cell(name, estimate)
        if change is None:
            rows.append([name, "-", tonight, "-", "-", "-"])
            continue
        # Not all changes without a verdict are without a baseline.
        is_uncompared = change.verdict == Outcome.INCOMPARABLE and change.baseline is not None
        sign = wording.SIGNS[Outcome.UNCOMPARED if is_uncompared else change.verdict]
        before = Cell(wording.value_text(name, change.baseline), change.baseline)
        verdict, test = f"{sign.mark} {sign.words}", wording.decider_text(change) or "-"
        rows.append([name, before, tonight, change_cell(change), verdict, test])
    heads = (Column("Before"), Column("Tonight"), Column("Change"))
    return Table(
        columns=[
            *(Column("Metric", Kind.NAME), *heads),
            *(Column("Verdict", Kind.TEXT), Column("Test that decides", Kind.TEXT)),
        ],
        rows=rows,
    )


def lost_tables(entry: Entry) -> Iterator[Table]:
    """Yield the queries with the largest losses, by metric; they lead to the explorer of the entry."""
    for change in (change for finding in entry.findings for change in finding.changes if change.lost):
        files = dict(zip((moved.row for moved in change.lost), change.files, strict=False))
        page = report_link(entry, f"{entry.explorer}/index.html") if entry.explorer else ""
        n_more = len(change.lost) - _MOST_LOST
        yield Table(
            title=f"Queries with the largest loss of {change.name}",
            columns=[
                Column("Query", Kind.NAME), *map(Column, ("pid", "camera", "Before", "Tonight", "Change"))
            ],
            rows=[
                [
                    Cell(files.get(moved.row) or f"row {moved.row}", link=f"{page}#q={moved.row}" if page else ""),
                    *("-" if label is None else f"{label}" for label in (moved.pid, moved.camid)),
                    *(wording.value_text(change.name, value) for value in (moved.baseline, moved.candidate)),
                    wording.difference_text(replace(change, difference=moved.candidate - moved.baseline)),
                ]
                for moved in change.lost[:_MOST_LOST]
            ],
            notes=[Note(f"{n_more} more are in the verdict as JSON.")] if n_more > 0 else [],
        )  # fmt: skip


def changes_table(past: Sequence[PastEntry]) -> Table:
    """Return what changed before each night of a job, oldest first."""
    rows: list[Row] = []
    for each in past:
        for kind, meaning in wording.KINDS.items():
            texts = [wording.cause_text(cause) for cause in each.changes if cause.kind == kind]
            if texts:
                mark = f"{kind.letter} {meaning}"
                rows.append([f"{each.run.number}", wording.when(each.run.started), mark, first_few(texts, 6, "; ")])
    left = len(rows) - _MOST_CHANGES
    return Table(
        title="Changes",
        columns=[
            *(Column("Run", Kind.NAME), Column("Night", Kind.TEXT)),
            *(Column("Mark", Kind.TEXT), Column("What", Kind.PROSE)),
        ],
        rows=rows[-_MOST_CHANGES:],
        notes=[Note(f"{left:,} older changes are left out.")] if left > 0 else [],
    )


def nights_table(past: Sequence[PastEntry], metrics: Sequence[str]) -> Table:
    """Return the last nights of a job, oldest first."""
    present = [(each, each.entry) for each in past if each.entry is not None]
    rows: list[Row] = []
    for each, entry in present[-_MOST_NIGHTS:]:
        sign, link = wording.SIGNS[outcome(entry)], report_link(entry)
        verdict = Markup('<span class="{}">{} {}</span>').format(sign.kind, sign.mark, sign.words)
        if entry.state != State.DONE and entry.reason:
            verdict += Markup(": {}").format(shortened(entry.reason, 160))
        costs = (("seconds", entry.seconds), ("peak_bytes", entry.peak_bytes))
        rows.append(
            [
                *(
                    f"{each.run.number}",
                    wording.when(each.run.started),
                    Cell("report" if link else "", link=link),
                    verdict,
                ),
                each.letters,
                *("-" if value is None else wording.value_text(name, value) for name, value in costs),
                *(bare_estimate(name, entry.metrics.get(name)) for name in metrics),
            ]
        )
    left = len(present) - len(rows)
    texts = (Column(head, Kind.TEXT) for head in ("Night", "Report"))
    numbers = (Column("Time"), Column("Memory"), *map(metric_column, metrics))
    outcomes = (Column("Outcome", Kind.PROSE), Column("Changed", Kind.TEXT))
    return Table(
        title="Nights",
        columns=[Column("Run", Kind.NAME), *texts, *outcomes, *numbers],
        rows=rows,
        notes=[Note(f"{left:,} older nights are in the history.")] if left > 0 else [],
    )


def report_link(entry: Entry, path: str = "") -> str:
    """Return the address of the report of an entry, or of a file, relative to the page; empty if it has none there."""
    path = path or (f"{entry.folder}/{entry.page}" if entry.folder else "")
    if not path or entry.state != State.DONE or path.startswith("/"):
        return ""
    # Quoted and with a leading dot, so that no name of a folder is read as a scheme.
    return f"./{urllib.parse.quote(path)}"
