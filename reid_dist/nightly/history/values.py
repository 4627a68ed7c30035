"""What a history consists of: a run of a suite, its jobs, their values, and what the gates found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reid_dist.reports.verdicts import BETTER, SAME, UNDECIDED, WORSE

__all__ = [
    "ALARM",
    "BETTER",
    "DONE",
    "FAILED",
    "GATES",
    "INCOMPARABLE",
    "SAME",
    "SKIPPED",
    "UNDECIDED",
    "VERDICTS",
    "WORSE",
    "Change",
    "Entry",
    "Estimate",
    "Finding",
    "Moved",
    "Past",
    "Run",
    "reports_folder",
]

DONE: Final = "done"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
"""States of an entry; skipped is what a time budget left out."""

INCOMPARABLE: Final = "incomparable"
"""Verdict of a gate that has nothing to compare with; the others are those of :mod:`reid_dist.reports.verdicts`."""

VERDICTS: Final = (BETTER, SAME, WORSE, UNDECIDED, INCOMPARABLE)
"""Verdicts of a gate."""

GATES: Final = ("accuracy", "trend", "speed", "memory")
"""Names of the gates, in the order in which they are shown."""

ALARM: Final = "numbers moved without a cause"
"""Equal inputs and an equal job gave another answer."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric and its confidence interval, as shares; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """A query whose value moved.

    Attributes
    ----------
    row, pid, camid
        The query; pid or camid is None where it is not known.
    baseline, candidate
        Its value before and after.
    """

    row: int
    pid: int | None
    camid: int | None
    baseline: float
    candidate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """One quantity against what it was before.

    Attributes
    ----------
    name
        Of the metric, or ``seconds`` or ``peak_bytes``.
    baseline, candidate
        Before and now; None where undefined.
    difference
        Candidate - baseline, over the same queries; for time and memory candidate / baseline.
    low, high
        Of a metric the interval of the difference that the gate used; of time and memory the ratios beyond which
        the verdict is better or worse.
    verdict
        As of a gate.
    lost
        Queries that lost most, the worst first.
    """

    name: str
    baseline: float | None
    candidate: float | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: str = INCOMPARABLE
    lost: tuple[Moved, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a gate found of one entry.

    Attributes
    ----------
    gate
        One of `GATES`.
    verdict
        One of `VERDICTS`.
    reason
        Why, in one sentence with the figures.
    alarm
        `ALARM`, or empty.
    baseline
        Number of the run that was compared with; None where there was none, or several.
    changes
        By metric, or the one of time or memory.
    """

    gate: str
    verdict: str
    reason: str
    alarm: str = ""
    baseline: int | None = None
    changes: tuple[Change, ...] = ()

    @property
    def is_regression(self) -> bool:
        """Whether somebody should look."""
        return self.verdict == WORSE or bool(self.alarm)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One job of one run: a model, on a data set, evaluated in one way.

    Attributes
    ----------
    model, dataset, job
        Names in the suite.
    labels
        What the suite says of the model, the data set and the job, for people.
    state
        ``done``, ``failed`` or ``skipped``.
    reason
        Why it failed or was skipped, in one line; empty when done.
    started
        UTC, ISO 8601 with seconds and ``Z``.
    seconds
        From opening its inputs to its report; None where it was not done.
    timing
        Seconds by stage.
    peak_bytes
        Sum over all processes of the largest memory each held during the job; None where it is not known.
    reused
        Kinds of stages that earlier jobs of the run left for this one.  Times of entries that reused different stages
        do not compare.
    machine
        What times depend on beside the job: CPU, cores, cluster.
    metrics
        By name, in the order of the report.
    counts, conventions, inputs, environment
        As the report has them; `conventions` holds protocol, distance, expand, rerank, options and definitions in full.
    input_digest
        Over the content of all inputs; empty where it was not done.
    job_digest
        Over `conventions`; empty where it was not done.
    result_digest
        Of the report; empty where it was not done.
    folder
        Where the report is, relative to the directory of the page; empty for nowhere.
    findings
        What the gates found.
    accepted
        Why somebody accepted what the gates found, and so made it the baseline of later nights; empty if nobody did.
    """

    model: str
    dataset: str
    job: str
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = DONE
    reason: str = ""
    started: str = ""
    seconds: float | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    peak_bytes: int | None = None
    reused: tuple[str, ...] = ()
    machine: Mapping[str, Any] = field(default_factory=dict)
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    conventions: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    input_digest: str = ""
    job_digest: str = ""
    result_digest: str = ""
    folder: str = ""
    findings: tuple[Finding, ...] = ()
    accepted: str = ""

    @property
    def name(self) -> str:
        """``model/dataset/job``, which is one of its kind in a run."""
        return f"{self.model}/{self.dataset}/{self.job}"

    @property
    def is_good(self) -> bool:
        """Whether later nights are compared with it: done, and neither accuracy nor its trend is worse, or accepted."""
        accuracy = [finding for finding in self.findings if finding.gate in ("accuracy", "trend")]
        return self.state == DONE and (bool(self.accepted) or not any(finding.is_regression for finding in accuracy))

    @property
    def question(self) -> tuple[object, ...]:
        """What must be equal in two entries for their accuracy to compare: job, numbers of rows, labels."""
        sizes = [self.counts.get(name) for name in ("n_query", "n_gallery")]
        sides = [self.inputs.get(side) for side in ("query", "gallery")]
        labels = [side.get("labels_digest") if isinstance(side, Mapping) else None for side in sides]
        return (self.job_digest, *sizes, *labels)

    @property
    def is_regression(self) -> bool:
        """Whether a gate found a regression that nobody accepted."""
        return not self.accepted and any(finding.is_regression for finding in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a suite, usually a night.

    Attributes
    ----------
    number
        In its history, from 1; never used twice.
    suite
        Its name.
    suite_digest
        Over the content of the suite file.
    started, finished
        UTC, ISO 8601 with seconds and ``Z``; `finished` is None while it runs, and for ever if it was killed.
    exit_code
        What the command ended with; None if it did not.
    host, pid
        The process that ran it.
    version
        Of the package.
    folder
        Directory of the page and of the reports.
    entries
        In the order of the suite.
    seen
        UTC, as `started`: time of its last entry, or of its begin.
    planned
        Names of all jobs of the suite that night, also of those that were left out.
    hours
        Time budget of the suite; None for none.
    """

    number: int
    suite: str
    suite_digest: str
    started: str
    finished: str | None = None
    exit_code: int | None = None
    host: str = ""
    pid: int = 0
    version: str = ""
    folder: str = ""
    entries: tuple[Entry, ...] = ()
    seen: str = ""
    planned: tuple[str, ...] = ()
    hours: float | None = None

    @property
    def regressions(self) -> tuple[Entry, ...]:
        """Entries that a gate found worse, or that moved without a cause."""
        return tuple(entry for entry in self.entries if entry.is_regression)

    @property
    def failures(self) -> tuple[Entry, ...]:
        """Entries that failed."""
        return tuple(entry for entry in self.entries if entry.state == FAILED)


@dataclass(frozen=True, slots=True)
class Past:
    """An entry of an earlier run.

    Attributes
    ----------
    run
        Number of the run.
    entry
        What was measured and found.
    """

    run: int
    entry: Entry


def reports_folder(number: int) -> str:
    """Return where the reports of a run of this number are, relative to the directory of the page."""
    return f"runs/{number:05}"
