"""``reid-dist history``."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reid_dist.cli.click_options import COUNT, PATH
from reid_dist.cli.result_place import ResultPlace, result_options
from reid_dist.core.formatting import byte_size, counted

if TYPE_CHECKING:
    from reid_dist.nightly.history import History
    from reid_dist.nightly.history.history_values import Run

_UNITS = {"d": "days", "w": "weeks", "h": "hours"}

# Default number of runs of a table: a month of nights.
_SHOWN = 30


@click.group("history", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Show or export the results of past nights, accept a change, or remove old runs.

    \b
    Examples:
      reid-dist history show nightly.db --last 7
      reid-dist history show nightly.db#latest
      reid-dist history accept nightly.db#12:resnet50/market1501/plain --why "new test set"
      reid-dist history export nightly.db --format parquet --output nightly.parquet
      reid-dist history leaderboard nightly.db --output leaderboard.html
      reid-dist history prune nightly.db --keep 90 --reports
    """


@command.command("show")
@click.argument("history", type=PATH)
@click.option(
    "--last",
    type=COUNT,
    metavar="N",
    help=f"Show only the newest N runs.  [default: {_SHOWN}; with --name or --json all]",
)
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option("--name", metavar="MODEL/DATASET/JOB", help="Only entries of this name.")
@click.option(
    "--metric", "metrics", multiple=True, metavar="NAME", help="Metric to show; repeatable.  [default: mAP, CMC@1]"
)
@result_options("table")
def show(
    history: Path, last: int | None, suite: str | None, name: str | None, metrics: tuple[str, ...], place: ResultPlace
) -> None:
    """Print the runs of HISTORY, or one run in detail: HISTORY#12, HISTORY#latest or HISTORY#last-good."""
    from reid_dist.nightly.history import History
    from reid_dist.nightly.history.address import Address, find_run, is_address
    from reid_dist.nightly.history.run_tables import ShownRun, ShownRuns
    from reid_dist.nightly.outcomes import streak

    if is_address(history):
        if last is not None or suite is not None:
            raise click.UsageError("--last and --suite choose runs of a whole history; HISTORY#RUN is one run")
        address = Address.parse(history)
        if name is not None and address.name is not None:
            raise click.UsageError("HISTORY#RUN:NAME names an entry already; leave out --name")
        address = Address(address.file, address.run, address.name or name)
        with History.open(address.file, create=False, read_only=True) as opened:
            run = find_run(opened, address)
            if address.name is not None:
                run = _only(run, address.name)
            lasting = {
                entry.name: found
                for entry in run.entries
                if (found := streak(entry, opened.newest_first(suite=run.suite, name=entry.name, before=run.number)))
            }
        place.deliver(ShownRun(run, metrics, lasting))
        return
    # Three years of nights take half a minute and thousands of lines.
    most = last if last is not None or place.as_json or name is not None else _SHOWN
    with History.open(history, create=False, read_only=True) as opened:
        runs = opened.runs(suite=suite, last=most, name=name)
        older = opened.runs(suite=suite, last=1, before=runs[0].number) if runs and last is None else []
    if name is not None:
        runs = [run for run in runs if run.entries]
    if runs or not place.prints_text:
        place.deliver(ShownRuns(runs, metrics))
    else:
        chosen = "".join(
            f" of {what} {value!r}" for what, value in (("suite", suite), ("name", name)) if value is not None
        )
        print(f"history {history} has no run{chosen or ' yet; `reid-dist nightly` adds one'}")
    if older and place.prints_text:
        print(f"older runs than run {runs[0].number} are left out; --last N shows more")


@command.command("export")
@click.argument("history", type=PATH)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["json", "csv", "parquet"]),
    required=True,
    help="json holds everything except the reports; csv and parquet have one row per run, entry and metric.",
)
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option(
    "--output", type=PATH, metavar="FILE", help="File to write; required for parquet. Default: standard output."
)
def export(history: Path, kind: str, suite: str | None, output: Path | None) -> None:
    """Export HISTORY for other programs."""
    import io

    from reid_dist.errors import InputError
    from reid_dist.nightly.history import History
    from reid_dist.nightly.history.export import write_csv, write_json, write_parquet
    from reid_dist.reports.report_files import refuse_existing, write_or_refuse

    if output is None and kind == "parquet":
        raise InputError("parquet is a binary format; name a file with --output")
    if output is not None:
        refuse_existing(output)
    with History.open(history, create=False, read_only=True) as opened:
        runs = opened.runs(suite=suite)
    if kind == "parquet":
        packed = io.BytesIO()
        write_parquet(runs, packed)
        content = packed.getvalue()
    else:
        text = io.StringIO(newline="")
        (write_json if kind == "json" else write_csv)(runs, text)
        content = text.getvalue().encode("utf-8")
    if output is None:
        click.echo(content, nl=False)
    else:
        write_or_refuse(output, content)
        print(f"written: {output}")


@command.command("leaderboard")
@click.argument("history", type=PATH)
@click.option(
    "--output", type=PATH, metavar="FILE", required=True, help="File to write: .html, .md (Markdown) or .csv."
)
@click.option("--suite", metavar="NAME", help="Only runs of this suite.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Metric to show; repeatable.  [default: mAP, CMC@1, mINP]",
)
@click.option("--last", type=COUNT, metavar="N", default=90, show_default=True, help="Use only the newest N runs.")
def leaderboard(history: Path, output: Path, suite: str | None, metrics: tuple[str, ...], last: int) -> None:
    """Write the leaderboard of HISTORY: all models of every data set and job by their latest good values.

    A dagger marks values that do not differ significantly from the best one of their column.
    """
    from reid_dist.errors import InputError
    from reid_dist.metrics.metric import reported_name
    from reid_dist.nightly.history import History
    from reid_dist.nightly.page.leaderboard import FORMATS, boards
    from reid_dist.reports.report_files import refuse_existing, write_or_refuse

    refuse_existing(output)
    written = FORMATS.get(output.suffix.lower())
    if written is None:
        raise InputError(f"a leaderboard is written to a file whose name ends with {', '.join(FORMATS)}, not {output}")
    with History.open(history, create=False, read_only=True) as opened:
        runs = opened.runs(suite=suite, last=last)
        shown = boards(runs, [*map(reported_name, metrics)], reports=opened.report)
    write_or_refuse(output, written(shown, output.absolute().parent))
    print(f"written: {output}")


