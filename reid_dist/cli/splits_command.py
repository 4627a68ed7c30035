"""``reid-dist splits``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.click_options import (
    DRAW,
    GroupedCommand,
    RunOptions,
    cluster_options,
    given_options,
    observation_options,
    output_options,
    run_options,
    shared_options,
    sides_arguments,
)
from reid_dist.evaluation.options import LEFT_OUT, SPLIT_OPTIONS


@click.command("splits", cls=GroupedCommand)
@sides_arguments
@shared_options(
    *("fuse", *LEFT_OUT),
    *SPLIT_OPTIONS,
    *("seed", "benchmark", "other_codes", "protocol", "distance", "metrics", "max_rank", "collapse", "chunk_rows"),
    seed={"group": DRAW, "help": "Random seed of the draw."},
    max_rank={"help": "Last rank of the CMC curve."},
)
@cluster_options
@output_options(
    output="Write splits.json and splits.html there.",
    workspace="Directory for drawn rows; all workers must see it. Default: DIR/workspace. Contents are removed at the "
    "end.",
    resume="Resume an output directory and evaluate only the splits that are missing.",
)
@observation_options
@run_options()
def command(query: str, gallery: str, run: RunOptions, as_json: bool, **options: Any) -> None:
    """Evaluate QUERY against several galleries drawn from GALLERY; print mean and spread of every metric.

    Each split keeps random rows of every gallery identity (one by default), or the rows that --rows lists. VehicleID
    uses the other rows as queries, and SYSU-MM01 draws per camera; --benchmark sets this and the protocol. The CMC of
    SYSU-MM01 ranks distinct identities: without --benchmark, add --collapse CMC:pid. Otherwise CMC@k ranks rows, and
    only rank 1 and mAP agree with published numbers.

    \b
    Examples:
      reid-dist splits data/vid.zarr data/vid.zarr --rest-as-queries --protocol no_cameras --output results/vid
      reid-dist splits data/ir.zarr data/rgb.zarr --benchmark llcm --output results/llcm
      reid-dist splits data/ir.zarr data/rgb.zarr --per-camera --collapse CMC:pid --metric mAP,CMC@1,CMC@10
      reid-dist splits data/ir.zarr data/rgb.zarr --rows splits.json --by item_ids --output results/listed
    """
    from functools import partial

    from reid_dist.cli.progress import rows_progress, stages
    from reid_dist.cli.resumable import deliver_report, report_store, run_resumable
    from reid_dist.evaluation.runs import prepare_splits
    from reid_dist.evaluation.sides import Sides
    from reid_dist.evaluation.splits import SplitReport

    sides = Sides(query, gallery, options.pop("fuse"), **{name: options.pop(name) for name in LEFT_OUT})
    given = given_options(options)
    prepare = partial(prepare_splits, sides, given, rows_progress, stages)
    report = run_resumable(run, prepare, report_store(SplitReport, run))
    deliver_report(report, as_json=as_json, output=run.output)
