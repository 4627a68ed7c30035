"""``reid-dist conventions``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.click_options import (
    CONVENTIONS,
    GroupedCommand,
    RunOptions,
    option,
    options_in_threads,
    shared_options,
    sides_arguments,
)
from reid_dist.cli.result_place import ResultPlace, result_options
from reid_dist.evaluation.options import LEFT_OUT


@click.command("conventions", cls=GroupedCommand)
@sides_arguments
@option(
    "--target",
    "targets",
    group=CONVENTIONS,
    multiple=True,
    metavar="METRIC=NUMBER",
    help="Published number such as mAP=74.7, with all its digits; values above 1 are percentages. Repeatable.",
)
@option(
    "--metric",
    "metrics",
    group=CONVENTIONS,
    multiple=True,
    metavar="NAME",
    help="Metric to show instead of the default ones (rank-based metrics only); repeatable, or separated by commas.",
)
@option(
    "--distance",
    "distances",
    group=CONVENTIONS,
    multiple=True,
    metavar="NAME",
    help="Distance to try, one pass each; repeatable. Default: cosine and euclidean.",
)
@option(
    "--also",
    group=CONVENTIONS,
    multiple=True,
    metavar="SPEC",
    help="Also try this re-ranking, expansion or feature treatment: k_reciprocal, 'dba(k=5)', l2, float16, flip_sign, "
    "… 'treatments' tries l2, float16 and flip_sign. Each takes one pass per distance. Repeatable.",
)
@option(
    "--single-shot",
    group=CONVENTIONS,
    is_flag=True,
    help="Add the CUHK03 conventions (one gallery item per identity in the CMC). Takes up to twice the time.",
)
@result_options("table")
@shared_options(*LEFT_OUT)
@options_in_threads
def command(query: str, gallery: str, place: ResultPlace, run: RunOptions, **options: Any) -> None:
    """Compute the metrics of QUERY and GALLERY under every convention, to find which one a number follows.

    One pass per distance covers all combinations of these choices: items with the query's identity and camera are junk
    or kept; pid -1 and pid 0 are junk or not; a query's own row is junk or not; invalid queries are left out or count
    as 0. Each combination has several average precisions and CMC curves. Every value equals that of a separate run.

    With --target, the conventions are sorted by their distance from the number. There, mAP stands for any average
    precision and CMC@k for any kind of CMC.

    \b
    Examples:
      reid-dist conventions data/query.zarr data/gallery.zarr --output results/conventions.json
      reid-dist conventions pytorch_result.mat --target mAP=74.7 --target CMC@1=88.1
      reid-dist conventions q.zarr g.zarr --distance cosine --metric mAP,mAP_found@10
      reid-dist conventions q.zarr g.zarr --target mAP=85.1 --also k_reciprocal --also treatments
    """
    from reid_dist.cli.observed import observed_cluster, refuse_unobservable
    from reid_dist.cli.progress import stages
    from reid_dist.cli.resumable import open_sides
    from reid_dist.evaluation.convention_passes import conventions
    from reid_dist.evaluation.convention_stages import parse_also
    from reid_dist.evaluation.convention_table import parse_targets

    refuse_unobservable(run.cluster, run.performance_page)
    # Before anything is read.
    parse_targets(options["targets"])
    parse_also(options["also"])
    near, far = open_sides(query, gallery, **{name: options.pop(name) for name in LEFT_OUT})
    options |= {name: options[name] or None for name in ("metrics", "distances")}
    with observed_cluster(run.cluster, run.performance_page) as client, stages() as progress:
        table = conventions(near, far, **options, client=client, workspace=run.workspace, progress=progress)
    place.deliver(table)
