"""Headline of a night: what changed, whether it exceeds noise, and possible causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from reid_dist.core import formatting
from reid_dist.core.formatting import first_few, upper_first
from reid_dist.nightly.history.earlier_runs import streak
from reid_dist.nightly.history.values import (
    BETTER,
    FAILED,
    INCOMPARABLE,
    SAME,
    SKIPPED,
    UNCOMPARED,
    UNDECIDED,
    WORSE,
    Change,
    Entry,
    Finding,
    Run,
)
from reid_dist.nightly.page.causes import causes, compared_with, done_before
from reid_dist.nightly.page.outcome import ACCEPTED, MOVED, counted, outcome, reasons
from reid_dist.nightly.wording import change_text, difference_text, jobs, shortened, value_text

_LONGEST_REASON: Final = 240
_MOST_CAUSES: Final = 3

_URGENT: Final = (FAILED, MOVED, WORSE, UNCOMPARED, SKIPPED)

# Phrases for one job and for several, by outcome.
_PHRASES: Final = {
    FAILED: ("failed", "failed"),
    MOVED: ("moved without a cause", "moved without a cause"),
    WORSE: ("is worse", "are worse"),
    UNCOMPARED: ("could not be compared with earlier nights", "could not be compared with earlier nights"),
    SKIPPED: ("was skipped", "were skipped"),
    BETTER: ("is better", "are better"),
    ACCEPTED: ("is worse, and was accepted", "are worse, and were accepted"),
    INCOMPARABLE: ("has no baseline yet", "have no baseline yet"),
    UNDECIDED: ("is undecided", "are undecided"),
    SAME: ("is the same as before", "are the same as before"),
}


@dataclass(frozen=True, slots=True)
class Headline:
    """Headline of a page: the most urgent outcome of all jobs, and the number of jobs by outcome as `title`.

    `clauses` are pairs of a job and its change, with significance and possible causes.
    """

    kind: str
    title: str
    clauses: tuple[tuple[str, str], ...]
    n_undecided: int = 0

    @property
    def sentence(self) -> str:
        """The clauses as text."""
        text = " ".join(f"{name} {clause}" for name, clause in self.clauses)
        if text or not self.n_undecided:
            return text or "No gate found a change."
        undecided = jobs(self.n_undecided)
        return f"No gate found a change, but in {undecided} the noise of the queries may hide one that matters."


def headline(run: Run, earlier: Sequence[Run] = ()) -> Headline:
    """Return the headline of a run; the earlier ones, oldest first, have the baselines of its entries."""
    counts = counted(run)
    order = (*_URGENT, BETTER, SAME, UNDECIDED, INCOMPARABLE)
    kind = next((name for name in order if counts[name]), SAME)
    title = upper_first(_title(counts, len(run.entries)))
    return Headline(kind, title, tuple(_clauses(run, earlier)), counts[UNDECIDED])


def leading_change(entry: Entry) -> tuple[Finding, Change] | None:
    """Return the first change, in the order of the gates, with the verdict of the outcome, and its finding."""
    wanted = BETTER if outcome(entry) == BETTER else WORSE
    changes = [(finding, change) for finding in entry.findings for change in finding.changes]
    found = [(finding, change) for finding, change in changes if finding.verdict == change.verdict == wanted]
    if not found and entry.alarm:
        found = [each for each in changes if each[1].difference and each[1].baseline != each[1].candidate]
    return found[0] if found else None


def _title(counts: dict[str, int], n_jobs: int) -> str:
    if not n_jobs:
        return "no job was run"
    # Urgent outcomes, or else changes; the tally has all outcomes.
    shown = [name for name in _URGENT if counts[name]]
    shown = shown or [name for name in (BETTER, ACCEPTED, INCOMPARABLE, UNDECIDED) if counts[name]] or [SAME]
    if counts[shown[0]] == n_jobs:
        one, many = _PHRASES[shown[0]]
        everyone = {1: "the one job", 2: "both jobs"}.get(n_jobs, f"all {jobs(n_jobs)}")
        return f"{everyone} {one if n_jobs == 1 else many}"
    phrases = [_PHRASES[name][counts[name] != 1] for name in shown]
    if len(shown) == 1:
        return f"{counts[shown[0]]:,} of {jobs(n_jobs)} {phrases[0]}"
    parts = [f"{counts[name]:,} {phrase}" for name, phrase in zip(shown, phrases, strict=True)]
    return f"of {jobs(n_jobs)}, {', '.join(parts[:-1])} and {parts[-1]}"


def _clauses(run: Run, earlier: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """Yield one clause per outcome that is a change: its first entry in full, the others by their number."""
    for name in (*_URGENT, BETTER):
        found = [entry for entry in run.entries if outcome(entry) == name]
        if found:
            others = f"(and {len(found) - 1:,} more) " if len(found) > 1 else ""
            lasting = streak(found[0], reversed(earlier))
            text = _clause(found[0], name, earlier)
            yield found[0].name, f"{others}{text}" + (f"; so {lasting}." if lasting else ".")


def _clause(entry: Entry, kind: str, earlier: Sequence[Run]) -> str:
    if kind in (FAILED, SKIPPED):
        reason = shortened(entry.reason, most=_LONGEST_REASON).rstrip(".")
        phrase = _PHRASES[kind][0]
        return f"{phrase}: {reason}" if reason else phrase
    if kind == UNCOMPARED:
        ((_, reason),) = reasons(entry)
        return f"{_PHRASES[kind][0]}: {shortened(reason, most=_LONGEST_REASON)}"
    finding, change = leading_change(entry) or (None, None)
    if finding is not None and finding.gate == "trend" and change is not None and kind != MOVED:
        return _trend_clause(entry, finding, change, earlier)
    if kind == MOVED:
        text, nothing = "gave another result for equal inputs and an equal job", "nothing else that is recorded changed"
    else:
        text, nothing = f"is {kind}{_significance(change)}", "nothing that is recorded changed"
    text += f": {change_text(change)}" if change is not None else ""
    against = compared_with(entry, earlier)
    if against is None:
        return text
    run, before = against
    found = [str(cause) for cause in causes(before, entry)]
    changed = f"changed: {first_few(found, _MOST_CAUSES)}" if found else nothing
    return f"{text}; since run {run.number} {changed}"


def _trend_clause(entry: Entry, finding: Finding, change: Change, earlier: Sequence[Run]) -> str:
    """Describe a change of the fitted line apart from that of one night, which its ends are no values of.

    What changed since the last run is no cause of it.
    """
    before = done_before(entry, earlier)
    n_nights = 1 + sum(run.number >= (finding.baseline or 0) for run, _ in before)
    moves = "rising" if (change.difference or 0.0) > 0 else "falling"
    text = f"is {moves} over {formatting.counted(n_nights, 'night')}: {change.name} by about {difference_text(change)} "
    text += f"along the fitted line; tonight {value_text(change.name, _value(entry, change.name))}"
    if not before:
        return text
    run, last = before[-1]
    value, earlier_value = _value(entry, change.name), _value(last, change.name)
    if value is None or earlier_value is None:
        return text
    since_last = difference_text(replace(change, difference=value - earlier_value))
    return f"{text} ({since_last} against run {run.number})"


def _value(entry: Entry, name: str) -> float | None:
    return entry.metrics[name].value if name in entry.metrics else None


def _significance(change: Change | None) -> str:
    """Return whether a change exceeds noise, as far as its gate found out."""
    if change is None or change.low is None or change.high is None or change.difference is None:
        return ""
    if change.name in ("seconds", "peak_bytes"):
        outside = not change.low <= change.difference <= change.high
        return ", beyond the noise of earlier nights" if outside else ""
    return ", beyond chance" if change.low > 0 or change.high < 0 else ""
