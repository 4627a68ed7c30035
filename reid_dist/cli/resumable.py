"""Resumable commands: the runner of jobs with a cluster under observation, and the words of the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from reid_dist.cli.click_options import RunOptions
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import rows_progress, stages
from reid_dist.core.credentials import command_line
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runner import Document, R, ReportStore, ResultStore, Run, run_job
from reid_dist.evaluation.runs import prepared_job
from reid_dist.evaluation.sides import Sides
from reid_dist.reports import Report
from reid_dist.reports.documents import DocumentReport
from reid_dist.stores import FeatureSet

if TYPE_CHECKING:
    from reid_dist.evaluation.splits import SplitReport


def run_resumable(
    run: RunOptions,
    prepare: Callable[[], Run[R]],
    store: ResultStore[R],
    *,
    on_cluster: bool = True,
    again: str | None = None,
) -> R:
    """Compute and save a result as `run_job` does; `again` is the command that resumes it, by default this one."""
    refuse_unobservable(run.cluster, run.performance_page, computes=on_cluster)
    connect = partial(observed_cluster, run.cluster, run.performance_page, early=run.early)
    return run_job(
        prepare,
        store,
        connect if on_cluster else contextlib.nullcontext,
        workspace=run.workspace,
        resume=run.resume,
        resumed_by=again or ("the same command" if run.output is None else "the same command with --resume"),
        notify=partial(click.echo, err=True),
    )


def report_store(report_class: type[Document], run: RunOptions) -> ReportStore[Document]:
    """Where a command keeps a report of a class."""
    return ReportStore(
        report_class=report_class,
        output=run.output,
        title=run.name,
        description=run.description,
        command=words_of_command(),
    )


def words_of_command() -> str:
    """The command as it was typed, without credentials; empty if it is not known."""
    context = click.get_current_context(silent=True)
    words: Any = None if context is None else context.find_root().obj
    return command_line(["reid-dist", *words]) if words else ""


def open_sides(query: str, gallery: str, **left_out: Any) -> tuple[FeatureSet, FeatureSet]:
    """Open two sources, with progress where they are read, without the rows that `Sides` leaves out."""
    with rows_progress() as progress:
        return Sides(query, gallery, **left_out).open(progress)


def evaluate_job(job: PipelineJob, run: RunOptions, *, again: str | None = None) -> Report | SplitReport:
    """Evaluate a job and save its report; parameters and errors as of `run_resumable`."""
    report_class, prepare = prepared_job(job, rows_progress, stages)
    # Lists are read here; there is nothing to distribute.
    report: Report | SplitReport = run_resumable(
        run, prepare, report_store(report_class, run), on_cluster=job.lists is None, again=again
    )
    return report


def deliver_report(report: DocumentReport, *, as_json: bool, output: Path | None) -> None:
    """Print a report, and the names of its files."""
    if as_json:
        click.echo(report.to_json(), nl=False)
        return
    report.show()
    if isinstance(report, Report) and report.pictures is not None and report.pictures.note:
        click.echo(f"\n{report.pictures.note}", err=True)
    if output is not None:
        click.echo(f"\nwritten to {output}: {', '.join(report.files_in(output))}")
