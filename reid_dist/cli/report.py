"""``reid-dist report``."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["command"]


@click.command("report")
@click.argument("directories", nargs=-1, required=True, type=click.Path(path_type=Path))
def command(directories: tuple[Path, ...]) -> None:
    """Verify finished runs, print their tables and write their pages again.

    \b
    Example:
      reid-dist report results/plain results/other
    """
    from reid_dist.reports import Report, print_report
    from reid_dist.tuning import SweepReport
    from reid_dist.tuning.report import DOCUMENT, PAGE

    for directory in directories:
        if (directory / DOCUMENT).exists():
            SweepReport.load(directory).save(directory, overwrite=True)
            print(f"written: {directory / PAGE}")
            continue
        report = Report.load(directory)
        report.save(directory, overwrite=True)
        print_report(report)
        print(f"\nwritten: {directory / 'report.html'}")
