"""Values of a history: runs of a suite, entries of jobs, and findings of gates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from reid_dist.reports.verdicts import BETTER as BETTER
from reid_dist.reports.verdicts import SAME as SAME
from reid_dist.reports.verdicts import UNDECIDED as UNDECIDED
from reid_dist.reports.verdicts import WORSE as WORSE

DONE: Final = "done"
FAILED: Final = "failed"
SKIPPED: Final = "skipped"
"""States of an entry; skipped ones were left out by a time budget or an interruption."""

INCOMPARABLE: Final = "incomparable"
"""Verdict of a gate without a baseline; the others are those of :mod:`reid_dist.reports.verdicts`."""

VERDICTS: Final = (BETTER, SAME, WORSE, UNDECIDED, INCOMPARABLE)
"""Verdicts of a gate."""

GATES: Final = ("accuracy", "trend", "speed", "memory")
"""Names of the gates in display order."""

ALARM: Final = "numbers moved without a cause"
"""Equal inputs and an equal job gave another result."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric and its confidence interval, as shares; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Moved:
    """Query with another value.

    Attributes
    ----------
    row, pid, camid
        Row, identity and camera of the query; None where unknown.
    baseline, candidate
        Value before and after.
    """

    row: int
    pid: int | None
    camid: int | None
    baseline: float
    candidate: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Change of one quantity.

    Attributes
    ----------
    name
        Name of a metric, ``seconds`` or ``peak_bytes``.
    baseline, candidate
        Before and after; None where undefined.
    difference
        Candidate - baseline over the same queries; candidate / baseline for time and memory.
    low, high
        Interval of the difference of a metric; for time and memory the ratios beyond which the verdict is better or
        worse.
    verdict
        As of a gate.
    lost
        Queries with the largest losses, worst first.
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
    """Result of one gate for one entry.

    Attributes
    ----------
    gate
        One of `GATES`.
    verdict
        One of `VERDICTS`.
    reason
        One sentence with the figures.
    alarm
        `ALARM`, or empty.
    baseline
        Number of the baseline run; None for none or several.
    changes
        By metric, or one of time or memory.
    """

    gate: str
    verdict: str
    reason: str
    alarm: str = ""
    baseline: int | None = None
    changes: tuple[Change, ...] = ()

    @property
    def is_regression(self) -> bool:
        """Whether the verdict is worse, or there is an alarm."""
        return self.verdict == WORSE or bool(self.alarm)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One job of one run: a model on a data set, evaluated in one way.

    Attributes
    ----------
    model, dataset, job
        Names in the suite.
    labels
        Descriptions of model, data set and job in the suite.
    state
        ``done``, ``failed`` or ``skipped``.
    reason
        Reason of a failure or skip in one line; empty when done.
    started
        UTC, ISO 8601 with seconds and ``Z``.
    seconds
        From opening the inputs to the report; None unless done.
    timing
        Seconds by stage.
    peak_bytes
        Sum over all processes of their peak memory during the job; None if unknown.
    reused
        Kinds of stages that earlier jobs of the run left.  Times of entries with different reused stages do not
        compare.
    machine
        What times depend on beside the job: CPU, cores, cluster.
    metrics
        By name, in the order of the report.
    counts, conventions, inputs, environment
        As in the report; `conventions` holds protocol, distance, expand, rerank, options and definitions in full.
    input_digest
        Digest of the content of all inputs; empty unless done.
    job_digest
        Digest of `conventions`; empty unless done.
    result_digest
        Digest of the report; empty unless done.
    folder
        Directory of the report relative to that of the page; empty for none.
    findings
        Results of the gates.
    accepted
        Reason to accept a regression, which makes the entry the baseline of later nights; empty if not accepted.
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
        """``model/dataset/job``, unique in a run."""
        return f"{self.model}/{self.dataset}/{self.job}"

    @property
    def is_good(self) -> bool:
        """Whether it is a baseline: done, and neither accuracy nor trend worse, or accepted."""
        accuracy = [finding for finding in self.findings if finding.gate in ("accuracy", "trend")]
        return self.state == DONE and (bool(self.accepted) or not any(finding.is_regression for finding in accuracy))

    @property
    def comparison_key(self) -> tuple[object, ...]:
        """Job, numbers of rows and labels: entries compare in accuracy if they are equal."""
        sizes = [self.counts.get(name) for name in ("n_query", "n_gallery")]
        sides = [self.inputs.get(side) for side in ("query", "gallery")]
        labels = [side.get("labels_digest") if isinstance(side, Mapping) else None for side in sides]
        return (self.job_digest, *sizes, *labels)

    @property
    def is_regression(self) -> bool:
        """Whether a gate found a regression that is not accepted."""
        return not self.accepted and any(finding.is_regression for finding in self.findings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a suite, usually a night.

    Attributes
    ----------
    number
        Number in its history, from 1; never reused.
    suite
        Name of the suite.
    suite_digest
        Digest of the content of the suite file.
    started, finished
        UTC, ISO 8601 with seconds and ``Z``; `finished` is None while it runs, and of a killed run.
    exit_code
        Exit code of the command; None while it runs, and of a killed run.
    host, pid
        Process that ran it.
    version
        Version of the package.
    folder
        Directory of the page and of the reports.
    entries
        In the order of the suite.
    seen
        UTC, as `started`: time of its last entry, or of its begin.
    planned
        Names of all jobs of the suite that night, including those left out.
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
        """Entries with a regression that is not accepted."""
        return tuple(entry for entry in self.entries if entry.is_regression)

    @property
    def failures(self) -> tuple[Entry, ...]:
        """Entries that failed."""
        return tuple(entry for entry in self.entries if entry.state == FAILED)


@dataclass(frozen=True, slots=True)
class Past:
    """Entry of an earlier run.

    Attributes
    ----------
    run
        Number of the run.
    entry
        The entry.
    """

    run: int
    entry: Entry


def reports_folder(number: int) -> str:
    """Return the directory of the reports of a run, relative to that of the page."""
    return f"runs/{number:05}"
