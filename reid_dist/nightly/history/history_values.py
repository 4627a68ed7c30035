"""Values of a history: runs of a suite, entries of jobs, and findings of gates."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias

import reid_dist.reports.verdicts as verdicts
from reid_dist.core.processes import began
from reid_dist.evaluation.splits import SplitReport
from reid_dist.reports import Report
from reid_dist.reports.comparison import ChangedQuery
from reid_dist.reports.documents import plain
from reid_dist.reports.report_files import PAGE


class State(StrEnum):
    """What became of an entry; skipped ones were left out by a time budget or an interruption."""

    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


class Outcome(StrEnum):
    """What an entry amounts to, the most urgent first.

    The verdicts of gates are those of :mod:`reid_dist.reports.verdicts` and `INCOMPARABLE`; `UNPREPARED` and `STALE`
    are verdicts of `PREPARATION` alone.
    """

    FAILED = State.FAILED
    # The features could not be made, or have the content of the last night where new ones are expected.
    UNPREPARED = "unprepared"
    STALE = "stale"
    # Numbers moved without a cause.
    MOVED = "alarm"
    WORSE = verdicts.WORSE
    # There is a baseline, and the entry does not compare with it.
    UNCOMPARED = "uncompared"
    SKIPPED = State.SKIPPED
    # No baseline, or one that does not compare.
    INCOMPARABLE = "incomparable"
    UNDECIDED = verdicts.UNDECIDED
    # An accepted regression.
    ACCEPTED = "accepted"
    BETTER = verdicts.BETTER
    SAME = verdicts.SAME


PER_SPLIT: Final = "per_split"
"""Key, among the counts of an entry of means over splits, of their values by metric."""

GATES: Final = ("accuracy", "trend", "speed", "memory")
"""Names of the gates in display order."""

PREPARATION: Final = "preparation"
"""Name, in place of a gate, in findings about the features of a job."""

ALARM: Final = "moved"
"""Alarm: equal inputs and an equal job gave another result.  Entries of older versions have words in its place."""


BASELINE: Final = "baseline"
CANDIDATE: Final = "candidate"
"""Sides of a comparison, in :attr:`Change.missing`."""


class Code(StrEnum):
    """Why a gate has its verdict.  A finding has a code and facts; `reid_dist.nightly.wording` has the words."""

    # Of an older version, whose words are the fact `text`.
    RECORDED = "recorded"
    # Nothing to compare with: no good run; another job, other conditions, labels or sizes (`differences`); the report
    # of the run with a `role` was pruned, or is damaged, or the comparison was refused (`text`); nothing to test.
    NO_BASELINE = "no_baseline"
    OTHER_JOB = "other_job"
    OTHER_CONDITIONS = "other_conditions"
    OTHER_SIZES = "other_sizes"
    PRUNED = "pruned"
    DAMAGED = "damaged"
    REFUSED = "refused"
    NO_VALUES = "no_values"
    NO_LABELS = "no_labels"
    NO_REPORTS = "no_reports"
    UNKNOWN = "unknown"
    # Features: the `command` ended with `exit_code`, took more than `seconds` or could not be started (`text`), its
    # output is in `output` and ends with `tail`; or they have the content of the `baseline`.
    EXITED = "exited"
    OVERTIME = "overtime"
    NOT_STARTED = "not_started"
    STALE = "stale"
    # Too few nights: `n` of `needed`, as `unit`; or as many, but too noisy for their number.
    WAITING = "waiting"
    NOISY = "noisy"
    # A result that is equal to the last bit, to that of one night or of `n_nights`.
    EQUAL = "equal"
    EQUAL_NIGHTS = "equal_nights"
    # A test of every metric against a run with a `role`; of a line through nights; of a ratio to a median.
    TESTED = "tested"
    LINE = "line"
    RATIO = "ratio"


class Role(StrEnum):
    """Why an entry is compared with a run: the fact `role` of a finding."""

    LAST_GOOD = "last good"
    LAST_ACCEPTED = "last accepted"
    FIRST = "first"


class Decider(StrEnum):
    """The test that decides on a change."""

    IDENTITIES = "identities"
    NIGHTS = "nights"
    SPLITS = "splits"
    RUNS = "runs"


Difference: TypeAlias = tuple[str, str, str]
"""Name of a field, and its values before and after, as text."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric and its confidence interval, as shares; None where there is none."""

    value: float | None
    low: float | None = None
    high: float | None = None


