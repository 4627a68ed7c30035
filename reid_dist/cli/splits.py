"""``reid-dist splits``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from reid_dist.cli.grouping import DRAW, OUTPUTS, RESOURCES, GroupedCommand, option
from reid_dist.cli.job_options import shared_options
from reid_dist.cli.options import (
    choose_cluster,
    cluster_options,
    name_option,
    observation_options,
    refuse_idle_resume,
)

if TYPE_CHECKING:
    from reid_dist.evaluation.splits import SplitReport

__all__ = ["command"]


@click.command("splits", cls=GroupedCommand)
@click.argument("query")
@click.argument("gallery")
@option("--repeats", group=DRAW, type=int, default=10, show_default=True, metavar="N", help="Number of splits.")
@option(
    "--per-identity",
    group=DRAW,
    type=int,
    default=1,
    show_default=True,
    metavar="N",
    help="Rows to keep of every gallery identity.",
)
@option("--per-camera", group=DRAW, is_flag=True, help="Keep so many of every identity under every camera.")
@option(
    "--rest-as-queries", group=DRAW, is_flag=True, help="Rows that are not kept are the queries; give one set twice."
)
@option("--seed", group=DRAW, type=int, default=0, show_default=True, metavar="N", help="Of the draw.")
@shared_options(
    *("protocol", "distance", "metrics", "max_rank", "chunk_rows"), max_rank={"help": "Length of the CMC curve."}
)
@cluster_options
@option(
    "--output",
    group=OUTPUTS,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write splits.json, splits.html there.",
)
@name_option
@option(
    "--workspace",
    group=RESOURCES,
    metavar="URI",
    help="Directory for drawn rows, seen by all workers. Default: DIR/workspace. What is put there is removed.",
)
@option(
    "--resume",
    group=OUTPUTS,
    is_flag=True,
    help="Take up an output directory: splits that are done are not evaluated again.",
)
@option("--json", "as_json", group=OUTPUTS, is_flag=True, help="Print the report as JSON, and nothing else.")
@observation_options
def command(
    query: str,
    gallery: str,
    repeats: int,
    per_identity: int,
    per_camera: bool,
    rest_as_queries: bool,
    seed: int,
    protocol: str,
    distance: str,
    metrics: tuple[str, ...],
    max_rank: int,
    chunk_rows: int | None,
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    as_json: bool,
    performance_report: Path | None,
) -> None:
    """Evaluate QUERY against galleries drawn at random from GALLERY; print mean and spread of every metric.

    Every split keeps some rows of every gallery identity, by default one. VehicleID takes the other rows as queries,
    SYSU-MM01 draws under every camera. The CMC of SYSU-MM01 ranks distinct identities, and CMC@k here ranks rows: of
    its published numbers, rank 1 and mAP alone agree with these.

    \b
    Examples:
      reid-dist splits data/vid.zarr data/vid.zarr --rest-as-queries --protocol no_cameras --output results/vid
      reid-dist splits data/ir.zarr data/rgb.zarr --per-camera --repeats 10 --seed 1 --metric mAP --metric CMC@1
      reid-dist splits data/ir.zarr data/rgb.zarr --per-camera --output results/rgb --resume
    """
    refuse_idle_resume(resume, output)
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.cli.splitting import evaluate_drawn
    from reid_dist.evaluation.splits import Draw

    report = evaluate_drawn(
        query,
        gallery,
        Draw(
            repeats=repeats,
            per_identity=per_identity,
            per_camera=per_camera,
            seed=seed,
            rest_as_queries=rest_as_queries,
        ),
        {
            "protocol": protocol,
            "distance": distance,
            "metrics": list(metrics) or None,
            "max_rank": max_rank,
            "chunk_rows": chunk_rows,
        },
        cluster,
        output=output,
        name=name,
        workspace=workspace,
        resume=resume,
        performance_page=performance_report,
    )
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    click.echo("\n".join(_lines(report)))
    if output is not None:
        click.echo(f"\nwritten to {output}: splits.html, splits.json")


def _lines(report: SplitReport) -> list[str]:
    """The report as a table of plain text."""
    from reid_dist.core.formatting import counted
    from reid_dist.reports.caution import without_warnings
    from reid_dist.reports.splits import splits_caution
    from reid_dist.reports.words import metric_value

    header = ("metric", "mean", "spread", "lowest", "highest")
    rows: list[tuple[str, ...]] = [header]
    for name, values in report.per_split.items():
        cells = (report.metrics[name], report.spread[name], float(values.min()), float(values.max()))
        rows.append((name, *(metric_value(name, value) for value in cells)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    table = [
        "   ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    draw, counts = report.draw, report.counts
    caution = splits_caution(counts, report.protocol, report.notes)
    kind = "identity and camera" if draw["per_camera"] else "identity"
    facts = {
        **report.heading.chosen("date", "command"),
        "splits": f"{report.n_splits}, {draw['per_identity']} of each {kind}, seed {draw['seed']}",
        "spread": "sample standard deviation over the splits",
        "queries": f"{_span(counts['n_valid'])} valid of {_span(counts['n_query'])}",
        "gallery": f"{_span(counts['n_gallery'])} rows of {counted(counts['n_identity'], 'identity')}",
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        **report.heading.chosen("version", "digest"),
    }
    return [
        *report.heading.lines,
        *([] if caution is None else [caution.line]),
        "",
        *table,
        "",
        *(f"{name:<8}  {words}" for name, words in facts.items()),
        *(f"note      {n}" for n in without_warnings(report.notes)),
    ]


def _span(values: list[int]) -> str:
    """Counts of all splits: one number where they agree."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
