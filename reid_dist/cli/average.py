"""``reid-dist average``."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("average")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Repeatable. Default: all that all runs have.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Nominal coverage of the intervals.")
@click.option("--allow-different", is_flag=True, help="Average although conventions differ.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="FILE", help="Also write the averages as JSON there."
)
@click.option("--json", "as_json", is_flag=True, help="Print the averages as JSON, and nothing else.")
def command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    level: float,
    allow_different: bool,
    output: Path | None,
    as_json: bool,
) -> None:
    """Average the metrics of two runs or more of one benchmark: ten models, ten splits, two galleries.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    Features, labels and numbers of rows may differ. Protocol, distance, expansion, re-ranking, order of ties, max_rank,
    single-shot draws and definitions of metrics must agree. The spread is the sample standard deviation over the runs,
    and the interval is Student's t for their mean. It takes the runs for independent: where they share training or test
    images, it is too narrow.

    \b
    Examples:
      reid-dist average results/split1 results/split2 results/split3
      reid-dist average results/g1 results/g2 --metric mAP --metric CMC@1 --output results/mean.json
      reid-dist average nightly.db#11:resnet50/regdb/1 nightly.db#11:resnet50/regdb/2
    """
    from reid_dist.cli.average_table import print_average
    from reid_dist.cli.saved_text import refuse_existing, write_text
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.averages import average_runs

    refuse_existing(output)
    average = average_runs(
        [load_report(run) for run in runs],
        names=[str(run) for run in runs],
        metrics=metrics or None,
        level=level,
        allow_different=allow_different,
    )
    if output is not None:
        write_text(output, average.to_json())
    if as_json:
        click.echo(average.to_json(), nl=False)
    else:
        print_average(average)
