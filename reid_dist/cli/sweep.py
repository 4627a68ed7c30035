"""``reid-dist sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.grouping import OUTPUTS, RESOURCES, SWEPT, GroupedCommand, option
from reid_dist.cli.job_options import VARIANTS, shared_options
from reid_dist.cli.options import (
    choose_cluster,
    cluster_options,
    name_option,
    observation_options,
    refuse_idle_resume,
)

__all__ = ["command"]


@click.command("sweep", cls=GroupedCommand)
@click.argument("query")
@click.argument("gallery")
@option("--expand", group=SWEPT, metavar="SPEC", help="The expansion, such as aqe; of dba(k=5)+aqe, the last is swept.")
@option("--k", group=SWEPT, metavar="VALUES", help="Numbers of neighbours of the expansion.")
@option("--alpha", group=SWEPT, metavar="VALUES", help="Exponents of their similarities.")
@option(
    "--include-self", group=SWEPT, is_flag=True, help="Queries sit in the gallery, by item id, and are one of the k."
)
@option("--rerank", group=SWEPT, metavar="SPEC", help="The re-ranking, such as k_reciprocal.")
@option("--k1", group=SWEPT, metavar="VALUES", help="Neighbours that a reciprocal set is taken from.")
@option("--k2", group=SWEPT, metavar="VALUES", help="Items whose weights are averaged.")
@option("--lambda-value", group=SWEPT, metavar="VALUES", help="Weights of the plain distance, 0 to 1.")
@option("--variant", group=SWEPT, metavar="NAMES", help=f"Variants of the re-ranking: {', '.join(VARIANTS)}.")
@shared_options(
    *("protocol", "distance", "metrics", "max_rank", "ground_truth", "chunk_rows"),
    metrics={"help": "mAP, CMC@10 (or rank-10), …; repeatable, or with commas.  [default: mAP, CMC@1, mINP]"},
    max_rank={"help": "Length of the curves in the digests."},
)
@cluster_options
@option(
    "--output",
    group=OUTPUTS,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write sweep.json and sweep.html there.",
)
@name_option
@option(
    "--workspace",
    group=RESOURCES,
    metavar="URI",
    help="Directory for neighbour lists and derived features, seen by all workers; they stay there. "
    "Default: DIR/workspace, and nothing stays.",
)
@option(
    "--resume",
    group=OUTPUTS,
    is_flag=True,
    help="Take up an output directory: points that are done are not evaluated again.",
)
@option("--json", "as_json", group=OUTPUTS, is_flag=True, help="Print the report as JSON, and nothing else.")
@observation_options
def command(
    query: str,
    gallery: str,
    metrics: tuple[str, ...],
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    as_json: bool,
    performance_report: Path | None,
    **asked: Any,
) -> None:
    """Evaluate QUERY against GALLERY at every point of a grid of parameters, from one sweep for neighbours.

    VALUES are numbers with commas between them and ranges that include both ends: 0:10, 0:1:0.1, 1,6,10:30:5.

    \b
    Examples:
      reid-dist sweep q.zarr g.zarr --expand aqe --k 0:10 --output results/aqe
      reid-dist sweep q.zarr g.zarr --expand alpha_qe --k 1:10 --alpha 0,1,3 --metric mAP
      reid-dist sweep q.zarr g.zarr --rerank k_reciprocal --k1 10:30:10 --k2 1,6 --lambda-value 0,0.3
    """
    refuse_idle_resume(resume, output)
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.cli.sweeping import deliver_sweep, sweep_sides

    options = {**asked, "metrics": list(metrics) or None}
    report = sweep_sides(
        query,
        gallery,
        options,
        cluster,
        output=output,
        name=name,
        workspace=workspace,
        resume=resume,
        performance_page=performance_report,
    )
    deliver_sweep(report, as_json=as_json, output=output)
