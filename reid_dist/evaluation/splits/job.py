"""An evaluation over splits as a job that is saved and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.engine.task_graph import Progress
from reid_dist.evaluation.benchmarks.variants import is_alone
from reid_dist.evaluation.runner import Computation, ReportForm, reported_spec
from reid_dist.evaluation.sides import RowsProgress, Sides
from reid_dist.evaluation.splits.repeated import SplitJob, evaluate_job
from reid_dist.evaluation.splits.report import SplitReport

if TYPE_CHECKING:
    from distributed import Client

# Words of a report on what its specification holds by digest.
_WORDS = ("generator", "rows")
_STAGES = {"expand": None, "rerank": None}


def prepare_splits(
    sides: Sides,
    options: Mapping[str, Any],
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> Computation[SplitReport]:
    """Open a job for `run_job`; `options` are those of `evaluate_splits`, `rows` and `stages` show progress."""
    with rows() as reading:
        near, far = sides.open(reading)
    job = SplitJob.of(near, far, options)

    def compute(client: Client | None, workspace: Path | str | None) -> SplitReport:
        with stages() as progress:
            return evaluate_job(job, client=client, workspace=workspace, progress=progress)

    return Computation(
        form=ReportForm(SplitReport),
        spec=_spec(job),
        spec_of=_spec_of,
        compute=compute,
        curve_shape=(near.n_rows, job.options["max_rank"]),
        other="other splits",
    )


def _spec(job: SplitJob) -> dict[str, Any]:
    """All that the report depends on, by name."""
    return {
        "query": job.query.content_digest,
        "gallery": job.gallery.content_digest,
        "draw": _without_words(job.trials.describe()),
        "benchmark": None if job.benchmark is None else job.benchmark.name,
        "benchmark_alone": job.benchmark_alone,
        "protocol": job.rules.describe(),
        "distance": job.options["distance"],
        "metrics": job.metric_names,
        **_STAGES,
        **job.reported_options,
    }


def _spec_of(report: SplitReport) -> dict[str, Any]:
    """Specification of a finished report."""
    return {
        **reported_spec(report),
        "draw": _without_words(report.draw),
        "benchmark": None if report.benchmark is None else report.benchmark["name"],
        "benchmark_alone": is_alone(report.benchmark),
        "metrics": list(report.metrics),
        **_STAGES,
        **report.options,
    }


def _without_words(draw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in draw.items() if name not in _WORDS}
