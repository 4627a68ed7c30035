"""``reid-dist splits``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.job_options import shared_options
from reid_dist.cli.options import (
    DRAW,
    GroupedCommand,
    RunOptions,
    cluster_options,
    observation_options,
    option,
    output_options,
    run_options,
)


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
    *("protocol", "distance", "metrics", "max_rank", "collapse", "chunk_rows"),
    max_rank={"help": "Length of the CMC curve."},
)
@cluster_options
@output_options(
    output="Write splits.json, splits.html there.",
    workspace="Directory for drawn rows, seen by all workers. Default: DIR/workspace. What is put there is removed.",
    resume="Resume an output directory: splits that are done are not evaluated again.",
)
@observation_options
@run_options()
def command(query: str, gallery: str, run: RunOptions, as_json: bool, **options: Any) -> None:
    """Evaluate QUERY against galleries drawn at random from GALLERY; print mean and spread of every metric.

    Every split keeps some rows of every gallery identity, by default one. VehicleID takes the other rows as queries,
    SYSU-MM01 draws under every camera. The CMC of SYSU-MM01 ranks distinct identities: add --collapse CMC:pid. Without
    it CMC@k ranks rows, and rank 1 and mAP alone agree with published numbers.

    \b
    Examples:
      reid-dist splits data/vid.zarr data/vid.zarr --rest-as-queries --protocol no_cameras --output results/vid
      reid-dist splits data/ir.zarr data/rgb.zarr --per-camera --collapse CMC:pid --metric mAP,CMC@1,CMC@10
      reid-dist splits data/ir.zarr data/rgb.zarr --per-camera --output results/rgb --resume
    """
    from reid_dist.cli.splitting import deliver_splits, evaluate_drawn

    report = evaluate_drawn(query, gallery, {**options, "metrics": list(options["metrics"]) or None}, run)
    deliver_splits(report, as_json=as_json, output=run.output)
