"""Tables of a history on the console."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.text import Text

from reid_dist.core.formatting import byte_size, duration
from reid_dist.errors import UnknownNameError
from reid_dist.metrics.metric import headline_metrics, reported_name
from reid_dist.nightly.history.history_values import (
    DONE,
    FINISHED,
    INCOMPARABLE,
    Change,
    Entry,
    Estimate,
    Run,
    run_state,
)
from reid_dist.nightly.outcomes import MOVED, Streak
from reid_dist.nightly.wording import (
    SIGNS,
    brief_verdict,
    decider_text,
    difference_text,
    finding_text,
    lasting_text,
    sign_of_finding,
)
from reid_dist.reports.console import fact_table, print_parts, value_table
from reid_dist.reports.words import interval, metric_value

_USUAL = tuple(headline_metrics()[:2])
_DIGEST_DIGITS = 16


def print_runs(runs: Sequence[Run], metrics: Sequence[str], name: str | None) -> None:
    """Print runs, oldest first, on standard output, one line for each entry.

    The metrics are those of columns, by default mAP and CMC@1; `name` is the common name of all entries, None where
    they differ.
    """
    shown = _shown(runs, metrics)
    suites = {run.suite for run in runs}
    table = value_table()
    if name is None:
        table.add_column("run and its entries", overflow="fold", ratio=3)
    else:
        table.add_column("run", justify="right", no_wrap=True, style="bold")
        table.add_column("started (UTC)", no_wrap=True)
        table.add_column("ended", no_wrap=True)
    for metric in shown:
        table.add_column(Text(metric), justify="right", no_wrap=True, style="cyan")
    table.add_column("verdict", overflow="fold", ratio=2)
    for run in runs:
        head = [str(run.number), run.started[:16].replace("T", " "), _ending(run)]
        if name is None:
            of = [run.suite] if len(suites) > 1 else []
            empty = [] if run.entries else ["no entry"]
            table.add_row(Text("  ".join([*head, *of, *empty]), style="bold"))
            head = []
        for entry in run.entries:
            values = [_value(metric, entry.metrics.get(metric)) for metric in shown]
            table.add_row(*map(Text, [*(head or [f"  {entry.name}"]), *values, _verdict(entry)]))
    print_parts(Text(f"suite {', '.join(sorted(suites))}{'' if name is None else f', entry {name}'}"), table)


def print_run(run: Run, metrics: Sequence[str], lasting: Mapping[str, Streak]) -> None:
    """Print a run in detail on standard output, with some of its metrics, by default all, and streaks by entry."""
    facts = (
        ("run", f"{run.number} of suite {run.suite} ({run.suite_digest[:_DIGEST_DIGITS]})"),
        ("started", run.started),
        ("ended", _ending_in_full(run)),
        ("process", f"{run.pid} on {run.host}, reid-dist {run.version}"),
        ("page", run.folder or "-"),
    )
    chosen = _shown([run], metrics) if metrics else None
    parts: list[RenderableType] = [fact_table(facts)]
    for entry in run.entries:
        parts += [Text(f"\n{entry.name}", style="bold"), *_entry(entry, chosen, lasting.get(entry.name))]
    if not run.entries:
        parts.append(Text("\nno entry" if run.finished else "\nno entry yet"))
    print_parts(*parts)


def _entry(entry: Entry, chosen: Sequence[str] | None, lasting: Streak | None) -> Iterator[RenderableType]:
    shown = {name: estimate for name, estimate in entry.metrics.items() if chosen is None or name in chosen}
    if shown:
        table = value_table()
        table.add_column("metric", style="bold")
        table.add_column("value", justify="right", no_wrap=True, style="cyan")
        table.add_column("interval", justify="right", no_wrap=True)
        for name, estimate in shown.items():
            ends = interval(name, (estimate.low, estimate.high))
            table.add_row(*map(Text, (name, _value(name, estimate), ends)))
        yield table
    yield from _changes(entry, chosen)
    yield fact_table(_lines(entry, lasting))


def _changes(entry: Entry, chosen: Sequence[str] | None) -> Iterator[RenderableType]:
    """Yield the table of all changes with the verdict on each, and the test that decides on it."""
    rows = [
        (finding.gate, change)
        for finding in entry.findings
        for change in finding.changes
        # Of what was not compared the line of its gate says why.
        if change.verdict != INCOMPARABLE
        and (chosen is None or change.name in chosen or change.name not in entry.metrics)
    ]
    if rows:
        table = value_table()
        table.add_column("gate", no_wrap=True)
        table.add_column("of", style="bold")
        table.add_column("change", justify="right", no_wrap=True)
        table.add_column("verdict", no_wrap=True)
        table.add_column("test that decides", overflow="fold")
        for gate, change in rows:
            table.add_row(*map(Text, (gate, *_change(change))))
        yield table


def _change(change: Change) -> tuple[str, ...]:
    return change.name, difference_text(change) or "-", SIGNS[change.verdict].words, decider_text(change) or "-"


def _lines(entry: Entry, lasting: Streak | None) -> Iterator[tuple[str, str]]:
    if entry.state != DONE:
        yield "state", f"{entry.state}: {entry.reason}"
    if lasting is not None:
        yield "lasting", f"{lasting.trouble} {lasting_text(lasting)}"
    if entry.labels:
        yield "labels", ", ".join(f"{name} {value}" for name, value in entry.labels.items())
    if entry.seconds is not None:
        memory = "" if entry.peak_bytes is None else f", peak memory {byte_size(entry.peak_bytes)}"
        yield "time", f"{duration(entry.seconds)}{memory}"
    if entry.reused:
        yield "reused", ", ".join(entry.reused)
    for finding in entry.findings:
        against = "" if finding.baseline is None else f" [run {finding.baseline}]"
        yield finding.gate, f"{sign_of_finding(finding).words}: {finding_text(finding)}{against}"
    if entry.accepted:
        yield "accepted", entry.accepted
    for what, digest in (("inputs", entry.input_digest), ("job", entry.job_digest), ("result", entry.result_digest)):
        if digest:
            yield what, digest[:_DIGEST_DIGITS]
    if entry.folder:
        yield "report", entry.folder


def _verdict(entry: Entry) -> str:
    """Return the verdicts of an entry as ``accuracy worse; speed, memory same``."""
    if entry.state != DONE:
        return f"{entry.state}: {entry.reason}"
    by_verdict: dict[str, list[str]] = {}
    for finding in entry.findings:
        by_verdict.setdefault(brief_verdict(finding), []).append(finding.gate)
    words = [f"{', '.join(gates)} {verdict}" for verdict, gates in by_verdict.items()]
    if len(by_verdict) == 1:
        words = list(by_verdict)
    words += [SIGNS[MOVED].words] if entry.alarm else []
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


def _value(name: str, estimate: Estimate | None) -> str:
    if estimate is None:
        return "-"
    return metric_value(name, math.nan if estimate.value is None else estimate.value)


def _ending(run: Run) -> str:
    state = run_state(run)
    return f"exit {run.exit_code}" if state == FINISHED else state


def _ending_in_full(run: Run) -> str:
    state = run_state(run)
    if state == FINISHED:
        return f"{run.finished}, exit code {run.exit_code}"
    return f"{state}, last seen {run.seen}"
