"""Entries of the history from reports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reid_dist.core.credentials import without_credentials
from reid_dist.core.fingerprint import fingerprint
from reid_dist.evaluation.splits import SplitReport
from reid_dist.nightly.causes import PROSE
from reid_dist.nightly.history.values import PER_SPLIT, Entry, Estimate
from reid_dist.nightly.suite import PlannedJob
from reid_dist.reports import Report
from reid_dist.reports.documents import plain

# Fields of the protocol that describe an input and not the job.
_INPUTS: Final = frozenset({"ground_truth"})


def done_entry(planned: PlannedJob, report: Report | SplitReport) -> Entry:
    """Entry of a job that is done, with what its report holds; of splits, the largest of each count."""
    intervals: Mapping[str, Any] = {}
    counts = plain(report.counts)
    if isinstance(report, SplitReport):
        # A report of splits lists its stages among the options.
        own = {name: report.options.get(name) for name in ("expand", "rerank")} | {"draw": report.draw}
        counts = {name: max(each) if isinstance(each, list) else each for name, each in counts.items()}
        counts[PER_SPLIT] = plain(report.per_split)
    else:
        intervals = (report.confidence or {}).get("intervals", {})
        own = {"expand": report.expand, "rerank": report.rerank}
    conventions = {
        "protocol": {name: each for name, each in report.protocol.items() if name not in _INPUTS},
        "distance": report.distance,
        **own,
        # The names of the metrics are listed apart, whether requested or default.
        "options": {name: value for name, value in report.options.items() if name != "metrics"},
        "metrics": [*report.metrics],
    }
    digests = {name: _digests_of(each) for name, each in report.inputs.items() if isinstance(each, Mapping)}
    truth = report.protocol.get("ground_truth")
    if isinstance(truth, Mapping):
        digests["ground_truth"] = _digests_of(truth)
    return Entry(
        model=planned.model,
        dataset=planned.dataset,
        job=planned.job,
        labels=planned.labels,
        timing=report.timing,
        metrics={
            name: Estimate(plain(value), *intervals.get(name, (None, None))) for name, value in report.metrics.items()
        },
        counts=counts,
        conventions=plain(conventions),
        inputs=plain(report.inputs),
        environment=plain(report.environment),
        input_digest=fingerprint(digests),
        job_digest=fingerprint(plain(_without_prose(conventions))),
        result_digest=report.result_digest,
    )


def undone_entry(planned: PlannedJob, state: str, reason: str) -> Entry:
    """Entry of a job that failed or was skipped; the reason becomes one line without passwords of URIs."""
    return Entry(
        model=planned.model,
        dataset=planned.dataset,
        job=planned.job,
        labels=planned.labels,
        state=state,
        reason=without_credentials(" ".join(reason.split())),
    )


def _digests_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return the digests of the content of an input, without its location."""
    return {name: each for name, each in description.items() if name.endswith("digest")}


def _without_prose(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_prose(each) for name, each in value.items() if name not in PROSE}
    return value
