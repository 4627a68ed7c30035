"""``reid-dist sweep``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from reid_dist.cli.click_options import (
    SWEPT,
    GroupedCommand,
    RunOptions,
    cluster_options,
    observation_options,
    option,
    output_options,
    run_options,
    shared_options,
    sides_arguments,
)
from reid_dist.evaluation.options import LEFT_OUT
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS

F = TypeVar("F", bound=Callable[..., Any])


def _swept_options(function: F) -> F:
    """Add an option for every parameter that can be swept."""
    for name, each in reversed([*SWEPT_PARAMETERS.items()]):
        function = option(f"--{name.replace('_', '-')}", group=SWEPT, metavar="VALUES", help=each.help)(function)
    return function


@click.command("sweep", cls=GroupedCommand)
@sides_arguments
@option("--expand", group=SWEPT, metavar="SPEC", help="Expansion to sweep, such as aqe; in dba(k=5)+aqe, the last one.")
@option(
    "--include-self", group=SWEPT, is_flag=True, help="Queries are gallery items (by item id) and count among the k."
)
@option("--rerank", group=SWEPT, metavar="SPEC", help="Re-ranking to sweep, such as k_reciprocal.")
@_swept_options
@shared_options(
    *("fuse", *LEFT_OUT),
    *("protocol", "distance", "metrics", "max_rank", "collapse", "ground_truth", "chunk_rows"),
    metrics={"help": "mAP, CMC@10 (or rank-10), …; repeatable, or separated by commas.  [default: mAP, CMC@1, mINP]"},
    max_rank={"help": "Last rank of the curves that the digest covers."},
)
@cluster_options
@output_options(
    output="Write sweep.json and sweep.html there.",
    workspace="Directory in which neighbour lists and derived features are kept; all workers must see it. Default: "
    "DIR/workspace, which is removed at the end.",
    resume="Resume an output directory and evaluate only the points that are missing.",
)
@observation_options
@run_options()
def command(query: str, gallery: str, run: RunOptions, as_json: bool, **options: Any) -> None:
    """Evaluate QUERY against GALLERY at every point of a parameter grid, with a single neighbour search.

    VALUES are names, or numbers and ranges, separated by commas. Ranges include both ends: 0:10, 0:1:0.1, 1,6,10:30:5.

    \b
    Examples:
      reid-dist sweep q.zarr g.zarr --expand aqe --k 0:10 --output results/aqe
      reid-dist sweep q.zarr g.zarr --expand alpha_qe --k 1:10 --alpha 0,1,3 --metric mAP
      reid-dist sweep q.zarr g.zarr --fuse data/other --weight 0:1:0.1
      reid-dist sweep q.zarr g.zarr --rerank gnn --rounds 0:3 --lambda-value 0,0.3
      reid-dist sweep q.zarr g.zarr --rerank k_reciprocal --k1 10:30:10 --k2 1,6 --lambda-value 0,0.3
    """
    from reid_dist.cli.resumable import deliver_report
    from reid_dist.cli.sweeping import sweep_sides

    report = sweep_sides(query, gallery, {**options, "metrics": list(options["metrics"]) or None}, run)
    deliver_report(report, as_json=as_json, output=run.output)
