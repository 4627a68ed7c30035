"""Content of the page of a night as text, numbers and charts.

One line a job, the most urgent first, and behind it what it rests on: findings, causes, lost queries, charts and
earlier nights.  Time runs in one direction: from left to right in charts, from top to bottom in tables.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from reid_dist.core import formatting
from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import shortened
from reid_dist.errors import InputError
from reid_dist.nightly.causes import LETTERS, Cause, brief, causes, compared_with
from reid_dist.nightly.history.history_values import (
    BETTER,
    DONE,
    FAILED,
    SKIPPED,
    WORSE,
    Change,
    Entry,
    Estimate,
    Finding,
    Run,
)
from reid_dist.nightly.outcomes import ACCEPTED, MOVED, OUTCOMES, counted, outcome, ranked, removed_jobs, streak
from reid_dist.nightly.page.trend_charts import Point, sparkline, trend_chart
from reid_dist.nightly.wording import (
    KINDS,
    SIGNS,
    cause_text,
    causes_texts,
    decider_text,
    difference_text,
    estimate_text,
    exit_meaning,
    finding_text,
    first_metric,
    headline,
    jobs,
    lasting_text,
    reasons,
    sign_of_finding,
    tick_day,
    took,
    value_text,
    when,
)
from reid_dist.reports import words
from reid_dist.reports.html import page_environment

MOST_NIGHTS: Final = 90
"""Number of nights in a chart."""

MOST_METRICS: Final = 8
"""Number of metric charts of one job."""

_GLANCE: Final = 14
_MOST_CAUSES: Final = 8
_MOST_LOST: Final = 20
_LISTED: Final = 30
_MOST_CHANGES: Final = 20
_COSTS: Final = (("seconds", "speed", "Time"), ("peak_bytes", "memory", "Peak memory"))


def render_nights(runs: Sequence[Run], *, suite: str) -> str:
    """Return the page of the last of the runs, oldest first, as HTML; equal runs give equal bytes.

    InputError if there is no run.
    """
    if not runs:
        raise InputError(f"no page of suite {suite}: its history has no run yet; run `reid-dist nightly` first")
    environment = page_environment("reid_dist.nightly")
    return without_controls(environment.get_template("nights.html.j2").render(_content(runs, suite)))


def report_link(entry: Entry) -> str:
    """Return the address of a report relative to the page; empty if there is none."""
    return _link(entry, f"{entry.folder}/{entry.page}") if entry.folder else ""


def _content(runs: Sequence[Run], suite: str) -> dict[str, Any]:
    today, earlier = runs[-1], runs[:-1]
    first = headline(today, earlier)
    counts = counted(today)
    numbers = {entry.name: number for number, entry in enumerate(today.entries, start=1)}
    last_nights = runs[-_GLANCE:]
    return {
        "suite": suite,
        "headline": first,
        "sign": SIGNS[first.kind],
        "facts_of_run": _facts(today),
        "counts": [(SIGNS[name], counts[name]) for name in OUTCOMES if counts[name]],
        "total": jobs(len(today.entries)),
        "removed": removed_jobs(today, earlier),
        "nights": [(run.number, tick_day(run.started), run.exit_code) for run in last_nights],
        "jobs": [_job(numbers[entry.name], entry, runs, last_nights) for entry in ranked(today)],
        "legend": [SIGNS[name] for name in OUTCOMES],
        "kinds": [(LETTERS[kind], meaning) for kind, meaning in KINDS.items()],
        "n_earlier": len(earlier),
        "run": today,
    }


def _facts(run: Run) -> list[tuple[str, str]]:
    duration = took(run.started, run.finished)
    code = "none" if run.exit_code is None else run.exit_code
    facts = [
        ("Exit code", f"{code}: {exit_meaning(run.exit_code)}"),
        ("Run", f"{run.number:,}"),
        ("Started", when(run.started)),
        ("Took", duration or ("not known" if run.finished else "has not ended")),
        ("Version", run.version),
        ("Host", run.host),
        ("Suite file", brief(run.suite_digest)),
    ]
    return [(name, text) for name, text in facts if text]


def _job(number: int, entry: Entry, runs: Sequence[Run], last_nights: Sequence[Run]) -> dict[str, Any]:
    """Return one job: its line, its place among the last nights, and its section."""
    earlier, past = runs[:-1], _past_entries(entry.name, runs)
    name, value, change = first_metric(entry, earlier)
    lasting = streak(entry, reversed(earlier))
    nights = [run.entry(entry.name) for run in last_nights]
    return {
        "id": number,
        "entry": entry,
        "sign": SIGNS[outcome(entry)],
        "metric": name,
        "value": value,
        "change": change,
        "line": sparkline(name, [_value(each.entry, name) for each in past[-MOST_NIGHTS:]]),
        "reasons": reasons(entry),
        "lasting": "" if lasting is None else lasting_text(lasting),
        "signs": [None if each is None else SIGNS[outcome(each)] for each in nights],
        "since": _since(entry, earlier),
        "gates": [_gate(finding) for finding in entry.findings],
        "metrics": _metric_table(entry),
        "lost": _lost(entry),
        "charts": _charts(past),
        "changes": _change_list(past),
        "nights": _night_table(past),
        "facts": _job_facts(entry),
        "link": report_link(entry),
    }


def _gate(finding: Finding) -> dict[str, Any]:
    """Return a finding in words, with the end of an output and its address."""
    output = str(finding.facts.get("output", ""))
    return {
        "name": finding.gate,
        "sign": sign_of_finding(finding),
        "reason": finding_text(finding),
        "tail": "\n".join(finding.facts.get("tail", ())),
        "output": f"./{urllib.parse.quote(output)}" if output else "",
    }


def _since(entry: Entry, earlier: Sequence[Run]) -> dict[str, Any] | None:
    """Return what changed since the run that an entry was compared with; None if there is none."""
    against = compared_with(entry, earlier) if entry.state == DONE else None
    if against is None:
        return None
    found = causes_texts(against[1], entry, earlier)
    return {
        "run": against[0].number,
        "causes": [(KINDS[kind], text) for kind, text in found[:_MOST_CAUSES]],
        "more": max(0, len(found) - _MOST_CAUSES),
    }


def _metric_table(entry: Entry) -> list[tuple[str, ...]]:
    """Return rows of name, value with interval, value before, change with interval, verdict, and the test of it."""
    accuracy = entry.finding("accuracy")
    rows: list[tuple[str, ...]] = []
    for name, estimate in entry.metrics.items():
        change = None if accuracy is None else accuracy.change(name)
        cells = ("-", "-", "-", "-")
        if change is not None:
            sign = SIGNS[change.verdict]
            before = value_text(name, change.baseline)
            change_cell = difference_text(change, interval=True) or "-"
            cells = (before, change_cell, f"{sign.mark} {sign.words}", decider_text(change) or "-")
        rows.append((name, estimate_text(name, estimate), *cells))
    return rows


def _lost(entry: Entry) -> list[dict[str, Any]]:
    """Return the queries with the largest losses, by metric."""
    return [_lost_queries(entry, change) for finding in entry.findings for change in finding.changes if change.lost]


def _lost_queries(entry: Entry, change: Change) -> dict[str, Any]:
    files = dict(zip((moved.row for moved in change.lost), change.files, strict=False))
    page = f"{entry.explorer}/index.html"
    return {
        "metric": change.name,
        "rows": [
            {
                "query": files.get(moved.row) or f"row {moved.row}",
                "link": f"{_link(entry, page)}#q={moved.row}" if entry.explorer else "",
                "pid": "-" if moved.pid is None else f"{moved.pid}",
                "camera": "-" if moved.camid is None else f"{moved.camid}",
                "before": value_text(change.name, moved.baseline),
                "after": value_text(change.name, moved.candidate),
                "change": difference_text(replace(change, difference=moved.candidate - moved.baseline)),
            }
            for moved in change.lost[:_MOST_LOST]
        ],
        "n_more": max(0, len(change.lost) - _MOST_LOST),
    }


def _job_facts(entry: Entry) -> list[tuple[str, str]]:
    facts = [
        ("Started", when(entry.started)),
        ("Labels", ", ".join(f"{name} {text}" for name, text in entry.labels.items())),
        ("Machine", ", ".join(f"{name} {text}" for name, text in words.flatten(entry.machine))),
        ("Stages reused", ", ".join(entry.reused) or ("none" if entry.state == DONE else "")),
        ("Queries", formatting.integer(entry.counts.get("n_query")) if "n_query" in entry.counts else ""),
        ("Gallery rows", formatting.integer(entry.counts.get("n_gallery")) if "n_gallery" in entry.counts else ""),
        ("Digest of the inputs", entry.input_digest),
        ("Digest of the job", entry.job_digest),
        ("Digest of the result", entry.result_digest),
    ]
    return [(name, text) for name, text in facts if text]


def _link(entry: Entry, path: str) -> str:
    """Return the address of a file of an entry relative to the page; empty if it has none there."""
    if entry.state != DONE or path.startswith("/"):
        return ""
    # Quoted and with a leading dot, so that no name of a folder is read as a scheme.
    return f"./{urllib.parse.quote(path)}"


# ------------------------------------------------------------------------------------------------------- earlier nights


@dataclass(frozen=True, slots=True)
class _PastEntry:
    """One night of a job, whose entry is None where the run did not have it.

    `changes` are the differences from the last night in which it was done.
    """

    run: Run
    entry: Entry | None
    changes: tuple[Cause, ...]

    @property
    def letters(self) -> str:
        """Letters of the kinds of changes, each once."""
        kinds = {cause.kind for cause in self.changes}
        return "".join(letter for kind, letter in LETTERS.items() if kind in kinds)


def _past_entries(name: str, runs: Sequence[Run]) -> list[_PastEntry]:
    """Return all nights of a job since the first that has it, oldest first."""
    found: list[_PastEntry] = []
    before: Entry | None = None
    for run in runs:
        entry = run.entry(name)
        if entry is None and not found:
            continue
        done = entry is not None and entry.state == DONE
        found.append(_PastEntry(run, entry, tuple(causes(before, entry)) if done and before and entry else ()))
        before = entry if done else before
    return found


def _charts(past: Sequence[_PastEntry]) -> dict[str, Any]:
    """Return ``metrics`` and ``costs``, each a list of charts, and ``notes``."""
    shown, notes = past[-MOST_NIGHTS:], []
    if len(shown) < len(past):
        notes.append(f"Charts show the last {len(shown)} of {len(past):,} nights.")
    names = _metric_names(shown)
    if len(names) > MOST_METRICS:
        notes.append(f"Charts show {MOST_METRICS} of {len(names)} metrics; the reports have all.")
    metrics = [trend_chart(name, name, _points(name, "accuracy", shown)) for name in names[:MOST_METRICS]]
    drawn = [(quantity, title, _points(quantity, gate, shown)) for quantity, gate, title in _COSTS]
    costs = [
        trend_chart(quantity, title, points, bounds=True)
        for quantity, title, points in drawn
        if any(point.value is not None for point in points)
    ]
    return {"metrics": metrics, "costs": costs, "notes": notes}


def _change_list(past: Sequence[_PastEntry]) -> dict[str, Any]:
    """Return the changes, oldest first: ``rows`` of run, day, letter, meaning and words, and a ``note``."""
    rows = []
    for each in past[-MOST_NIGHTS:]:
        for kind, meaning in KINDS.items():
            texts = [cause_text(cause) for cause in each.changes if cause.kind == kind]
            if texts:
                row = {"run": each.run.number, "day": when(each.run.started), "letter": LETTERS[kind]}
                rows.append(row | {"meaning": meaning, "words": formatting.first_few(texts, 6, "; ")})
    left = len(rows) - _MOST_CHANGES
    return {"rows": rows[-_MOST_CHANGES:], "note": f"{left:,} older changes are left out." if left > 0 else ""}


def _night_table(past: Sequence[_PastEntry]) -> dict[str, Any]:
    """Return the table of the last nights, oldest first, with a note on older ones."""
    present = [each for each in past if each.entry is not None]
    names = _metric_names(past)[:MOST_METRICS]
    rows = [_night(each.run, each.entry, each.letters, names) for each in present[-_LISTED:] if each.entry is not None]
    left = len(present) - len(rows)
    return {"heads": names, "rows": rows, "note": f"{left:,} older nights are in the history." if left > 0 else ""}


def _night(run: Run, entry: Entry, letters: str, names: Sequence[str]) -> dict[str, Any]:
    done = entry.state == DONE
    return {
        "run": run.number,
        "day": when(run.started),
        "sign": SIGNS[outcome(entry)],
        "values": [estimate_text(name, entry.metrics.get(name)) for name in names],
        "seconds": value_text("seconds", entry.seconds) if done and entry.seconds is not None else "-",
        "peak": value_text("peak_bytes", entry.peak_bytes) if done and entry.peak_bytes is not None else "-",
        "letters": letters,
        "reason": "" if done else shortened(entry.reason, 160),
        "link": report_link(entry),
    }


def _metric_names(past: Sequence[_PastEntry]) -> list[str]:
    """Return names in the order of the newest report, then those of earlier nights alone."""
    entries = [each.entry for each in reversed(past) if each.entry is not None]
    return list(dict.fromkeys(name for entry in entries for name in entry.metrics))


def _points(quantity: str, gate: str, shown: Sequence[_PastEntry]) -> list[Point]:
    """Return a quantity in all nights, with its interval, or the bounds of its gate in the unit of the quantity."""
    ticks = [tick_day(each.run.started) for each in shown]
    if len(set(ticks)) < len(ticks):
        # A day has several runs.
        ticks = [f"#{each.run.number}" for each in shown]
    return [
        Point(
            name=f"run {each.run.number}, {tick_day(each.run.started)}",
            tick=tick,
            **asdict(Estimate(None) if each.entry is None else _estimate(quantity, gate, each.entry)),
            kind="" if each.entry is None else _kind(each.entry, gate, quantity),
            letters=each.letters,
        )
        for each, tick in zip(shown, ticks, strict=True)
    ]


def _value(entry: Entry | None, name: str) -> float | None:
    return None if entry is None else entry.metrics.get(name, Estimate(None)).value


def _estimate(quantity: str, gate: str, entry: Entry) -> Estimate:
    if gate == "accuracy":
        return entry.metrics.get(quantity, Estimate(None))
    value = getattr(entry, quantity) if entry.state == DONE else None
    finding = entry.finding(gate)
    change = None if finding is None else finding.change(quantity)
    if change is None or change.baseline is None or change.low is None or change.high is None:
        return Estimate(value)
    return Estimate(value, change.baseline * change.low, change.baseline * change.high)


def _kind(entry: Entry, gate: str, name: str) -> str:
    """Return the outcome of one quantity of an entry if it is a change; empty otherwise."""
    if entry.state in (FAILED, SKIPPED):
        return entry.state
    finding = entry.finding(gate)
    change = None if finding is None else finding.change(name)
    if finding is not None and finding.alarm:
        moved = not finding.changes if change is None else change.baseline != change.candidate
        return (ACCEPTED if entry.accepted else MOVED) if moved else ""
    if change is None or change.verdict not in (WORSE, BETTER):
        return ""
    return ACCEPTED if change.verdict == WORSE and entry.accepted else change.verdict
