"""Parameter sweeps, as `sweep` and `run` of a pipeline with a sweep do them."""

from __future__ import annotations

from typing import Any

from reid_dist.cli.click_options import RunOptions
from reid_dist.cli.progress import points
from reid_dist.cli.resumable import open_sides, report_store, run_resumable
from reid_dist.core.specs import value_text
from reid_dist.evaluation.runner import Run
from reid_dist.evaluation.sides import parse_model
from reid_dist.evaluation.sweeps import SweepJob, SweepReport, grid_of, run_sweep
from reid_dist.stages.session import Session


def sweep_sides(query: str, gallery: str, options: dict[str, Any], run: RunOptions) -> SweepReport:
    """Evaluate two sources at every point of a grid, and save the report; `options` are those of `sweep_parameters`.

    Errors are those of `run_resumable`.
    """
    models = [parse_model(text) for text in options.pop("fuse", None) or ()]
    # Wrong values are refused before anything is read or started.
    grid = grid_of(options, include_self=options.pop("include_self", False))

    def prepare() -> Run[SweepReport]:
        job = SweepJob.of(grid, *open_sides(query, gallery), options, models)

        def compute(session: Session) -> SweepReport:
            with points() as (tasks, shown):
                return run_sweep(
                    session.showing(tasks),
                    job,
                    keep=run.workspace is not None,
                    on_point=lambda done, total, point, row: shown(done, total, _setting(point.values), row),
                )

        return Run(spec=job.spec, compute=compute, curve_shape=(job.query.n_rows, options["max_rank"]))

    return run_resumable(run, prepare, report_store(SweepReport, run))


def _setting(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value_text(value)}" for name, value in values.items())
