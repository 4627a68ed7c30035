"""Earlier nights of one job: charts, changes, and a table."""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from reid_dist.nightly.gating.differences import listed
from reid_dist.nightly.history.values import BETTER, DONE, FAILED, SKIPPED, WORSE, Entry, Estimate, Run
from reid_dist.nightly.page.causes import KINDS, Cause, causes
from reid_dist.nightly.page.charts import Point, trend_chart
from reid_dist.nightly.page.outcome import ACCEPTED, MOVED, SIGNS, outcome
from reid_dist.nightly.wording import estimate_text, shortened, tick_day, value_text, when

MOST_NIGHTS: Final = 90
"""Number of nights in a chart."""

MOST_METRICS: Final = 8
"""Number of metric charts of one job."""

_FULL_NIGHTS: Final = 14
_MOST_OLDER: Final = 16
_STRIDE: Final = 7
_MOST_CHANGES: Final = 20
_UNCHANGED: Final = ("same", "undecided", "incomparable")

_COSTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("seconds", "speed", "Time"),
    ("peak_bytes", "memory", "Peak memory"),
)


@dataclass(frozen=True, slots=True)
class PastEntry:
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
        return "".join(letter for kind, (letter, _) in KINDS.items() if kind in kinds)


def past_entries(name: str, runs: Sequence[Run]) -> list[PastEntry]:
    """Return all nights of a job since the first that has it."""
    found: list[PastEntry] = []
    before: Entry | None = None
    for run in runs:
        entry = run.entry(name)
        if entry is None and not found:
            continue
        done = entry is not None and entry.state == DONE
        found.append(PastEntry(run, entry, tuple(causes(before, entry)) if done and before and entry else ()))
        before = entry if done else before
    return found


def charts(past: Sequence[PastEntry]) -> dict[str, Any]:
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


def change_list(past: Sequence[PastEntry]) -> dict[str, Any]:
    """Return the changes, newest first: ``rows`` of run, day, letter, meaning and words, and a ``note``."""
    rows = []
    for each in reversed(past[-MOST_NIGHTS:]):
        for kind, (letter, meaning) in KINDS.items():
            texts = [str(cause) for cause in each.changes if cause.kind == kind]
            if texts:
                row = {"run": each.run.number, "day": when(each.run.started), "letter": letter, "meaning": meaning}
                rows.append(row | {"words": listed(texts)})
    left = len(rows) - _MOST_CHANGES
    return {"rows": rows[:_MOST_CHANGES], "note": f"{left:,} older changes are left out." if left > 0 else ""}


def night_table(past: Sequence[PastEntry]) -> dict[str, Any]:
    """Return the table of nights, newest first; older ones thinned, with a note."""
    present = [each for each in past if each.entry is not None]
    full, older = present[-_FULL_NIGHTS:], present[:-_FULL_NIGHTS]
    kept = [
        each
        for back, each in enumerate(reversed(older), start=1)
        if each.entry is not None and (outcome(each.entry) not in _UNCHANGED or each.letters or back % _STRIDE == 0)
    ][:_MOST_OLDER]
    names = _metric_names(past)[:MOST_METRICS]
    rows = [_row(each.run, each.entry, each.letters, names) for each in [*reversed(full), *kept] if each.entry]
    note = ""
    if older:
        note = (
            f"Of the {len(older):,} nights before run {full[0].run.number}, every {_STRIDE}th is listed, and "
            f"those with a change; {_MOST_OLDER} at the most."
        )
    return {"heads": names, "rows": rows, "note": note}


def report_link(entry: Entry) -> str:
    """Return the address of a report relative to the page; empty if there is none."""
    if entry.state != DONE or not entry.folder or entry.folder.startswith("/"):
        return ""
    # Quoted and with a leading dot, so that no name of a folder is read as a scheme.
    return f"./{urllib.parse.quote(entry.folder.rstrip('/'))}/{entry.page}"


def _row(run: Run, entry: Entry, letters: str, names: Sequence[str]) -> dict[str, Any]:
    done = entry.state == DONE
    return {
        "run": run.number,
        "day": when(run.started),
        "sign": SIGNS[outcome(entry)],
        "values": [estimate_text(name, entry.metrics.get(name)) for name in names],
        "seconds": value_text("seconds", entry.seconds) if done and entry.seconds is not None else "-",
        "peak": value_text("peak_bytes", entry.peak_bytes) if done and entry.peak_bytes is not None else "-",
        "letters": letters,
        "reason": "" if done else shortened(entry.reason, most=160),
        "link": report_link(entry),
    }


def _metric_names(past: Sequence[PastEntry]) -> list[str]:
    """Return names in the order of the newest report, then those of earlier nights alone."""
    entries = [each.entry for each in reversed(past) if each.entry is not None]
    return list(dict.fromkeys(name for entry in entries for name in entry.metrics))


def _points(quantity: str, gate: str, shown: Sequence[PastEntry]) -> list[Point]:
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
