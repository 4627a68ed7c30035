"""Why an entry stands where it stands."""

from __future__ import annotations

from reid_dist.nightly.history.values import DONE, INCOMPARABLE, SAME, UNDECIDED, Entry
from reid_dist.nightly.page.standing import finding_of, standing
from reid_dist.nightly.page.wording import finding_text
from reid_dist.reports.words import upper_first

__all__ = ["reasons"]


def reasons(entry: Entry) -> list[tuple[str, str]]:
    """Return pairs of the gates, in words, and why; of an entry without news, what accuracy found.

    The gates of what was not done are empty.  An acceptance stands last.
    """
    if entry.state != DONE:
        return [("", entry.reason or "no reason was recorded")]
    news = [finding for finding in entry.findings if finding.verdict != SAME or finding.alarm]
    # A time or a trend of which nothing is known yet is no news beside anything else.
    unknown = {INCOMPARABLE, UNDECIDED} - {standing(entry)}
    news = [finding for finding in news if finding.verdict not in unknown or finding.alarm]
    if standing(entry) == UNDECIDED:
        news = [finding for finding in news if finding.gate == "accuracy"] or news
    if any(finding.is_regression for finding in news):
        news = [finding for finding in news if finding.is_regression]
    accuracy = finding_of(entry, "accuracy")
    told = news or ([accuracy] if accuracy is not None else [*entry.findings])
    if not told:
        return [("", "no gate looks at it")]
    # In the first nights all gates say the same, once.
    gates: dict[str, list[str]] = {}
    for finding in told:
        gates.setdefault(finding_text(finding), []).append(finding.gate)
    found = [(upper_first(", ".join(names)), reason) for reason, names in gates.items()]
    return [*found, ("Accepted", entry.accepted)] if entry.accepted else found
