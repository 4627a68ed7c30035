"""Parameter sweeps, as `sweep` and `run` of a pipeline with a sweep do them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reid_dist.cli.click_options import RunOptions
from reid_dist.cli.progress import points, rows_progress
from reid_dist.cli.resumable import report_store, run_resumable
from reid_dist.core.specs import value_text
from reid_dist.errors import InputError
from reid_dist.evaluation.grid import FUSE
from reid_dist.evaluation.options import LEFT_OUT
from reid_dist.evaluation.runner import Run
from reid_dist.evaluation.sides import Sides, parse_model
from reid_dist.evaluation.sweeps import SweepJob, SweepReport, grid_of, run_sweep
from reid_dist.stages.session import Session


def sweep_sides(query: str, gallery: str, options: dict[str, Any], run: RunOptions) -> SweepReport:
    """Evaluate two sources at every point of a grid, and save the report.

    `options` are those of `sweep_parameters`, and of `Sides`.  Errors are those of `run_resumable`.
    """
    fuse = options.pop("fuse", None) or ()
    models = [parse_model(text) for text in fuse]
    sides = Sides(query, gallery, **{name: options.pop(name) for name in LEFT_OUT if name in options})
    # Wrong values are refused before anything is read or started.
    grid = grid_of(options, include_self=options.pop("include_self", False))
    if models and sides.spec:
        if grid.kind == FUSE:
            raise InputError(
                f"{' and '.join(sides.spec)} leave out rows of one query and gallery, and a sweep over weight has "
                "several; write stores without these rows (reid-dist ingest STORE --exclude FILE --output NEW)"
            )
        # Which rows repeat others depends on the features of all models.
        sides, models = replace(sides, fuse=fuse), []

    def prepare() -> Run[SweepReport]:
        with rows_progress() as progress:
            job = SweepJob.of(grid, *sides.open(progress), options, models)

        def compute(session: Session) -> SweepReport:
            with points() as (tasks, shown):
                return run_sweep(
                    session.showing(tasks),
                    job,
                    keep=run.workspace is not None,
                    on_point=lambda done, total, point, row: shown(done, total, _setting(point.values), row),
                )

        return Run(
            spec={**job.spec, **sides.spec}, compute=compute, curve_shape=(job.query.n_rows, options["max_rank"])
        )

    return run_resumable(run, prepare, report_store(SweepReport, run))


def _setting(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value_text(value)}" for name, value in values.items())
