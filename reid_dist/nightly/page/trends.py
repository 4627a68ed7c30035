"""Earlier nights of one job: charts, changes, and a table."""

from __future__ import annotations

import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.formatting import first_few
from reid_dist.nightly.history.values import BETTER, DONE, FAILED, SKIPPED, WORSE, Change, Entry, Estimate, Run
from reid_dist.nightly.page.causes import KINDS, Cause, causes, entry_of
from reid_dist.nightly.page.charts import Night, trend_chart
from reid_dist.nightly.page.outcome import ACCEPTED, MOVED, SIGNS, finding_of, outcome
from reid_dist.nightly.wording import estimate_text, shortened, tick_day, value_text, when

MOST_NIGHTS: Final = 90
"""Number of nights in a chart."""

MOST_METRICS: Final = 8
"""Number of metric charts of one job."""

_FULL_NIGHTS: Final = 14
_MOST_OLDER: Final = 16
_STRIDE: Final = 7
_MOST_CHANGES: Final = 20
_MOST_LISTED: Final = 6
_UNCHANGED: Final = ("same", "undecided", "incomparable")

_COSTS: Final[tuple[tuple[str, str, str], ...]] = (
    ("seconds", "speed", "Time"),
    ("peak_bytes", "memory", "Peak memory"),
)


@dataclass(frozen=True, slots=True)
class PastEntry:
    """One night of a job.

    Attributes
    ----------
    run
        Run of the night.
    entry
        None where the job was not in that run.
    changes
        Differences from the last night in which the job was done.
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
        entry = entry_of(run, name)
        if entry is None and not found:
            continue
        done = entry is not None and entry.state == DONE
        found.append(PastEntry(run, entry, causes(before, entry) if done and before and entry else ()))
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
    ticks = _ticks(shown)
    metrics = [
        trend_chart(name, name, [_metric_night(name, each, tick) for each, tick in zip(shown, ticks, strict=True)])
        for name in names[:MOST_METRICS]
    ]
    costs = [
        trend_chart(
            quantity,
            title,
            [_cost_night(quantity, gate, each, tick) for each, tick in zip(shown, ticks, strict=True)],
            bounds=True,
        )
        for quantity, gate, title in _COSTS
        if any(each.entry is not None and _cost(quantity, each.entry) is not None for each in shown)
    ]
    return {"metrics": metrics, "costs": costs, "notes": notes}


def change_list(past: Sequence[PastEntry]) -> dict[str, Any]:
    """Return the changes, newest first: ``rows`` of run, day, letter, meaning and words, and a ``note``."""
    rows = []
    for each in reversed(past[-MOST_NIGHTS:]):
        for kind, (letter, meaning) in KINDS.items():
            texts = [str(cause) for cause in each.changes if cause.kind == kind]
            if texts:
                text = first_few(texts, _MOST_LISTED, "; ")
                rows.append(
                    {
                        "run": each.run.number,
                        "day": when(each.run.started),
                        "letter": letter,
                        "meaning": meaning,
                        "words": text,
                    }
                )
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
    return f"./{urllib.parse.quote(entry.folder.rstrip('/'))}/report.html"


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


def _ticks(shown: Sequence[PastEntry]) -> list[str]:
    """Return days as tick labels; numbers of runs if a day has several."""
    days = [tick_day(each.run.started) for each in shown]
    return days if len(set(days)) == len(days) else [f"#{each.run.number}" for each in shown]


def _night_name(run: Run) -> str:
    return f"run {run.number}, {tick_day(run.started)}"


def _metric_night(name: str, each: PastEntry, tick: str) -> Night:
    entry = each.entry
    found = Estimate(None) if entry is None else entry.metrics.get(name, Estimate(None))
    return Night(
        name=_night_name(each.run),
        tick=tick,
        value=found.value,
        low=found.low,
        high=found.high,
        kind="" if entry is None else _kind(entry, "accuracy", name),
        letters=each.letters,
    )


def _cost_night(quantity: str, gate: str, each: PastEntry, tick: str) -> Night:
    entry = each.entry
    low, high = (None, None) if entry is None else _bounds(quantity, _changes(entry, gate))
    return Night(
        name=_night_name(each.run),
        tick=tick,
        value=None if entry is None else _cost(quantity, entry),
        low=low,
        high=high,
        kind="" if entry is None else _kind(entry, gate, quantity),
        letters=each.letters,
    )


def _cost(quantity: str, entry: Entry) -> float | None:
    if entry.state != DONE:
        return None
    return entry.seconds if quantity == "seconds" else entry.peak_bytes


def _changes(entry: Entry, gate: str) -> Mapping[str, Change]:
    finding = finding_of(entry, gate)
    return {} if finding is None else {change.name: change for change in finding.changes}


def _bounds(quantity: str, changes: Mapping[str, Change]) -> tuple[float | None, float | None]:
    """Return bounds in the unit of the quantity, from the ratios of the gate."""
    change = changes.get(quantity)
    if change is None or change.baseline is None or change.low is None or change.high is None:
        return None, None
    return change.baseline * change.low, change.baseline * change.high


def _kind(entry: Entry, gate: str, name: str) -> str:
    """Return the outcome of one quantity of an entry if it is a change; empty otherwise."""
    if entry.state in (FAILED, SKIPPED):
        return entry.state
    finding, change = finding_of(entry, gate), _changes(entry, gate).get(name)
    if finding is not None and finding.alarm:
        moved = not finding.changes if change is None else change.baseline != change.candidate
        return (ACCEPTED if entry.accepted else MOVED) if moved else ""
    if change is None or change.verdict not in (WORSE, BETTER):
        return ""
    return ACCEPTED if change.verdict == WORSE and entry.accepted else change.verdict
