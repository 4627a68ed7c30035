"""Tables of the runs of a history: all of them with a row for each entry, or one in detail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from reid_dist.core.formatting import byte_size, duration
from reid_dist.errors import UnknownNameError
from reid_dist.metrics.metric import headline_metrics, reported_name
from reid_dist.nightly import wording
from reid_dist.nightly.history.export import COLUMNS, to_document, to_rows
from reid_dist.nightly.history.history_values import FINISHED, Entry, Finding, Outcome, Run, State, run_state
from reid_dist.nightly.night_tables import bare_estimate, estimate_cell
from reid_dist.nightly.outcomes import Streak
from reid_dist.reports.documents import Result
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Row, Table, metric_column

_USUAL: Final = tuple(headline_metrics()[:2])
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class ShownRuns(Result):
    """Runs of a history, oldest first; `metrics` are those of columns, by default mAP and CMC@1."""

    runs: Sequence[Run]
    metrics: Sequence[str] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the reports as plain Python values."""
        return to_document(self.runs)

    def records(self) -> Sequence[Table]:
        """Return the long table of the export: a row for each metric of each entry."""
        columns = [Column(name, Kind.TEXT if kind is str else Kind.NUMBER) for name, kind in COLUMNS.items()]
        return [Table(columns=columns, rows=[[*map(_plain_cell, row.values())] for row in to_rows(self.runs)])]

    def tables(self) -> Sequence[Table]:
        """Return one table, with a row for each entry; of several names, the entries of a run are below it."""
        shown = _shown(self.runs, self.metrics)
        suites = sorted({run.suite for run in self.runs})
        names = {entry.name for run in self.runs for entry in run.entries}
        heads = ("run", "started (UTC)", "ended") if len(names) == 1 else ("run and its entries",)
        rows: list[Row] = []
        for run in self.runs:
            head = [str(run.number), run.started[:16].replace("T", " "), _ending(run)]
            if len(names) != 1:
                of = [run.suite] if len(suites) > 1 else []
                empty = [] if run.entries else ["no entry"]
                rows.append(["  ".join([*head, *of, *empty]), *("" for _ in shown), ""])
            for entry in run.entries:
                values = (bare_estimate(name, entry.metrics.get(name))._replace(ends=None) for name in shown)
                rows.append([*(head if len(names) == 1 else [entry.name]), *values, entry_verdict(entry)])
        return [
            Table(
                title=f"suite {', '.join(suites)}" + (f", entry {next(iter(names))}" if len(names) == 1 else ""),
                columns=[
                    *(Column(head, Kind.NAME) for head in heads),
                    *map(metric_column, shown),
                    Column("verdict", Kind.TEXT),
                ],
                rows=rows,
            )
        ]


