"""Outcome of an entry in one word, from its state and its gates, and the reasons for it."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from reid_dist.core.formatting import upper_first
from reid_dist.nightly.history.values import (
    BETTER,
    DONE,
    FAILED,
    INCOMPARABLE,
    SAME,
    SKIPPED,
    UNCOMPARED,
    UNDECIDED,
    WORSE,
    Entry,
    Finding,
    Run,
)
from reid_dist.nightly.wording import finding_text

MOVED: Final = "alarm"
"""Numbers moved without a cause."""

ACCEPTED: Final = "accepted"
"""An accepted regression."""


class Sign(NamedTuple):
    """Presentation of an outcome or a verdict without colour: its name, which also names its style, and a mark."""

    kind: str
    mark: str


_MARKS: Final = {
    FAILED: "\N{BALLOT X}",
    MOVED: "!",
    WORSE: "\N{BLACK DOWN-POINTING TRIANGLE}",
    UNCOMPARED: "\N{CIRCLED DIVISION SLASH}",
    SKIPPED: "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}",
    INCOMPARABLE: "?",
    UNDECIDED: "\N{PLUS-MINUS SIGN}",
    ACCEPTED: "\N{CHECK MARK}",
    BETTER: "\N{BLACK UP-POINTING TRIANGLE}",
    SAME: "=",
}
SIGNS: Final = {kind: Sign(kind, mark) for kind, mark in _MARKS.items()}
OUTCOMES: Final = tuple(SIGNS)
"""All outcomes, the most urgent first."""


def outcome(entry: Entry) -> str:
    """Return the outcome of an entry.

    A worse gate outweighs a better one, and an incomparable accuracy a better time.  Incomparable times and memory, as
    in the first nights, do not count.  An incomparable accuracy is *uncompared* where there is a baseline.
    """
    if entry.state in (FAILED, SKIPPED):
        return entry.state
    if any(finding.is_regression for finding in entry.findings):
        if entry.accepted:
            return ACCEPTED
        return MOVED if entry.alarm else WORSE
    if entry.is_uncompared:
        return UNCOMPARED
    accuracy = entry.finding("accuracy")
    if accuracy is not None and accuracy.verdict == INCOMPARABLE:
        return INCOMPARABLE
    verdicts = [finding.verdict for finding in entry.findings]
    # An undecided trend, time or memory does not count beside a known accuracy.
    if BETTER not in verdicts and accuracy is not None:
        return accuracy.verdict
    # Without a gate of accuracy the other gates decide.
    return next((verdict for verdict in (BETTER, SAME, UNDECIDED) if verdict in verdicts), INCOMPARABLE)


def counted(run: Run) -> dict[str, int]:
    """Return the number of entries by outcome, in the order of `OUTCOMES`."""
    found = Counter(map(outcome, run.entries))
    return {name: found[name] for name in OUTCOMES}


def sign_of_finding(finding: Finding) -> Sign:
    """Return the sign of a finding."""
    return SIGNS[MOVED if finding.alarm else finding.verdict]


def reasons(entry: Entry) -> list[tuple[str, str]]:
    """Return pairs of gates, in words, and their reasons; of an entry without changes the reason of accuracy.

    Entries that were not done have no gates.  An acceptance comes last.
    """
    if entry.state != DONE:
        return [("", entry.reason or "no reason was recorded")]
    if entry.is_uncompared and not entry.is_regression:
        return [(upper_first(each.gate), finding_text(each)) for each in entry.findings if each.is_uncompared]
    changed = [finding for finding in entry.findings if finding.verdict != SAME or finding.alarm]
    # A time or a trend without a verdict adds nothing beside one with a verdict.
    unknown = {INCOMPARABLE, UNDECIDED} - {outcome(entry)}
    changed = [finding for finding in changed if finding.verdict not in unknown or finding.alarm]
    if outcome(entry) == UNDECIDED:
        changed = [finding for finding in changed if finding.gate == "accuracy"] or changed
    if any(finding.is_regression for finding in changed):
        changed = [finding for finding in changed if finding.is_regression]
    accuracy = entry.finding("accuracy")
    shown = changed or ([accuracy] if accuracy is not None else [*entry.findings])
    if not shown:
        return [("", "no gate is switched on")]
    # In the first nights all gates have one reason.
    gates: dict[str, list[str]] = {}
    for finding in shown:
        gates.setdefault(finding_text(finding), []).append(finding.gate)
    found = [(upper_first(", ".join(names)), reason) for reason, names in gates.items()]
    return [*found, ("Accepted", entry.accepted)] if entry.accepted else found
