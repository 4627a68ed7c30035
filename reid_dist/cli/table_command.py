"""``reid-dist table``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import click

from reid_dist.cli.click_options import test_options

_FORMATS = ("console", "markdown", "latex", "csv", "html", "json")


@click.command("table")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--metric", "metrics", multiple=True, metavar="NAME", help="Repeatable. Default: all that all runs have.")
@click.option("--name", "names", multiple=True, metavar="TEXT", help="Name of a run, once for each, in their order.")
@click.option("--format", "form", type=click.Choice(_FORMATS), default="console", show_default=True)
@click.option("--intervals", is_flag=True, help="Show the interval of every value.")
@click.option("--letters", is_flag=True, help="Mark runs by letters; those that share one do not differ significantly.")
@click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level; tests use 1 - level.")
@test_options
@click.option("--output", type=click.Path(path_type=Path), metavar="FILE", help="Write the table there, and print it.")
def command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    names: tuple[str, ...],
    form: str,
    intervals: bool,
    letters: bool,
    output: Path | None,
    **draws: Any,
) -> None:
    """Put many runs into one table: for a terminal, a paper, a spreadsheet or a browser.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    Runs that differ in protocol, queries, gallery or labels are put into groups of their own, and are sorted by the
    first metric. Within a group the best value of every metric is marked, and values that do not differ significantly
    from it have a dagger: paired bootstrap and sign-flip test by identity, with Holm's correction for all pairs of
    runs. Notes state the conventions.

    \b
    Examples:
      reid-dist table results/plain results/reranked results/expanded
      reid-dist table results/plain results/reranked --metric mAP --intervals --format latex --output table.tex
      reid-dist table results/plain results/reranked --name baseline --name re-ranked --format html --output table.html
    """
    from reid_dist.cli.run_table import print_table
    from reid_dist.cli.saved_text import refuse_existing, write_text
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.tables import compare_runs, run_names

    if form == "console" and output is not None:
        raise click.UsageError("--output needs a --format other than console")
    refuse_existing(output)
    reports = [load_report(run) for run in runs]
    table = compare_runs(
        reports, names=names or run_names(runs, reports), metrics=metrics or None, pictures=form == "html", **draws
    )
    texts: dict[str, Callable[[], str]] = {
        "markdown": partial(table.to_markdown, intervals=intervals, letters=letters),
        "latex": partial(table.to_latex, intervals=intervals, letters=letters),
        "csv": table.to_csv,
        "html": partial(table.to_html, letters=letters),
        "json": table.to_json,
    }
    if output is not None:
        write_text(output, texts[form]())
    if form == "console" or output is not None:
        print_table(table, intervals=intervals, letters=letters)
    else:
        click.echo(texts[form](), nl=False)