@command.command("import")
@click.argument("history", type=PATH)
def import_(history: Path) -> None:
    """Convert a HISTORY of the previous version to the current format; the original is kept as a copy next to it."""
    from reid_dist.nightly.history import History

    print(f"imported: {counted(History.import_file(history), 'run')}")


@command.command("accept")
@click.argument("run", metavar="HISTORY#RUN[:NAME]", type=PATH)
@click.option("--why", required=True, metavar="TEXT", help="Reason, which is stored and shown.")
def accept(run: Path, why: str) -> None:
    """Accept a change: the entry, or every entry of the run, becomes the baseline of later nights."""
    from reid_dist.nightly.history.address import Address, find_run

    address = Address.parse(run)
    with opened_for_writing(address.file, create=False) as opened:
        number = find_run(opened, address).number
        count = opened.accept(number, address.name, why)
    print(f"accepted: {counted(count, 'entry')} of run {number}")


@command.command("prune")
@click.argument("history", type=PATH)
@click.option("--keep", type=click.IntRange(min=0), metavar="N", help="Remove all but the newest N runs of each suite.")
@click.option(
    "--older-than",
    metavar="AGE",
    help="Remove runs older than this, such as 90d, 26w or 12h.  With --keep, both conditions must hold.",
)
@click.option(
    "--keep-reports",
    type=click.IntRange(min=0),
    metavar="N",
    help="Remove from HISTORY the stored reports of all but the newest N runs of each suite; the numbers and the "
    "directories stay.",
)
@click.option("--reports", "folders", is_flag=True, help="Also delete the report directories of the removed runs.")
@click.option("--dry-run", is_flag=True, help="Remove nothing; print what would be removed.")
def prune(
    history: Path, keep: int | None, older_than: str | None, keep_reports: int | None, folders: bool, dry_run: bool
) -> None:
    """Remove old runs from HISTORY, and shrink the file.

    Baselines of later nights stay, and so do runs that are still running. Without --reports, only HISTORY changes. With
    it, the directory runs/NUMBER next to the page is also deleted for every removed run.
    """
    from reid_dist.core.credentials import without_controls
    from reid_dist.nightly.history.history_file import remove_folder

    if keep is None and older_than is None and keep_reports is None:
        raise click.UsageError("Choose what to remove: --keep N, --older-than AGE or --keep-reports N.")
    if folders and keep is None and older_than is None:
        raise click.UsageError("--reports needs runs to remove: add --keep N or --older-than AGE.")
    age = None if older_than is None else _age(older_than)
    with opened_for_writing(history, create=False) as opened:
        pruned = opened.prune(keep=keep, older_than=age, keep_reports=keep_reports, dry_run=dry_run)
    numbers = f" ({_ranges(pruned.runs)})" if pruned.runs else ""
    entries, reports = counted(pruned.n_entries, "entry"), counted(pruned.n_reports, "report")
    removed = f"{counted(len(pruned.runs), 'run')}{numbers}, {entries}, {reports}"
    print(f"would remove: {removed}" if dry_run else f"removed: {removed}; {byte_size(pruned.n_bytes)} less")
    if pruned.kept:
        print(f"kept: run {_ranges(pruned.kept)}, as a baseline of later nights, or because it is running")
    if folders:
        # After the runs, which name them: a folder that cannot be removed is reported.
        left = {} if dry_run else {folder: why for folder in pruned.folders if (why := remove_folder(folder))}
        done = "would remove" if dry_run else "removed"
        print(f"{done}: {counted(len(pruned.folders) - len(left), 'directory')} of reports")
        for folder, why in left.items():
            print(without_controls(f"left: {folder}, {why}"))


@contextlib.contextmanager
def opened_for_writing(path: Path, *, create: bool, timeout: float = 30.0) -> Iterator[History]:
    """Open a history that a command writes to, and print its warning to standard error; `timeout` is in seconds."""
    from reid_dist.nightly.history import History

    with History.open(path, create=create, timeout=timeout) as history:
        if history.caution:
            # Slow to import, and seldom needed.
            from reid_dist.cli.progress import notify
            from reid_dist.core.credentials import without_controls

            notify("warning", without_controls(f"Warning: {history.caution}"), message=history.caution)
        yield history


def _only(run: Run, name: str) -> Run:
    from dataclasses import replace

    from reid_dist.errors import StoreNotFoundError

    entry = run.entry(name)
    if entry is None:
        known = ", ".join(entry.name for entry in run.entries) or "none"
        raise StoreNotFoundError(f"run {run.number} has no entry {name!r}; it has {known}")
    return replace(run, entries=(entry,))


def _age(text: str) -> timedelta:
    found = re.fullmatch(r"(\d{1,6})([dwh])", text.strip())
    if found is None:
        raise click.BadParameter(
            f"an age is a number and d, w or h, such as 90d; found {text!r}", param_hint="--older-than"
        )
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def _ranges(numbers: tuple[int, ...]) -> str:
    """Return ascending numbers as ``1-4, 7``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
