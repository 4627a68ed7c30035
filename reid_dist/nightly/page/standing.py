"""Where an entry stands, in one word: its state, or what its gates come to together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from reid_dist.nightly.history.values import (
    BETTER,
    FAILED,
    INCOMPARABLE,
    SAME,
    SKIPPED,
    UNDECIDED,
    WORSE,
    Entry,
    Finding,
    Run,
)

__all__ = ["ACCEPTED", "MOVED", "SIGNS", "STANDINGS", "Sign", "counted", "finding_of", "sign_of_finding", "standing"]

MOVED: Final = "alarm"
"""The numbers moved without a cause."""

ACCEPTED: Final = "accepted"
"""A regression that somebody accepted."""

STANDINGS: Final = (FAILED, MOVED, WORSE, SKIPPED, INCOMPARABLE, UNDECIDED, ACCEPTED, BETTER, SAME)
"""Every standing, the one that needs a look most first."""


@dataclass(frozen=True, slots=True)
class Sign:
    """How a standing or a verdict is shown without colour.

    Attributes
    ----------
    kind
        A standing: names the style.
    mark
        One character.
    word
        What always stands beside it.
    """

    kind: str
    mark: str
    word: str


SIGNS: Final[Mapping[str, Sign]] = MappingProxyType(
    {
        FAILED: Sign(FAILED, "\N{BALLOT X}", "failed"),
        MOVED: Sign(MOVED, "!", "alarm"),
        WORSE: Sign(WORSE, "\N{BLACK DOWN-POINTING TRIANGLE}", "worse"),
        SKIPPED: Sign(SKIPPED, "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}", "skipped"),
        INCOMPARABLE: Sign(INCOMPARABLE, "?", "incomparable"),
        UNDECIDED: Sign(UNDECIDED, "\N{PLUS-MINUS SIGN}", "undecided"),
        ACCEPTED: Sign(ACCEPTED, "\N{CHECK MARK}", "accepted"),
        BETTER: Sign(BETTER, "\N{BLACK UP-POINTING TRIANGLE}", "better"),
        SAME: Sign(SAME, "=", "same"),
    }
)
"""By standing."""


def standing(entry: Entry) -> str:
    """Return the one word that an entry comes to.

    A gate that is worse weighs more than one that is better, and accuracy that could not be compared more than a
    better time; time and memory that could not be compared, as in the first nights, are no news.
    """
    if entry.state in (FAILED, SKIPPED):
        return entry.state
    if any(finding.is_regression for finding in entry.findings):
        if entry.accepted:
            return ACCEPTED
        return MOVED if any(finding.alarm for finding in entry.findings) else WORSE
    accuracy = finding_of(entry, "accuracy")
    if accuracy is not None and accuracy.verdict == INCOMPARABLE:
        return INCOMPARABLE
    verdicts = [finding.verdict for finding in entry.findings]
    # A gate of accuracy that is switched off is not asked for every night; the others then speak for the entry.
    if BETTER not in verdicts and accuracy is not None:
        # A trend, a time or a memory that is undecided is no news beside an accuracy that is known.
        return accuracy.verdict
    return next((verdict for verdict in (BETTER, SAME, UNDECIDED) if verdict in verdicts), INCOMPARABLE)


def counted(run: Run) -> dict[str, int]:
    """Return how many entries of a run have each standing; all standings are there, in their order."""
    found = Counter(map(standing, run.entries))
    return {name: found[name] for name in STANDINGS}


def finding_of(entry: Entry, gate: str) -> Finding | None:
    """Return what a gate found; None where it was not asked."""
    return next((finding for finding in entry.findings if finding.gate == gate), None)


def sign_of_finding(finding: Finding) -> Sign:
    """Return the sign of what one gate found."""
    return SIGNS[MOVED if finding.alarm else finding.verdict]
