"""``reid-dist average``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.click_options import PATH, metrics_option
from reid_dist.cli.result_place import ResultPlace, result_options


@click.command("average")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@metrics_option("average")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level.")
@click.option("--allow-different", is_flag=True, help="Average even if conventions differ.")
@result_options("averages")
def command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    level: float,
    allow_different: bool,
    place: ResultPlace,
) -> None:
    """Average the metrics of two or more runs of one benchmark: ten models, ten splits, two galleries.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    Features, labels and numbers of rows may differ. Protocol, distance, expansion, re-ranking, order of ties, max_rank,
    single-shot draws and definitions of metrics must agree. The spread is the sample standard deviation over the runs,
    and the interval is Student's t for their mean. It assumes independent runs; if they share images, it is too
    narrow.

    \b
    Examples:
      reid-dist average results/split1 results/split2 results/split3
      reid-dist average results/g1 results/g2 --metric mAP --metric CMC@1 --output results/mean.tex
      reid-dist average nightly.db#11:resnet50/regdb/1 nightly.db#11:resnet50/regdb/2
    """
    from reid_dist.errors import load_all
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.averages import average_runs

    average = average_runs(
        load_all(load_report, runs),
        names=[str(run) for run in runs],
        metrics=metrics or None,
        level=level,
        allow_different=allow_different,
    )
    place.deliver(average)
