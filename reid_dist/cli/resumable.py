"""Resumable commands: the runner of jobs with a cluster under observation, and the words of the command line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

import click

from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.options import RunOptions
from reid_dist.core.credentials import command_line
from reid_dist.evaluation.runner import Computation, Destination, R, run_job


def run_resumable(
    run: RunOptions, prepare: Callable[[], Computation[R]], *, on_cluster: bool = True, again: str | None = None
) -> R:
    """Compute and save a report as `run_job` does; `again` is the command that resumes it, by default this one."""
    refuse_unobservable(run.cluster, run.performance_page, computes=on_cluster)
    context = click.get_current_context(silent=True)
    words: Any = None if context is None else context.find_root().obj
    to = Destination(
        output=run.output,
        workspace=run.workspace,
        resume=run.resume,
        name=run.name,
        description=run.description,
        command=command_line(["reid-dist", *words]) if words else "",
        resumed_by=again or ("the same command" if run.output is None else "the same command with --resume"),
    )
    connect = partial(observed_cluster, run.cluster, run.performance_page) if on_cluster else contextlib.nullcontext
    return run_job(prepare, to, connect, partial(click.echo, err=True))
