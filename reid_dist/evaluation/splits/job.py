"""An evaluation over splits as a job that is saved and resumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from reid_dist.engine.task_graph import Progress
from reid_dist.evaluation.runner import Run
from reid_dist.evaluation.sides import RowsProgress, Sides
from reid_dist.evaluation.splits.repeated import SplitJob, run_splits
from reid_dist.evaluation.splits.report import SplitReport
from reid_dist.stages.session import Session


def prepare_splits(
    sides: Sides,
    options: Mapping[str, Any],
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> Run[SplitReport]:
    """Open a job for `run_job`; `options` are those of `evaluate_splits`, `rows` and `stages` show progress."""
    with rows() as reading:
        near, far = sides.open(reading)
    job = SplitJob.of(near, far, options)

    def compute(session: Session) -> SplitReport:
        with stages() as progress:
            return run_splits(session.showing(progress), job)

    return Run(spec=job.spec, compute=compute, curve_shape=(near.n_rows, job.options["max_rank"]))
