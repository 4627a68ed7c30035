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
    help="A printed number such as mAP=74.7, with its digits; above 1 in percent. Repeatable.",
)
@option(
    "--metric",
    "metrics",
    group=CONVENTIONS,
    multiple=True,
    metavar="NAME",
    help="Metrics of ranks in place of the usual ones; repeatable, or with commas.",
)
@option(
    "--distance",
    "distances",
    group=CONVENTIONS,
    multiple=True,
    metavar="NAME",
    help="Repeatable; each is a pass of its own. Default: cosine and euclidean.",
)
@option(
    "--also",
    group=CONVENTIONS,
    multiple=True,
    metavar="SPEC",
    help="Also try this re-ranking or expansion, such as k_reciprocal, 'dba(k=5)', or l2, float16 and flip_sign, which "
    "'treatments' means together; each is a pass for each distance. Repeatable.",
)
@option(
    "--single-shot",
    group=CONVENTIONS,
    is_flag=True,
    help="Add those of CUHK03, with one gallery item per identity in the CMC; up to twice the time.",
)
@result_options("table")
@shared_options(*LEFT_OUT)
@options_in_threads
def command(
    query: str,
    gallery: str,
    targets: tuple[str, ...],
    metrics: tuple[str, ...],
    distances: tuple[str, ...],
    also: tuple[str, ...],
    single_shot: bool,
    place: ResultPlace,
    run: RunOptions,
    **left_out: Any,
) -> None:
    """Compute the metrics of QUERY and GALLERY under every convention, to find which one a number follows.

    One pass for each distance gives all of them: items of the query's identity and camera junk or kept, pid -1 and pid
    0 junk or not, own rows of queries junk or not, invalid queries left out or at 0, each with several average
    precisions and CMC curves. Every value is that of a run of its own.

    With --target the conventions are sorted by nearness to the number. mAP means any average precision there, CMC@k
    any kind of CMC.

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
    parse_targets(targets)
    parse_also(also)
    near, far = open_sides(query, gallery, **left_out)
    with observed_cluster(run.cluster, run.performance_page) as client, stages() as progress:
        table = conventions(
            near,
            far,
            targets=targets,
            metrics=metrics or None,
            distances=distances or None,
            also=also,
            single_shot=single_shot,
            client=client,
            workspace=run.workspace,
            progress=progress,
        )
    place.deliver(table)
