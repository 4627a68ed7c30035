"""What a comparison of two runs consists of, and how it is written as JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import integer, joined
from reid_dist.core.summary import Summary
from reid_dist.metrics.confidence import Interval
from reid_dist.reports.documents import JsonResult, plain
from reid_dist.reports.verdicts import UNDECIDED, WORSE, short_p_value
from reid_dist.reports.words import metric_value

SCHEMA: Final = 1
"""The version of the comparison as JSON."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Something in which the runs differ, and what it is in each, in words."""

    what: str
    baseline: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.what}: {self.baseline} in the baseline, {self.candidate} in the candidate"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Something in which several runs differ, and what it is in each, in words."""

    what: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return self.worded([f"run {number}" for number in range(1, len(self.values) + 1)])

    def worded(self, labels: Sequence[str]) -> str:
        """Return every value with its runs, which have these names."""
        return f"{self.what}: {', '.join(f'{value} in {joined(runs)}' for value, runs in self.by_value(labels))}"

    def by_value(self, labels: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return every value with the names of its runs, which have these names."""
        runs: dict[str, list[str]] = {}
        for label, value in zip(labels, self.values, strict=True):
            runs.setdefault(value, []).append(label)
        return [*runs.items()]


@dataclass(frozen=True, slots=True)
class ChangedQuery:
    """A query whose value changed, and both values."""

    row: int
    pid: int | None
    camid: int | None
    baseline: float
    candidate: float


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric of both runs.

    Attributes
    ----------
    name
        Of the metric.
    baseline, candidate
        Its values, as the reports have them; NaN where a run has none.
    difference
        Candidate - baseline; where there is a test, the mean over the paired queries.
    interval
        Of the difference; None without a test.
    p_value
        Two-sided, of the hypothesis that nothing changed; None without a test.
    verdict
        ``better``, ``worse``, ``same`` or ``undecided``, see :mod:`reid_dist.reports.verdicts`; None without a test.
    untested
        Why there is no test; empty where there is one.
    n_gained, n_lost
        Paired queries whose value rose and fell.
    gained, lost
        Those that rose and fell most, the largest change first, then by row.
    """

    name: str
    baseline: float
    candidate: float
    difference: float
    interval: Interval | None = None
    p_value: float | None = None
    verdict: str | None = None
    untested: str = ""
    n_gained: int = 0
    n_lost: int = 0
    gained: tuple[ChangedQuery, ...] = ()
    lost: tuple[ChangedQuery, ...] = ()

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of a table: name, both values, difference and interval in points, p-value, verdict."""
        tested = ("-", "-")
        if self.interval is not None and self.p_value is not None:
            tested = (f"[{points(self.interval.low)}, {points(self.interval.high)}]", short_p_value(self.p_value))
        values = (metric_value(self.name, value) for value in (self.baseline, self.candidate))
        return (self.name, *values, points(self.difference), *tested, self.verdict or "-")


def points(difference: float) -> str:
    """Return a difference of shares in points; zero has no sign, and a small difference keeps its own."""
    if math.isnan(difference):
        return "-"
    text = f"{100 * difference:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") and difference == 0 else text


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Comparison(JsonResult):
    """Two runs compared.

    Attributes
    ----------
    identical
        Whether the result digests are equal: the same result, to the last bit.
    metrics
        One entry for each metric that both runs have.
    options
        What is compared: features, distance, expansion, re-ranking, version, where they differ.
    conditions
        What should have been equal and is not; empty unless ``allow_different`` let it pass.
    level, unit, n_resamples, seed, minimum_effect
        As they were requested.
    n_query, n_paired, n_units
        Queries of each run; those that are paired; identities (or queries) that were resampled.
    baseline_digest, candidate_digest
        Result digests.
    notes
        Remarks on the validity of the numbers.
    """

    identical: bool
    metrics: tuple[MetricComparison, ...]
    options: tuple[Difference, ...]
    conditions: tuple[Difference, ...]
    level: float
    unit: str
    n_resamples: int
    seed: int
    minimum_effect: float
    n_query: int
    n_paired: int
    n_units: int
    baseline_digest: str
    candidate_digest: str
    notes: tuple[Finding, ...]

    @property
    def worse(self) -> tuple[str, ...]:
        """Names of the metrics that are worse."""
        return tuple(metric.name for metric in self.metrics if metric.verdict == WORSE)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the metrics for which the data show neither a change nor its absence."""
        return tuple(metric.name for metric in self.metrics if metric.verdict == UNDECIDED)

    def summary(self) -> Summary:
        """Return the table of the metrics, with what is compared and what differs."""
        interval = f"{100 * self.level:g} % interval"
        facts = {
            "queries": f"{integer(self.n_paired)} paired of {integer(self.n_query)}",
            "change": "candidate - baseline, in points",
            "digests": f"baseline {self.baseline_digest[:16]}, candidate {self.candidate_digest[:16]}",
            **({"identical": "the same result, to the last bit"} if self.identical else {}),
        }
        for name, found in (("compared", self.options), ("differs", self.conditions)):
            if found:
                facts[name] = ", ".join(each.what for each in found)
        heads = ("metric", "baseline", "candidate", "change", interval, "p", "verdict")
        return Summary("Comparison", heads, [metric.cells for metric in self.metrics], facts, self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain Python values; what is not a finite number is None."""
        described: dict[str, Any] = plain(asdict(self))
        for metric in described["metrics"]:
            metric["interval"] = metric["interval"] and [metric["interval"][end] for end in ("low", "high")]
        named = {metric.pop("name"): metric for metric in described["metrics"]}
        return (
            {"schema": SCHEMA}
            | described
            | {"metrics": named, "notes": plain(self.notes)}
            | {"worse": list(self.worse), "undecided": list(self.undecided)}
        )
