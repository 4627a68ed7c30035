"""What ``reid-dist sweep``, and ``reid-dist run`` of a pipeline with a sweep, have in common."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from reid_dist.cli.line import RESUME_OTHERWISE, named_already, resumable, this_run, workspace_for
from reid_dist.cli.memory import refuse_long_curves
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import points, rows_progress
from reid_dist.cli.unfinished import differing, unfinished
from reid_dist.clusters import ClusterConfig
from reid_dist.core.plurals import counted
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.options import complete
from reid_dist.evaluation.pipelines import SweptParameters
from reid_dist.evaluation.sweeps import USUAL_METRICS, SweepReport, make_grid, sweep_parameters
from reid_dist.evaluation.sweeps.grid import Grid
from reid_dist.evaluation.sweeps.report import DOCUMENT
from reid_dist.reports.caution import caution_of, without_warnings
from reid_dist.reports.files import refuse_occupied, refuse_uri
from reid_dist.reports.plain import plain
from reid_dist.reports.words import metric_value
from reid_dist.stores import FeatureSet
from reid_dist.stores.importers import open_features

__all__ = ["deliver_sweep", "sweep_sides"]

_BEST = "*"


def sweep_sides(
    query: str,
    gallery: str,
    options: dict[str, Any],
    cluster: ClusterConfig,
    *,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    performance_page: Path | None,
    description: str = "",
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
    name
        Of the run; None for that of `output`.
    workspace
        Where lists and derived features stay; None for a place that goes when all is done.
    resume
        Whether `output` may hold an earlier sweep of the same kind, finished or not.
    performance_page
        Where Dask's performance report goes.
    description
        Of the pipeline, if it has one.

    Raises
    ------
    StoreExistsError
        If `output` holds something and `resume` is not set.
    InputError
        If it holds another sweep.
    RunFailedError
        If the cluster broke; the message says what is left.
    """
    # What makes no sense is told before anything is read or started.
    grid = make_grid(
        options["expand"],
        options["rerank"],
        {name: options.get(name) for name in SweptParameters.model_fields},
        include_self=options.get("include_self", False),
    )
    refuse_unobservable(cluster, performance_page)
    if output is not None:
        refuse_uri(output) if resume else refuse_occupied(output, otherwise=RESUME_OTHERWISE)
    finished = resume and output is not None and (output / DOCUMENT).is_file()
    with contextlib.ExitStack() as on_exit:
        folder = on_exit.enter_context(workspace_for(output, workspace))
        with rows_progress() as progress:
            near = open_features(query, role="query", progress=progress)
            far = open_features(gallery, role="gallery", progress=progress)
        if finished and output is not None:
            return named_already(
                _same_sweep(SweepReport.load(output), grid, options, (near, far), output), name, output
            )
        refuse_long_curves(near.n_rows, options["max_rank"])
        on_exit.enter_context(resumable(folder, output))
        begun = {} if output is None else _identity(grid, options, (near, far))
        on_exit.enter_context(unfinished(output, folder, begun))
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
    report = replace(report, run=this_run(name, output, report.heading.title, description=description))
    if output is not None:
        report.save(output)
    return report


def _same_sweep(
    report: SweepReport, grid: Grid, options: dict[str, Any], sides: tuple[FeatureSet, FeatureSet], output: Path
) -> SweepReport:
    """Return a finished sweep if it is the answer to this very question."""
    found = {
        **{name: report.inputs[name]["content_digest"] for name in ("query", "gallery")},
        "method": report.method,
        "parameters": report.parameters,
        "protocol": {name: text for name, text in report.protocol.items() if name != "ground_truth"},
        "ground truth": report.protocol.get("ground_truth", {}).get("content_digest"),
        "distance": report.distance["name"],
        "metrics": report.metric_names,
        "max_rank": report.options["max_rank"],
    }
    others = differing(_identity(grid, options, sides), found)
    if others:
        raise InputError(f"{output} holds another sweep ({', '.join(others)} differ); choose another --output")
    return report


def _identity(grid: Grid, options: dict[str, Any], sides: tuple[FeatureSet, FeatureSet]) -> dict[str, Any]:
    """All that the answer to a sweep depends on, by name."""
    asked = {name: options[name] for name in ("protocol", "metrics", "max_rank", "ground_truth")}
    question = CheckedOptions.of(complete({**asked, "metrics": asked["metrics"] or list(USUAL_METRICS)}), *sides)
    return {
        "query": sides[0].content_digest,
        "gallery": sides[1].content_digest,
        "method": plain(grid.method),
        "parameters": {axis.name: plain(axis.values) for axis in grid.axes},
        "protocol": plain(question.protocol.describe()),
        "ground truth": None if question.truth is None else question.truth.content_digest,
        "distance": options["distance"],
        "metrics": [metric.name for metric in question.metrics],
        "max_rank": question.values["max_rank"],
    }


def deliver_sweep(report: SweepReport, *, as_json: bool, output: Path | None) -> None:
    """Print a sweep, and say where its page is."""
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    click.echo("\n".join(_lines(report)))
    if output is not None:
        click.echo(f"\nwritten to {output}: sweep.html, sweep.json")


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
    caution = caution_of(counts, report.protocol, counts.get("n_identities"), report.notes)
    facts = {
        _BEST: "best value of its metric; of equal ones, the first",
        **report.heading.chosen("date", "command"),
        "method": report.method["name"] + _fixed(report.method["fixed"]),
        "queries": f"{counts['n_valid']:,} valid of {counts['n_query']:,}",
        "gallery": counted(counts["n_gallery"], "row"),
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        **report.heading.chosen("version", "digest"),
    }
    return [
        *report.heading.lines,
        *([] if caution is None else [caution.line]),
        "",
        *lines,
        "",
        *(f"{name:<8}  {words}" for name, words in facts.items()),
        *(f"note      {note}" for note in without_warnings(report.notes)),
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