@dataclass(frozen=True, slots=True)
class ShownRun(Result):
    """One run in detail, with some of its metrics, by default all, and streaks by entry."""

    run: Run
    metrics: Sequence[str] = ()
    lasting: Mapping[str, Streak] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the reports as plain Python values."""
        return to_document([self.run])

    def records(self) -> Sequence[Table]:
        """Return the long table of the export."""
        return ShownRuns([self.run]).records()

    def tables(self) -> Sequence[Table]:
        """Return facts of the run, and of each entry its metrics and all changes with the verdicts on them."""
        run = self.run
        chosen = _shown([run], self.metrics) if self.metrics else None
        facts = {
            "run": f"{run.number} of suite {run.suite} ({run.suite_digest[:_DIGEST_DIGITS]})",
            "started": run.started,
            "ended": _ending_in_full(run),
            "process": f"{run.pid} on {run.host}, reid-dist {run.version}",
            "page": run.folder or "-",
        }
        if not run.entries:
            facts["entries"] = "none" if run.finished else "none yet"
        title = f"Run {run.number} of suite {run.suite}"
        head = Table(title=title, columns=(), rows=(), notes=[Note(text, name) for name, text in facts.items()])
        return [head, *(table for entry in run.entries for table in self._entry(entry, chosen))]

    def _entry(self, entry: Entry, chosen: Sequence[str] | None) -> Iterator[Table]:
        """Yield the metrics of an entry, and all changes with the verdict on each and the test that decides on it."""
        shown = {name: estimate for name, estimate in entry.metrics.items() if chosen is None or name in chosen}
        changes = [
            [
                *(finding.gate, change.name, wording.difference_text(change) or "-"),
                *(wording.SIGNS[change.verdict].words, wording.decider_text(change) or "-"),
            ]
            for finding in entry.findings
            for change in finding.changes
            # Of what was not compared the line of its gate says why.
            if change.verdict != Outcome.INCOMPARABLE
            and (chosen is None or change.name in chosen or change.name not in entry.metrics)
        ]
        metrics = Table(
            title=entry.name,
            columns=[Column("metric", Kind.NAME), Column("value", Kind.RESULT)],
            rows=[[name, estimate_cell(name, estimate)] for name, estimate in shown.items()],
        )
        heads = (Column("change"), Column("verdict", Kind.TEXT), Column("test that decides", Kind.PROSE))
        yield metrics
        yield Table(
            columns=[Column("gate", Kind.TEXT), Column("of", Kind.NAME), *heads],
            rows=changes,
            notes=[Note(text, name) for name, text in _facts(entry, self.lasting.get(entry.name))],
        )


def _facts(entry: Entry, lasting: Streak | None) -> Iterator[tuple[str, str]]:
    if entry.state != State.DONE:
        yield "state", f"{entry.state}: {entry.reason}"
    if lasting is not None:
        yield "lasting", f"{lasting.trouble} {wording.lasting_text(lasting)}"
    if entry.labels:
        yield "labels", ", ".join(f"{name} {value}" for name, value in entry.labels.items())
    if entry.seconds is not None:
        memory = "" if entry.peak_bytes is None else f", peak memory {byte_size(entry.peak_bytes)}"
        yield "time", f"{duration(entry.seconds)}{memory}"
    if entry.reused:
        yield "reused", ", ".join(entry.reused)
    for finding in entry.findings:
        against = "" if finding.baseline is None else f" [run {finding.baseline}]"
        yield finding.gate, f"{wording.sign_of_finding(finding).words}: {wording.finding_text(finding)}{against}"
    if entry.accepted:
        yield "accepted", entry.accepted
    for what, digest in (("inputs", entry.input_digest), ("job", entry.job_digest), ("result", entry.result_digest)):
        if digest:
            yield what, digest[:_DIGEST_DIGITS]
    if entry.folder:
        yield "report", entry.folder


def entry_verdict(entry: Entry) -> str:
    """Return the verdicts of an entry as ``accuracy worse; speed, memory same``."""
    if entry.state != State.DONE:
        return f"{entry.state}: {entry.reason}"
    by_verdict: dict[str, list[Finding]] = {}
    for finding in entry.findings:
        by_verdict.setdefault(wording.brief_verdict(finding), []).append(finding)
    words = [
        f"{', '.join(each.gate for each in found)} {wording.brief_verdict(found[0], len(found))}"
        for found in by_verdict.values()
    ]
    if len(by_verdict) == 1:
        words = list(by_verdict)
    words += [wording.SIGNS[Outcome.MOVED].words] if entry.alarm else []
    if entry.accepted:
        words.append(f"accepted: {entry.accepted}")
    return "; ".join(words) or "no verdict"


def _shown(runs: Sequence[Run], requested: Sequence[str]) -> list[str]:
    """Return the metrics of a table, by default mAP and CMC@1, or the first two of the entries."""
    known = dict.fromkeys(name for run in runs for entry in run.entries for name in entry.metrics)
    names = [*dict.fromkeys(map(reported_name, requested))]
    for name in names:
        if name not in known:
            raise UnknownNameError(f"no entry has a metric {name!r}; there are {', '.join(known) or 'none'}")
    return names or [name for name in _USUAL if name in known] or list(known)[:2]


def _plain_cell(value: object) -> Cell:
    if isinstance(value, int | float):
        return Cell(str(value), value)
    return Cell("" if value is None else str(value))


def _ending(run: Run) -> str:
    state = run_state(run)
    return f"exit {run.exit_code}" if state == FINISHED else state


def _ending_in_full(run: Run) -> str:
    state = run_state(run)
    if state == FINISHED:
        return f"{run.finished}, exit code {run.exit_code}"
    return f"{state}, last seen {run.seen}"
