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
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS

F = TypeVar("F", bound=Callable[..., Any])


def _swept_options(function: F) -> F:
    """Add an option for every parameter that can be swept."""
    for name, each in reversed([*SWEPT_PARAMETERS.items()]):
        function = option(f"--{name.replace('_', '-')}", group=SWEPT, metavar="VALUES", help=each.help)(function)
    return function


@click.command("sweep", cls=GroupedCommand)
@sides_arguments
@option("--expand", group=SWEPT, metavar="SPEC", help="Expansion to sweep, such as aqe; in dba(k=5)+aqe the last one.")
@option(
    "--include-self",
    group=SWEPT,
    is_flag=True,
    help="The query is a gallery item (found by item id) and counts among the k.",
)
@option("--rerank", group=SWEPT, metavar="SPEC", help="The re-ranking, such as k_reciprocal.")
@_swept_options
@shared_options(
    *("fuse", "protocol", "distance", "metrics", "max_rank", "collapse", "ground_truth", "chunk_rows"),
    metrics={"help": "mAP, CMC@10 (or rank-10), …; repeatable, or with commas.  [default: mAP, CMC@1, mINP]"},
    max_rank={"help": "Last rank of the curves that the digest covers."},
)
@cluster_options
@output_options(
    output="Write sweep.json and sweep.html there.",
    workspace="Directory for neighbour lists and derived features, seen by all workers; they stay there. "
    "Default: DIR/workspace, and nothing stays.",
    resume="Resume an output directory: points that are done are not evaluated again.",
)
@observation_options
@run_options()
def command(query: str, gallery: str, run: RunOptions, as_json: bool, **options: Any) -> None:
    """Evaluate QUERY against GALLERY at every point of a grid of parameters, from one search for neighbours.

    VALUES are names, or numbers and ranges with both ends, with commas between them: 0:10, 0:1:0.1, 1,6,10:30:5.

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
