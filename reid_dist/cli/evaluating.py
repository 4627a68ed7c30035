"""Evaluation of a job, as `evaluate`, `run` and `demo` do it."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from reid_dist.cli.options import RunOptions
from reid_dist.cli.progress import rows_progress, stages
from reid_dist.cli.resumable import run_resumable
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runs import prepare_evaluation
from reid_dist.reports import Report, print_report
from reid_dist.reports.files import written_files


def evaluate_job(job: PipelineJob, run: RunOptions, *, again: str | None = None) -> Report:
    """Evaluate a job and save its report; parameters and errors as of `run_resumable`."""
    # Lists are read here; there is nothing to distribute.
    prepare = partial(prepare_evaluation, job, rows_progress, stages)
    return run_resumable(run, prepare, on_cluster=job.lists is None, again=again)


def deliver(report: Report, *, as_json: bool, output: Path | None) -> None:
    """Print a report, and the names of its files."""
    if as_json:
        sys.stdout.write(report.to_json())
        return
    print_report(report)
    if output is not None:
        print(f"\nwritten to {output}: {', '.join(written_files(output))}")