def estimates_of(report: Report | SplitReport) -> dict[str, Estimate]:
    """Return the metrics of a report with their intervals, in its order; NaN is None."""
    confidence = None if isinstance(report, SplitReport) else report.confidence
    intervals = {} if confidence is None else confidence.get("intervals", {})
    return {name: Estimate(plain(value), *intervals.get(name, (None, None))) for name, value in report.metrics.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Change of one quantity: a metric, ``seconds`` or ``peak_bytes``."""

    name: str
    baseline: float | None
    candidate: float | None
    # Candidate - baseline over the same queries; candidate / baseline for time and memory; of the trend, the change of
    # the fitted line between these nights.
    difference: float | None = None
    # Interval of the difference of a metric; for time and memory the ratios beyond which it is better or worse.
    low: float | None = None
    high: float | None = None
    verdict: str = Outcome.INCOMPARABLE
    # Queries with the largest losses, worst first, and their file names as far as these are known.
    lost: tuple[ChangedQuery, ...] = ()
    files: tuple[str, ...] = ()
    # The test that decides, its p-value, the level of the interval, and the number of identities, splits or runs.
    test: str = ""
    p_value: float | None = None
    level: float | None = None
    n_units: int | None = None
    # Numbers of queries whose value fell and rose.
    n_lost: int | None = None
    n_gained: int | None = None
    # Why there is no test: the sides, `BASELINE` and `CANDIDATE`, that lack the metric, or an `Untested`.
    missing: tuple[str, ...] = ()
    untested: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Result of one gate for one entry."""

    gate: str  # one of GATES, or PREPARATION
    verdict: str  # one of Outcome
    code: str = Code.RECORDED  # one of Code
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain values that belong to the code
    alarm: str = ""  # ALARM, or empty
    baseline: int | None = None  # number of the baseline run; None for none or several
    changes: tuple[Change, ...] = ()

    @property
    def is_regression(self) -> bool:
        """Whether the verdict is worse, or there is an alarm."""
        return self.verdict == Outcome.WORSE or bool(self.alarm)

    @property
    def is_uncompared(self) -> bool:
        """Whether there is a baseline of accuracy, and no comparison with it.

        In the first nights there is no baseline, and time and memory of other machines or sizes need not compare.
        """
        return self.gate == "accuracy" and self.verdict == Outcome.INCOMPARABLE and self.baseline is not None

    def change(self, name: str) -> Change | None:
        """Return the change of a quantity; None if the gate has none of it."""
        return next((change for change in self.changes if change.name == name), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One job of one run: a model on a data set, evaluated in one way."""

    model: str
    dataset: str
    job: str
    # Descriptions of model, data set and job in the suite.
    labels: Mapping[str, str] = field(default_factory=dict)
    state: str = State.DONE
    # Of a failure or skip, in one line; empty when done.
    reason: str = ""
    # UTC, ISO 8601 with seconds and Z.
    started: str = ""
    # From opening the inputs to the report; None unless done.  `timing` has the seconds by stage.
    seconds: float | None = None
    timing: Mapping[str, float] = field(default_factory=dict)
    # Sum over all processes of their peak memory during the job; None if unknown.
    peak_bytes: int | None = None
    # Kinds of stages that earlier jobs of the run left: times with different ones do not compare.
    reused: tuple[str, ...] = ()
    # What times depend on beside the job: CPU, cores, cluster.
    machine: Mapping[str, Any] = field(default_factory=dict)
    # In the order of the report.
    metrics: Mapping[str, Estimate] = field(default_factory=dict)
    # As in the report; `conventions` holds protocol, distance, expand, rerank, options and definitions in full.
    counts: Mapping[str, Any] = field(default_factory=dict)
    conventions: Mapping[str, Any] = field(default_factory=dict)
    inputs: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    # Digests of the content of all inputs, of `conventions`, and of the report; empty unless done.
    input_digest: str = ""
    job_digest: str = ""
    result_digest: str = ""
    # Directories of the report and of its explorer relative to that of the page; empty for none.
    folder: str = ""
    explorer: str = ""
    findings: tuple[Finding, ...] = ()
    # Reason to accept a regression, which makes the entry the baseline of later nights; empty if not accepted.
    accepted: str = ""

    @property
    def name(self) -> str:
        """``model/dataset/job``, unique in a run."""
        return f"{self.model}/{self.dataset}/{self.job}"

    @property
    def has_splits(self) -> bool:
        """Whether the metrics are means over splits; such an entry has a report of splits alone, in its folder."""
        return "draw" in self.conventions

    @property
    def page(self) -> str:
        """Name of the page of the report in its folder."""
        return SplitReport.page if self.has_splits else PAGE

    @property
    def is_good(self) -> bool:
        """Whether it is a baseline: done, and neither accuracy nor trend worse, or accepted."""
        accuracy = [finding for finding in self.findings if finding.gate in ("accuracy", "trend")]
        return self.state == State.DONE and (
            bool(self.accepted) or not any(finding.is_regression for finding in accuracy)
        )

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

    @property
    def alarm(self) -> str:
        """The first alarm of a gate; empty for none."""
        return next((finding.alarm for finding in self.findings if finding.alarm), "")

    def value(self, name: str) -> float | None:
        """Return the value of a metric; None where it is undefined, and where the entry has none of it."""
        return self.metrics[name].value if name in self.metrics else None

    def of_report(self, report: Report) -> Entry:
        """Return the entry with the numbers and the digest of a report."""
        return replace(self, metrics=estimates_of(report), result_digest=report.result_digest)

    def finding(self, gate: str) -> Finding | None:
        """Return the finding of a gate; None for a gate that is switched off."""
        return next((finding for finding in self.findings if finding.gate == gate), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run of a suite, usually a night.  Times are UTC, ISO 8601 with seconds and ``Z``."""

    number: int  # from 1, never reused in a history
    suite: str
    suite_digest: str  # of the content of the suite file
    started: str
    # None while it runs, and of a killed run, as its exit code.
    finished: str | None = None
    exit_code: int | None = None
    # Process that ran it.
    host: str = ""
    pid: int = 0
    version: str = ""
    # Directory of the page and of the reports.
    folder: str = ""
    # In the order of the suite.
    entries: tuple[Entry, ...] = ()
    # Time of its last entry, or of its begin.
    seen: str = ""
    # Names of all jobs of the suite that night, including those left out.
    planned: tuple[str, ...] = ()
    # Time budget of the suite; None for none.
    hours: float | None = None

    def entry(self, name: str) -> Entry | None:
        """Return the entry of that name; None if the run has none."""
        return next((entry for entry in self.entries if entry.name == name), None)


class Past(NamedTuple):
    """Entry of an earlier run, with the number of the run; the report is None unless it is read, and where pruned."""

    run: int
    entry: Entry
    report: Report | None = None


def moment(stamp: str) -> datetime | None:
    """Parse a time of a history, UTC where it has no zone; None if it is invalid."""
    try:
        found = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


def reports_folder(number: int) -> str:
    """Return the directory of the reports of a run, relative to that of the page."""
    return f"runs/{number:05}"


# ---------------------------------------------------------------------------------------------------------- documents


def run_document(run: Run) -> dict[str, Any]:
    """Return a run without number, suite and entries as plain values."""
    names = (each.name for each in fields(Run) if each.name not in ("number", "suite", "entries"))
    return {name: plain(getattr(run, name)) for name in names}


def run_of(number: int, suite: str, document: Mapping[str, Any]) -> Run:
    """Return the run of a document, without entries."""
    return Run(**{**document, "number": number, "suite": suite, "planned": tuple(document["planned"])})


def entry_document(entry: Entry, results: Sequence[str] = ()) -> dict[str, Any]:
    """Return an entry as plain values; `results` are the digests of its report and of its values per query."""
    document = {each.name: plain(getattr(entry, each.name)) for each in fields(Entry) if each.name != "findings"}
    metrics = {name: [json_number(value) for value in astuple(estimate)] for name, estimate in entry.metrics.items()}
    findings = [plain(asdict(finding)) for finding in entry.findings]
    return document | {
        "metrics": metrics, "findings": findings, "results": list(results)
    }  # fmt: skip


def entry_of(document: Mapping[str, Any]) -> Entry:
    """Return the entry of a document."""
    changed = {
        "reused": tuple(document["reused"]),
        "metrics": {name: Estimate(*map(_float, values)) for name, values in document["metrics"].items()},
        "findings": tuple(
            Finding(**{**finding, "changes": tuple(map(_change_of, finding["changes"]))})
            for finding in document["findings"]
        ),
    }
    return Entry(**{name: value for name, value in {**document, **changed}.items() if name != "results"})


def _change_of(values: Mapping[str, Any]) -> Change:
    undefined = {"baseline": math.nan, "candidate": math.nan}
    lost = tuple(
        ChangedQuery(**{**moved, **{name: nan for name, nan in undefined.items() if moved[name] is None}})
        for moved in values["lost"]
    )
    texts = {name: tuple(values.get(name, ())) for name in ("files", "missing")}
    return Change(**{**values, **texts, "lost": lost})


def json_number(value: float | None) -> float | str | None:
    """Return a number as JSON has it: NaN is None, an infinite one is a text; adding zero makes -0.0 plain 0.0."""
    if value is None or math.isnan(value):
        return None
    return float(value) + 0.0 if math.isfinite(value) else str(float(value))


def _float(value: float | str | None) -> float | None:
    return None if value is None else float(value)


# -------------------------------------------------------------------------------------------------------------- state

FINISHED: Final = "finished"
RUNNING: Final = "running"
KILLED: Final = "killed"

LONGEST_SILENCE: Final = timedelta(hours=24)
"""Time without an entry after which an unfinished run of another host counts as killed.

A run is seen when it begins and with every entry, so this exceeds the time of one job.  A longer time budget of the
suite takes its place, plus `_MARGIN`.
"""

# Beyond a time budget: a job in flight ends at its next task, and clocks of two hosts differ.
_MARGIN: Final = timedelta(hours=1)

# Seconds: a run is recorded some time after its process started; both clocks are of this host.
_SLACK = 5.0


def this_host() -> str:
    """Return the name of this host as runs record it."""
    return platform.node() or "localhost"


def run_state(run: Run, *, at: datetime | None = None) -> str:
    """Return ``finished``, ``killed`` or ``running``, at a time or now.

    An unfinished run of this host is killed if its process is gone; one of another host, if it was last seen too long
    ago (`LONGEST_SILENCE`).
    """
    if run.finished is not None:
        return FINISHED
    if run.host == this_host():
        return RUNNING if _is_its_process(run) else KILLED
    seen = moment(run.seen)
    silence = LONGEST_SILENCE if run.hours is None else max(LONGEST_SILENCE, timedelta(hours=run.hours) + _MARGIN)
    return KILLED if seen is not None and (at or datetime.now(UTC)) - seen > silence else RUNNING


def _is_its_process(run: Run) -> bool:
    try:
        os.kill(run.pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    begin, started = began(run.pid), moment(run.started)
    if begin is None or started is None:
        return True
    # Another process may have the number by now.
    return begin <= started.timestamp() + _SLACK
