"""``reid-dist plot``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.click_options import PATH

_CURVES = ("cmc", "pr", "roc", "det", "distractor")
_COLUMNS = ("one", "two")


def _width(ctx: click.Context, param: click.Parameter, value: str) -> str | float:
    """``one``, ``two``, or a number of inches."""
    return value if value in _COLUMNS else click.FLOAT(value, param, ctx)


@click.command("plot")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PATH)
@click.option(
    "--curve", type=click.Choice(_CURVES, case_sensitive=False), default="cmc", show_default=True, help="Curve to draw."
)
@click.option("--metric", metavar="NAME", help="Metric of the distractor curve. Default: the first one.")
@click.option("--name", "names", multiple=True, metavar="TEXT", help="Name of a run; give one per run, in order.")
@click.option("--output", type=PATH, required=True, metavar="FILE", help="File to write: .pdf, .svg or .png.")
@click.option(
    "--width",
    callback=_width,
    metavar="one|two|INCHES",
    default="one",
    show_default=True,
    help="Width of the figure: one column (3.25 inches) or two (6.875).",
)
@click.option(
    "--height", type=float, metavar="INCHES", help="Height of the figure. Default: 0.72 of the width, plus the legend."
)
@click.option(
    "--font-size", type=float, metavar="POINTS", help="Font size in points. Default: that of the style sheet, or 8."
)
@click.option("--style", metavar="NAME|FILE", help="Style sheet for matplotlib.")
def command(
    runs: tuple[Path, ...],
    curve: str,
    metric: str | None,
    names: tuple[str, ...],
    output: Path,
    width: str | float,
    height: float | None,
    font_size: float | None,
    style: str | None,
) -> None:
    """Draw a curve of one or more runs as a figure for a paper.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good.

    roc and det need runs made with --roc, and distractor needs runs made with --breakdown gallery_size. The band of a
    cmc is its confidence interval at each rank. Colours, fonts and lines follow your matplotlib style sheet. The extra
    `plot` installs matplotlib.

    \b
    Examples:
      reid-dist plot results/plain results/reranked --output cmc.pdf
      reid-dist plot results/plain results/reranked --curve pr --width two --font-size 9 --output pr.svg
    """
    from reid_dist.errors import load_all
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.plots.figures import FORMATS, ONE_COLUMN, TWO_COLUMNS, figure_file
    from reid_dist.reports.plots.run_curves import curve_chart
    from reid_dist.reports.report_files import refuse_existing, write_or_refuse
    from reid_dist.reports.tables import comparable, distinct_names, run_names

    form = output.suffix.lower().removeprefix(".")
    if form not in FORMATS:
        raise click.UsageError(f"--output must end in .pdf, .svg or .png, found {output.name}")
    if names and len(names) != len(runs):
        raise click.UsageError(f"--name is given {len(names)} times for {len(runs)} runs; give it once for each")
    refuse_existing(output)
    reports = load_all(load_report, runs)
    named = distinct_names(names or run_names(runs, reports), reports)
    groups = comparable(reports)
    if len(groups) > 1:
        words = "; ".join(", ".join(list(named)[at] for at in members) for members in groups)
        click.echo(
            f"note: runs with different protocols, queries, galleries or labels are not comparable: {words}", err=True
        )
    inches = dict(zip(_COLUMNS, (ONE_COLUMN, TWO_COLUMNS), strict=True)).get(str(width)) or float(width)
    chart = curve_chart(curve, named, metric, bands=True)
    write_or_refuse(output, figure_file(chart, form, width=inches, height=height, font_size=font_size, style=style))
    click.echo(f"written: {output}")
