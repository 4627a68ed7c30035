"""What ``reid-dist sweep``, and ``reid-dist run`` of a pipeline with a sweep, have in common."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import click

from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import points, rows_progress
from reid_dist.clusters import ClusterConfig
from reid_dist.errors import StoreError
from reid_dist.jobs import SweptParameters
from reid_dist.reports.files import refuse_occupied
from reid_dist.reports.words import metric_value
from reid_dist.stores.importers import open_features
from reid_dist.tuning import SweepReport, make_grid, sweep_parameters

__all__ = ["deliver_sweep", "sweep_sides"]

_WORKSPACE = "workspace"
_BEST = "*"


def sweep_sides(
    query: str,
    gallery: str,
    options: dict[str, Any],
    cluster: ClusterConfig,
    *,
    output: Path | None,
    workspace: str | None,
    performance_page: Path | None,
) -> SweepReport:
    """Open both sides, evaluate them at every point, and write the files.

    Parameters
    ----------
    query, gallery
        What is opened.
    options
        What `sweep_parameters` takes.
    cluster
        Where to run.
    output
        Where ``sweep.json`` and ``sweep.html`` go; None for nowhere.
    workspace
        Where lists and derived features stay; None for a place that goes when all is done.
    performance_page
        Where Dask's performance report goes.
    """
    # What makes no sense is told before anything is read or started.
    make_grid(
        options["expand"],
        options["rerank"],
        {name: options.get(name) for name in SweptParameters.model_fields},
        include_self=options.get("include_self", False),
    )
    refuse_unobservable(cluster, performance_page)
    if output is not None:
        refuse_occupied(output)
    with contextlib.ExitStack() as on_exit:
        folder = workspace
        if workspace is None and output is not None:
            folder = str(_make_workspace(output, on_exit))
        with rows_progress() as progress:
            near = open_features(query, role="query", progress=progress)
            far = open_features(gallery, role="gallery", progress=progress)
        with observed_cluster(cluster, performance_page) as client, points() as (tasks, told):
            report = sweep_parameters(
                near,
                far,
                client=client,
                workspace=folder,
                keep=workspace is not None,
                progress=tasks,
                told=lambda done, total, point, found: told(done, total, _setting(point.values), found),
                **options,
            )
    if output is not None:
        report.save(output)
    return report


def deliver_sweep(report: SweepReport, *, as_json: bool, output: Path | None) -> None:
    """Print a sweep, and say where its page is."""
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    click.echo("\n".join(_lines(report)))
    if output is not None:
        click.echo(f"\nwritten to {output}: sweep.html, sweep.json")


def _make_workspace(output: Path, on_exit: contextlib.ExitStack) -> Path:
    """Make the workspace in the output directory: what cannot be written is refused before the work."""
    folder, made = output / _WORKSPACE, not output.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}; choose another --output") from None
    on_exit.callback(_remove_empty, folder, *([output] if made else []))
    return folder


def _remove_empty(*folders: Path) -> None:
    """Leave nothing empty behind that was not there before."""
    for leftover in folders:
        with contextlib.suppress(OSError):
            leftover.rmdir()


def _lines(report: SweepReport) -> list[str]:
    """The report as a table of plain text; the best value of each metric has a sign."""
    names = report.metric_names
    table = [[*report.parameters, *(f"{name} " for name in names)]]
    for number, row in enumerate(report.rows):
        values = [
            metric_value(name, row["metrics"][name])
            + (_BEST if report.best.get(name, {}).get("row") == number else " ")
            for name in names
        ]
        table.append([*(_written(value) for value in row["parameters"].values()), *values])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "   ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True)).rstrip() for cells in table
    ]
    counts = report.counts
    facts = {
        _BEST: "best value of its metric; of equal ones, the first",
        "method": report.method["name"] + _fixed(report.method["fixed"]),
        "queries": f"{counts['n_valid']:,} valid of {counts['n_query']:,}",
        "gallery": f"{counts['n_gallery']:,} rows",
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        "digest": report.result_digest[:16],
    }
    return [
        *lines,
        "",
        *(f"{name:<8}  {words}" for name, words in facts.items()),
        *(f"note      {note}" for note in report.notes),
    ]


def _fixed(values: dict[str, Any]) -> str:
    """Parameters that were not swept."""
    return f" ({', '.join(f'{name} {_written(value)}' for name, value in values.items())})" if values else ""


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _setting(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={_written(value)}" for name, value in values.items())
