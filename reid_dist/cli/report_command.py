"""``reid-dist report``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.click_options import PATH


@click.command("report")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--output", type=PATH, metavar="DIR", help="Directory for the report of a history entry.")
def command(runs: tuple[Path, ...], output: Path | None) -> None:
    """Verify finished runs, print their tables and rewrite their pages.

    A run is an output directory, or an entry of a history: FILE#RUN:model/dataset/job, where RUN is a number, latest
    or last-good. The page of an entry is written to --output.

    \b
    Examples:
      reid-dist report results/plain results/other
      reid-dist report nightly.db#latest:resnet50/market1501/plain --output results/latest
    """
    from reid_dist.evaluation.splits import SplitReport
    from reid_dist.evaluation.sweeps import SweepReport
    from reid_dist.nightly.history.address import is_address, load_report
    from reid_dist.reports.documents import DocumentReport
    from reid_dist.reports.report_files import refuse_occupied

    kinds: tuple[type[DocumentReport], ...] = (SweepReport, SplitReport)
    if output is not None:
        if len(runs) != 1 or not is_address(runs[0]):
            raise click.UsageError("--output goes with one entry of a history; a directory has its page already.")
        refuse_occupied(output, otherwise="")
    for run in runs:
        several = next((kind for kind in kinds if (run / kind.document).exists()), None)
        if several is not None:
            several.load(run).save(run, overwrite=True)
            print(f"written: {run / several.page}")
            continue
        report = load_report(run)
        # Only a directory is written to without --output: it holds the page already.
        folder = output if is_address(run) else run
        if folder is not None:
            report.save(folder, overwrite=folder is run)
        report.show()
        if folder is not None:
            print(f"\nwritten: {folder / 'report.html'}")
