"""``reid-dist table``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.click_options import PATH, image_root_option, metrics_option, test_options
from reid_dist.cli.result_place import ResultPlace, result_options


@click.command("table")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@metrics_option("show")
@click.option("--name", "names", multiple=True, metavar="TEXT", help="Name of a run; give one per run, in order.")
@click.option("--intervals", is_flag=True, help="Show the interval of every value.")
@click.option(
    "--letters", is_flag=True, help="Mark runs by letters: runs that share a letter do not differ significantly."
)
@test_options
@image_root_option
@result_options("table")
def command(
    runs: tuple[Path, ...],
    metrics: tuple[str, ...],
    names: tuple[str, ...],
    intervals: bool,
    letters: bool,
    place: ResultPlace,
    **draws: Any,
) -> None:
    """Put many runs into one table: for a terminal, a paper, a spreadsheet or a browser.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    Runs that differ in protocol, queries, gallery or labels go into separate groups. Within a group, runs are sorted by
    the first metric, and the best value of every metric is marked. A dagger marks values that do not differ
    significantly from the best one (paired bootstrap and sign-flip test by identity, Holm-corrected for all pairs of
    runs). Notes state the conventions.

    \b
    Examples:
      reid-dist table results/plain results/reranked results/expanded
      reid-dist table results/plain results/reranked --metric mAP --intervals --output table.tex
      reid-dist table results/plain results/reranked --name baseline --name re-ranked --output table.html
    """
    from reid_dist.errors import load_all
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.tables import ShownRuns, compare_runs, run_names

    reports = load_all(load_report, runs)
    named = names or run_names(runs, reports)
    table = compare_runs(reports, names=named, metrics=metrics or None, pictures=place.form == "html", **draws)
    place.deliver(ShownRuns(table, intervals, letters))
