"""``reid-dist thresholds``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.click_options import (
    CONVENTIONS,
    INPUTS,
    OUTPUTS,
    PATH,
    GroupedCommand,
    RunOptions,
    option,
    options_in_threads,
)
from reid_dist.cli.result_place import ResultPlace, result_options


@click.command("thresholds", cls=GroupedCommand)
@click.argument("directory", metavar="RUN", type=PATH)
@option(
    "--pipeline",
    group=INPUTS,
    type=PATH,
    metavar="FILE",
    help="Pipeline file of the run; needed for a ground truth or fused models.",
)
@option(
    "--far",
    group=CONVENTIONS,
    multiple=True,
    metavar="X",
    help="False accept rate over pairs; repeatable. Default: 1e-6 to 1e-1, as far as the number of impostors allows.",
)
@option(
    "--fpir",
    group=CONVENTIONS,
    multiple=True,
    metavar="X",
    help="False positive identification rate over top matches of non-mated queries; repeatable. Default: 1e-3 to 1e-1.",
)
@option(
    "--threshold",
    "thresholds",
    group=CONVENTIONS,
    multiple=True,
    type=float,
    metavar="DISTANCE",
    help="Also report this threshold; repeatable.",
)
@option(
    "--prior",
    group=CONVENTIONS,
    type=float,
    metavar="SHARE",
    help="Share of matches among pairs at deployment; adds match probabilities for this share.",
)
@option(
    "--output",
    group=OUTPUTS,
    type=PATH,
    metavar="DIR",
    help="Write thresholds.json and thresholds.html there. If it is RUN itself, the section is also added to its page.",
)
@result_options("report", has_file=False)
@options_in_threads
def command(directory: Path, pipeline: Path | None, place: ResultPlace, run: RunOptions, **chosen: Any) -> None:
    """Compute error rates at distance thresholds of a finished RUN, and the match probability at a distance.

    RUN is an output directory, or an entry of a history: FILE#RUN:model/dataset/job. Its stores are read again, with
    its protocol, distance, expansion and re-ranking. Thresholds are chosen by given false accept rates, by the equal
    error rate, or by you. For each you get FAR and TAR of pairs, and FPIR, FNIR and precision of top matches, with
    intervals by identity. Histograms and the match probability at each distance follow.

    \b
    Examples:
      reid-dist thresholds results/market
      reid-dist thresholds results/market --output results/market
      reid-dist thresholds results/market --far 1e-4 --threshold 0.35 --prior 0.01 --output results/points
    """
    from reid_dist.cli.observed import observed_cluster, refuse_unobservable
    from reid_dist.cli.progress import rows_progress, stages
    from reid_dist.cli.resumable import words_of_command
    from reid_dist.evaluation.operating import RecordedRanking, RequestedPoints, points_of_run
    from reid_dist.evaluation.pipelines import read_job
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.report_files import refuse_occupied, refuse_unwritable, same_directory

    points = {**chosen, **{name: chosen[name] or None for name in ("far", "fpir")}}
    RequestedPoints.of(**points)
    beside = run.output is not None and same_directory(run.output, directory)
    if beside:
        refuse_unwritable(directory)
    elif run.output is not None:
        refuse_occupied(run.output, otherwise="or RUN itself")
    refuse_unobservable(run.cluster, run.performance_page)
    report = load_report(directory)
    ranking = RecordedRanking.of(report, None if pipeline is None else read_job(pipeline))
    with rows_progress() as reading:
        sides = ranking.sides.open(reading)
    ranking.refuse_changed(*sides)
    with observed_cluster(run.cluster, run.performance_page) as client, stages() as progress:
        found = points_of_run(
            report,
            sides,
            ranking.options,
            words_of_command(),
            **points,
            client=client,
            workspace=run.workspace,
            progress=progress,
        )
    if run.output is not None:
        found.save(run.output, overwrite=beside)
    if beside:
        load_report(directory).save(directory, overwrite=True)
    place.deliver(found)
    if run.output is not None and place.prints_text:
        pages = [found.page, found.document, *([report.page] if beside else [])]
        print(f"\nwritten to {run.output}: {', '.join(pages)}")
