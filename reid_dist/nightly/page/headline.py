"""What is said first: what changed tonight, whether it is real, and what it may come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reid_dist.nightly.history.streaks import streak
from reid_dist.nightly.history.values import (
    BETTER,
    FAILED,
    INCOMPARABLE,
    SAME,
    SKIPPED,
    UNDECIDED,
    WORSE,
    Change,
    Entry,
    Run,
)
from reid_dist.nightly.page.causes import causes, compared_with, said_causes
from reid_dist.nightly.page.standing import ACCEPTED, MOVED, counted, standing
from reid_dist.nightly.page.wording import changed, jobs, shortened
from reid_dist.reports.words import upper_first

__all__ = ["Headline", "headline", "leading_change"]

_LONGEST_REASON = 240

# What is said of one job, and of several, by standing.
_PHRASES = {
    FAILED: ("failed", "failed"),
    MOVED: ("moved without a cause", "moved without a cause"),
    WORSE: ("is worse", "are worse"),
    SKIPPED: ("was skipped", "were skipped"),
    BETTER: ("is better", "are better"),
    ACCEPTED: ("is worse, and was accepted", "are worse, and were accepted"),
    INCOMPARABLE: ("has nothing to compare with", "have nothing to compare with"),
    UNDECIDED: ("is undecided", "are undecided"),
    SAME: ("is the same as before", "are the same as before"),
}


@dataclass(frozen=True, slots=True)
class Headline:
    """The first words of the page.

    Attributes
    ----------
    kind
        A standing: the one of all jobs that needs a look most.
    title
        How many jobs did what.
    clauses
        Pairs of a job and what is said of it: what changed, whether it is real, and what it may come from.
    n_undecided
        Jobs whose queries exclude neither no change nor one that matters.
    """

    kind: str
    title: str
    clauses: tuple[tuple[str, str], ...]
    n_undecided: int = 0

    @property
    def sentence(self) -> str:
        """The clauses as text."""
        said = " ".join(f"{name} {text}" for name, text in self.clauses)
        if said or not self.n_undecided:
            return said or "No gate found a change."
        undecided = jobs(self.n_undecided)
        return f"No gate found a change, but in {undecided} the noise of the queries may hide one that matters."


def headline(run: Run, earlier: Sequence[Run] = ()) -> Headline:
    """Return the first words on a run.

    Parameters
    ----------
    run
        Tonight's.
    earlier
        The runs before it, in their order; what an entry is compared with is looked up there.
    """
    counts = counted(run)
    kind = next((name for name in (FAILED, MOVED, WORSE, SKIPPED, BETTER) if counts[name]), "")
    if not kind:
        kind = next((name for name in (SAME, UNDECIDED, INCOMPARABLE) if counts[name]), SAME)
    title = upper_first(_title(counts, len(run.entries)))
    return Headline(kind, title, tuple(_clauses(run, earlier)), counts[UNDECIDED])


def leading_change(entry: Entry) -> Change | None:
    """Return the change that an entry is told by: the first that is as its standing, the gates in their order."""
    wanted = BETTER if standing(entry) == BETTER else WORSE
    changes = [change for finding in entry.findings for change in finding.changes]
    found = [change for change in changes if change.verdict == wanted]
    if not found and any(finding.alarm for finding in entry.findings):
        found = [change for change in changes if change.difference and change.baseline != change.candidate]
    return found[0] if found else None


def _title(counts: dict[str, int], n_jobs: int) -> str:
    if not n_jobs:
        return "no job was run"
    # What needs a look, or else what is news; the tally of all standings has the rest.
    told = [name for name in (FAILED, MOVED, WORSE, SKIPPED) if counts[name]]
    told = told or [name for name in (BETTER, ACCEPTED, INCOMPARABLE, UNDECIDED) if counts[name]] or [SAME]
    if counts[told[0]] == n_jobs:
        one, many = _PHRASES[told[0]]
        everyone = {1: "the one job", 2: "both jobs"}.get(n_jobs, f"all {jobs(n_jobs)}")
        return f"{everyone} {one if n_jobs == 1 else many}"
    said = [f"{counts[name]:,} {_PHRASES[name][counts[name] != 1]}" for name in told]
    if len(said) > 1:
        return f"of {jobs(n_jobs)}, {_listed(said)}"
    number, _, phrase = said[0].partition(" ")
    return f"{number} of {jobs(n_jobs)} {phrase}"


def _listed(said: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(said[:-1]), said[-1]]))


def _clauses(run: Run, earlier: Sequence[Run]) -> Iterator[tuple[str, str]]:
    """One clause for each standing that is news: its first entry in full, the others by their number."""
    for name, told in ((FAILED, _left), (MOVED, _moved), (WORSE, _worse), (SKIPPED, _left), (BETTER, _better)):
        found = [entry for entry in run.entries if standing(entry) == name]
        if found:
            others = f"(and {len(found) - 1:,} more) " if len(found) > 1 else ""
            lasting = streak(found[0], reversed(earlier))
            yield found[0].name, f"{others}{told(found[0], earlier)}" + (f"; so {lasting}." if lasting else ".")


def _moved(entry: Entry, earlier: Sequence[Run]) -> str:
    text = "gave another answer for equal inputs and an equal job"
    change = leading_change(entry)
    if change is not None:
        text += f": {changed(change)}"
    return text + _since(entry, earlier, "nothing else that is recorded changed either")


def _worse(entry: Entry, earlier: Sequence[Run]) -> str:
    change = leading_change(entry)
    text = f"is worse{_real(change)}" + (f": {changed(change)}" if change is not None else "")
    return text + _since(entry, earlier, "nothing that is recorded changed")


def _better(entry: Entry, earlier: Sequence[Run]) -> str:
    change = leading_change(entry)
    text = f"is better{_real(change)}" + (f": {changed(change)}" if change is not None else "")
    return text + _since(entry, earlier, "nothing that is recorded changed")


def _left(entry: Entry, earlier: Sequence[Run]) -> str:
    del earlier
    word = "failed" if entry.state == FAILED else "was skipped"
    reason = shortened(entry.reason, most=_LONGEST_REASON).rstrip(".")
    return f"{word}: {reason}" if reason else word


def _real(change: Change | None) -> str:
    """Whether a change is real, as far as its gate can say."""
    if change is None or change.low is None or change.high is None or change.difference is None:
        return ""
    if change.name in ("seconds", "peak_bytes"):
        outside = not change.low <= change.difference <= change.high
        return ", beyond the noise of earlier nights" if outside else ""
    return ", beyond chance" if change.low > 0 or change.high < 0 else ""


def _since(entry: Entry, earlier: Sequence[Run], nothing: str) -> str:
    against = compared_with(entry, earlier)
    if against is None:
        return ""
    run, before = against
    found = causes(before, entry)
    return f"; since run {run.number} " + (f"changed: {said_causes(found)}" if found else nothing)
