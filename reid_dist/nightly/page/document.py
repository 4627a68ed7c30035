"""Content of the page of a night as text, numbers and charts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from reid_dist.core import formatting
from reid_dist.core.credentials import without_controls
from reid_dist.errors import InputError
from reid_dist.nightly.exit_codes import exit_meaning
from reid_dist.nightly.history.earlier_runs import removed_jobs, streak
from reid_dist.nightly.history.values import (
    BETTER,
    DONE,
    FAILED,
    GATES,
    SAME,
    SKIPPED,
    UNCOMPARED,
    WORSE,
    Entry,
    Run,
)
from reid_dist.nightly.page.causes import KINDS, causes, compared_with
from reid_dist.nightly.page.headline import headline
from reid_dist.nightly.page.outcome import (
    MOVED,
    OUTCOMES,
    SIGNS,
    Sign,
    counted,
    outcome,
    reasons,
    sign_of_finding,
)
from reid_dist.nightly.page.trends import change_list, charts, night_table, past_entries, report_link
from reid_dist.nightly.wording import (
    brief_verdict,
    difference_text,
    estimate_text,
    finding_text,
    jobs,
    shortened,
    tick_day,
    took,
    value_text,
    when,
)
from reid_dist.reports import words
from reid_dist.reports.html import page_environment

_URGENT: Final = (FAILED, MOVED, WORSE, UNCOMPARED)
_GLANCE: Final = 14
_MOST_CARDS: Final = 12
_MOST_OPEN: Final = 4
_MOST_CAUSES: Final = 8
_MOST_LOST: Final = 20
_MOST_METRICS: Final = 3


def render_nights(runs: Sequence[Run], *, suite: str) -> str:
    """Return the page of the last of the runs, oldest first, as HTML; equal runs give equal bytes.

    InputError if there is no run.
    """
    if not runs:
        raise InputError(f"no page of suite {suite}: its history has no run yet; run `reid-dist nightly` first")
    environment = page_environment("reid_dist.nightly")
    return without_controls(environment.get_template("nights.html.j2").render(_content(runs, suite)))


def exit_words(code: int | None) -> str:
    """Return an exit code with its meaning."""
    if code is None:
        return "none: the run did not end"
    return f"{code}: {exit_meaning(code)}"


def _content(runs: Sequence[Run], suite: str) -> dict[str, Any]:
    today, earlier = runs[-1], runs[:-1]
    first = headline(today, earlier)
    counts = counted(today)
    numbered = enumerate(today.entries, start=1)
    ranked = sorted(numbered, key=lambda pair: OUTCOMES.index(outcome(pair[1])))
    urgent = [(number, entry) for number, entry in ranked if outcome(entry) in _URGENT]
    # Newest first, to fit a narrow screen.
    last_nights = runs[::-1][:_GLANCE]
    return {
        "suite": suite,
        "headline": first,
        "sign": SIGNS[first.kind],
        "facts_of_run": _facts(today),
        "counts": [(SIGNS[name], counts[name]) for name in reversed(OUTCOMES) if counts[name]],
        "total": jobs(len(today.entries)),
        "cards": [_card(number, entry, earlier) for number, entry in urgent[:_MOST_CARDS]],
        "more_cards": max(0, len(urgent) - _MOST_CARDS),
        "skipped": [(entry.name, shortened(entry.reason)) for entry in today.entries if entry.state == SKIPPED],
        "removed": removed_jobs(today, earlier),
        "gates": GATES,
        "nights": [(run.number, tick_day(run.started), run.exit_code) for run in last_nights],
        "jobs": [_job(number, entry, runs, place, last_nights) for place, (number, entry) in enumerate(ranked)],
        "legend": [SIGNS[name] for name in OUTCOMES],
        "kinds": list(KINDS.values()),
        "n_earlier": len(earlier),
        "run": today,
    }


def _facts(run: Run) -> list[tuple[str, str]]:
    duration = took(run.started, run.finished)
    facts = [
        ("Exit code", exit_words(run.exit_code)),
        ("Run", f"{run.number:,}"),
        ("Started", when(run.started)),
        ("Took", duration or ("not known" if run.finished else "has not ended")),
        ("Version", run.version),
        ("Host", run.host),
        ("Suite file", shortened(run.suite_digest)),
    ]
    return [(name, text) for name, text in facts if text]


def _card(number: int, entry: Entry, earlier: Sequence[Run]) -> dict[str, Any]:
    """Return the card of an urgent entry: reasons and possible causes."""
    against = compared_with(entry, earlier) if entry.state == DONE else None
    found = [] if against is None else list(causes(against[1], entry))
    return {
        "id": number,
        "name": entry.name,
        "sign": SIGNS[outcome(entry)],
        "reasons": reasons(entry),
        "since": None if against is None else against[0].number,
        "lasting": streak(entry, reversed(earlier)),
        "causes": [(KINDS[cause.kind][1], str(cause)) for cause in found[:_MOST_CAUSES]],
        "more": max(0, len(found) - _MOST_CAUSES),
        "link": report_link(entry),
    }


def _verdicts(entry: Entry) -> list[tuple[str, Sign | None, str]]:
    """Return gate, sign, and the number of nights of a gate that needs more; no sign for one that is switched off."""
    found = [(gate, entry.finding(gate)) for gate in GATES]
    return [
        (gate, None, "")
        if finding is None
        else (
            gate,
            sign_of_finding(finding),
            "" if brief_verdict(finding) == finding.verdict else brief_verdict(finding),
        )
        for gate, finding in found
    ]


def _values(entry: Entry) -> list[tuple[str, str, str]]:
    """Return name, value and change of the first metrics, time and memory; one metric for an unchanged job."""
    # The change since the last good run has priority over that of the trend.
    changes = {change.name: change for finding in reversed(entry.findings) for change in finding.changes}
    most = 1 if outcome(entry) == SAME else _MOST_METRICS
    # Gated metrics first: their change is known.
    ordered = sorted(entry.metrics.items(), key=lambda item: item[0] not in changes)
    rows = [
        (name, value_text(name, estimate.value), difference_text(changes[name]) if name in changes else "")
        for name, estimate in ordered[:most]
    ]
    for name, title, value in (("seconds", "time", entry.seconds), ("peak_bytes", "memory", entry.peak_bytes)):
        if value is not None:
            rows.append((title, value_text(name, value), difference_text(changes[name]) if name in changes else ""))
    return rows


def _job(number: int, entry: Entry, runs: Sequence[Run], place: int, last_nights: Sequence[Run]) -> dict[str, Any]:
    """Return one job in the table of today, among the last nights, and in its section."""
    past, trend = past_entries(entry.name, runs), entry.finding("trend")
    is_moving = trend is not None and trend.verdict in (WORSE, BETTER)
    earlier = [run.entry(entry.name) for run in last_nights]
    return {
        "id": number,
        "entry": entry,
        "done": entry.state == DONE,
        "sign": SIGNS[outcome(entry)],
        "verdicts": _verdicts(entry),
        "shown": _values(entry),
        "reasons": reasons(entry),
        "signs": [None if each is None else SIGNS[outcome(each)] for each in earlier],
        "open": (place < _MOST_OPEN and outcome(entry) in _URGENT) or is_moving,
        "trend": None if trend is None else (sign_of_finding(trend), trend.reason),
        "gates": [
            (finding.gate, sign_of_finding(finding), finding_text(finding), finding.baseline)
            for finding in entry.findings
        ],
        "metrics": _metric_table(entry),
        "lost": _lost(entry),
        "charts": charts(past),
        "changes": change_list(past),
        "nights": night_table(past),
        "timing": _timing(entry),
        "facts": _job_facts(entry),
        "link": report_link(entry),
    }


def _metric_table(entry: Entry) -> list[tuple[str, str, str, str, str]]:
    """Return rows of name, value with interval, value before, change with interval, verdict."""
    accuracy = entry.finding("accuracy")
    rows = []
    for name, estimate in entry.metrics.items():
        change = None if accuracy is None else accuracy.change(name)
        cells = ("-", "-", "-")
        if change is not None:
            sign = SIGNS[change.verdict]
            before = value_text(name, change.baseline)
            cells = (before, difference_text(change, interval=True) or "-", f"{sign.mark} {sign.kind}")
        rows.append((name, estimate_text(name, estimate), *cells))
    return rows


def _lost(entry: Entry) -> list[dict[str, Any]]:
    """Return the queries with the largest losses, by metric."""
    return [
        {
            "metric": change.name,
            "heads": ["query row", "pid", "camid", "before", "after", "change"],
            "rows": [
                [
                    f"{moved.row}",
                    "-" if moved.pid is None else f"{moved.pid}",
                    "-" if moved.camid is None else f"{moved.camid}",
                    value_text(change.name, moved.baseline),
                    value_text(change.name, moved.candidate),
                    difference_text(replace(change, difference=moved.candidate - moved.baseline)),
                ]
                for moved in change.lost[:_MOST_LOST]
            ],
            "n_more": max(0, len(change.lost) - _MOST_LOST),
        }
        for finding in entry.findings
        for change in finding.changes
        if change.lost
    ]


def _timing(entry: Entry) -> list[tuple[str, str, str]]:
    longest = max((seconds for seconds in entry.timing.values() if seconds > 0), default=1.0)
    return [
        (stage, formatting.duration(seconds), f"{100 * max(0.0, seconds) / longest:.1f}%")
        for stage, seconds in entry.timing.items()
    ]


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
