"""Content of the page of a night as text, numbers and charts.

One line a job, the most urgent first, and behind it what it rests on: findings, causes, lost queries, charts and
earlier nights.  Time runs in one direction: from left to right in charts, from top to bottom in tables.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final

from reid_dist.core import formatting
from reid_dist.core.credentials import without_controls
from reid_dist.nightly import night_tables, wording
from reid_dist.nightly.causes import PastEntry, brief, compared_with, past_entries
from reid_dist.nightly.history.history_values import Entry, Estimate, Finding, Outcome, Run, State
from reid_dist.nightly.outcomes import outcome, outcome_counts, ranked, removed_jobs, streak
from reid_dist.nightly.page.trend_charts import Point, sparkline, trend_chart
from reid_dist.reports import words
from reid_dist.reports.html import page_environment

MOST_METRICS: Final = 8
"""Number of metric charts of one job."""

_GLANCE: Final = 14
_MOST_CAUSES: Final = 8
_COSTS: Final = (("seconds", "speed", "Time"), ("peak_bytes", "memory", "Peak memory"))


def render_nights(runs: Sequence[Run]) -> str:
    """Return the page of the last of the runs, oldest first, as HTML; equal runs give equal bytes."""
    environment = page_environment("reid_dist.nightly")
    return without_controls(environment.get_template("nights.html.j2").render(_content(runs)))


def _content(runs: Sequence[Run]) -> dict[str, Any]:
    today, earlier = runs[-1], runs[:-1]
    first = wording.headline(today, earlier)
    counts = outcome_counts(today)
    numbers = {entry.name: number for number, entry in enumerate(today.entries, start=1)}
    return {
        "headline": first,
        "sign": wording.SIGNS[first.kind],
        "facts_of_run": _facts(today),
        "counts": [(wording.SIGNS[name], counts[name]) for name in Outcome if counts[name]],
        "total": wording.jobs(len(today.entries)),
        "removed": removed_jobs(today, earlier),
        "glance": night_tables.outcomes_table(
            [(numbers[entry.name], entry) for entry in ranked(today)], runs[-_GLANCE:]
        ),
        "jobs": [_job(numbers[entry.name], entry, runs) for entry in ranked(today)],
        "legend": [wording.SIGNS[name] for name in Outcome],
        "kinds": [(kind.letter, meaning) for kind, meaning in wording.KINDS.items()],
        "n_earlier": len(earlier),
        "run": today,
    }


def _facts(run: Run) -> list[tuple[str, str]]:
    code = run.exit_code or 0
    facts = [
        ("Exit code", f"{code}: {wording.exit_meaning(code)}"),
        ("Run", f"{run.number:,}"),
        ("Started", wording.when(run.started)),
        ("Took", wording.took(run.started, run.finished)),
        ("Version", run.version),
        ("Host", run.host),
        ("Suite file", brief(run.suite_digest)),
    ]
    return [(name, text) for name, text in facts if text]


def _job(number: int, entry: Entry, runs: Sequence[Run]) -> dict[str, Any]:
    earlier, past = runs[:-1], past_entries(entry.name, runs)
    name, value, change = wording.first_metric(entry, earlier)
    lasting = streak(entry, reversed(earlier))
    return {
        "id": number,
        "title": night_tables.with_breaks(entry.name),
        "entry": entry,
        "sign": wording.SIGNS[outcome(entry)],
        "metric": name,
        "value": value,
        "change": change,
        "line": sparkline(name, [each.value(name) for each in past]),
        "lasting": "" if lasting is None else wording.lasting_text(lasting),
        "since": _since(entry, earlier),
        "gates": [_gate(finding) for finding in entry.findings],
        "metrics": night_tables.metrics_table(entry),
        "lost": [*night_tables.lost_tables(entry)],
        "charts": _charts(past),
        "changes": night_tables.changes_table(past),
        "nights": night_tables.nights_table(past, _metric_names(past)[:MOST_METRICS]),
        "facts": _job_facts(entry),
        "link": night_tables.report_link(entry),
    }


def _gate(finding: Finding) -> dict[str, Any]:
    output = str(finding.facts.get("output", ""))
    return {
        "name": finding.gate,
        "sign": wording.sign_of_finding(finding),
        "reason": wording.finding_text(finding),
        "tail": "\n".join(finding.facts.get("tail", ())),
        "output": f"./{urllib.parse.quote(output)}" if output else "",
    }


def _since(entry: Entry, earlier: Sequence[Run]) -> dict[str, Any] | None:
    against = compared_with(entry, earlier) if entry.state == State.DONE else None
    if against is None:
        return None
    found = wording.causes_texts(against[1], entry, earlier)
    return {
        "run": against[0].number,
        "causes": [(wording.KINDS[kind], text) for kind, text in found[:_MOST_CAUSES]],
        "more": max(0, len(found) - _MOST_CAUSES),
    }


def _job_facts(entry: Entry) -> list[tuple[str, str]]:
    facts = [
        ("Started", wording.when(entry.started)),
        ("Labels", ", ".join(f"{name} {text}" for name, text in entry.labels.items())),
        ("Machine", ", ".join(f"{name} {text}" for name, text in words.flatten(entry.machine))),
        ("Stages reused", ", ".join(entry.reused) or ("none" if entry.state == State.DONE else "")),
        ("Queries", formatting.integer(entry.counts.get("n_query")) if "n_query" in entry.counts else ""),
        ("Gallery rows", formatting.integer(entry.counts.get("n_gallery")) if "n_gallery" in entry.counts else ""),
        ("Digest of the inputs", entry.input_digest),
        ("Digest of the job", entry.job_digest),
        ("Digest of the result", entry.result_digest),
    ]
    return [(name, text) for name, text in facts if text]


# ------------------------------------------------------------------------------------------------------- earlier nights


def _charts(past: Sequence[PastEntry]) -> dict[str, Any]:
    """Return ``metrics`` and ``costs``, each a list of charts, and a ``note``."""
    names = _metric_names(past)
    left = f"Charts show {MOST_METRICS} of {len(names)} metrics; the reports have all."
    metrics = [trend_chart(name, name, _points(name, "accuracy", past)) for name in names[:MOST_METRICS]]
    drawn = [(quantity, title, _points(quantity, gate, past)) for quantity, gate, title in _COSTS]
    costs = [
        trend_chart(quantity, title, points, bounds=True)
        for quantity, title, points in drawn
        if any(point.value is not None for point in points)
    ]
    return {"metrics": metrics, "costs": costs, "note": left if len(names) > MOST_METRICS else ""}


def _metric_names(past: Sequence[PastEntry]) -> list[str]:
    """Return names in the order of the newest report, then those of earlier nights alone."""
    entries = [each.entry for each in reversed(past) if each.entry is not None]
    return list(dict.fromkeys(name for entry in entries for name in entry.metrics))


def _points(quantity: str, gate: str, shown: Sequence[PastEntry]) -> list[Point]:
    """Return a quantity in all nights, with its interval, or the bounds of its gate in the unit of the quantity."""
    ticks = [wording.tick_day(each.run.started) for each in shown]
    if len(set(ticks)) < len(ticks):
        # A day has several runs.
        ticks = [f"#{each.run.number}" for each in shown]
    return [
        Point(
            name=f"run {each.run.number}, {wording.tick_day(each.run.started)}",
            tick=tick,
            **asdict(Estimate(None) if each.entry is None else _estimate(quantity, gate, each.entry)),
            kind="" if each.entry is None else _kind(each.entry, gate, quantity),
            letters=each.letters,
        )
        for each, tick in zip(shown, ticks, strict=True)
    ]


def _estimate(quantity: str, gate: str, entry: Entry) -> Estimate:
    if gate == "accuracy":
        return entry.metrics.get(quantity, Estimate(None))
    value = getattr(entry, quantity) if entry.state == State.DONE else None
    finding = entry.finding(gate)
    change = None if finding is None else finding.change(quantity)
    if change is None or change.baseline is None or change.low is None or change.high is None:
        return Estimate(value)
    return Estimate(value, change.baseline * change.low, change.baseline * change.high)


def _kind(entry: Entry, gate: str, name: str) -> str:
    """Return the outcome of one quantity of an entry if it is a change; empty otherwise."""
    if entry.state in (State.FAILED, State.SKIPPED):
        return entry.state
    finding = entry.finding(gate)
    change = None if finding is None else finding.change(name)
    if finding is not None and finding.alarm:
        moved = not finding.changes if change is None else change.baseline != change.candidate
        return (Outcome.ACCEPTED if entry.accepted else Outcome.MOVED) if moved else ""
    if change is None or change.verdict not in (Outcome.WORSE, Outcome.BETTER):
        return ""
    return Outcome.ACCEPTED if change.verdict == Outcome.WORSE and entry.accepted else change.verdict
