"""Parameter sweeps, as `sweep` and `run` of a pipeline with a sweep do them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reid_dist.cli.click_options import RunOptions
from reid_dist.cli.progress import points
from reid_dist.cli.resumable import deliver_table, open_sides, report_store, run_resumable
from reid_dist.core.formatting import aligned, counted
from reid_dist.core.specs import value_text
from reid_dist.evaluation.runner import Run
from reid_dist.evaluation.sides import parse_model
from reid_dist.evaluation.sweeps import SweepJob, SweepReport, grid_of, run_sweep
from reid_dist.reports.words import metric_value
from reid_dist.stages.session import Session

_BEST = "*"


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


def deliver_sweep(report: SweepReport, *, as_json: bool, output: Path | None) -> None:
    """Print a parameter sweep, in which the best value of each metric is marked, and the names of its files."""
    names, counts = report.metric_names, report.counts
    table = [[*report.parameters, *(f"{name} " for name in names)]]
    for number, row in enumerate(report.rows):
        values = [
            metric_value(name, row["metrics"][name])
            + (_BEST if report.best.get(name, {}).get("row") == number else " ")
            for name in names
        ]
        table.append([*(_written(value) for value in row["parameters"].values()), *values])
    facts = {
        "method": report.method["name"] + _fixed(report.method["fixed"]),
        "queries": f"{counts['n_valid']:,} valid of {counts['n_query']:,}",
        "gallery": counted(counts["n_gallery"], "row"),
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
    }
    legend = {_BEST: "best value of its metric; of equal ones, the first"}
    deliver_table(report, aligned(table), legend, facts, as_json=as_json, output=output)


def _fixed(values: dict[str, Any]) -> str:
    """Parameters that were not swept."""
    return f" ({', '.join(f'{name} {_written(value)}' for name, value in values.items())})" if values else ""


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return value_text(value)


def _setting(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_written(value)}" for name, value in values.items())
