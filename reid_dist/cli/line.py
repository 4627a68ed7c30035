"""What `evaluate`, `run` and `demo` have in common: sources to report, on a cluster, into a directory."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click

import reid_dist.core.signals as signals
from reid_dist.cli.drafts import without_old_temporaries
from reid_dist.cli.memory import refuse_long_curves
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import rows_progress, stages
from reid_dist.cli.unfinished import differing, unfinished
from reid_dist.clusters import ClusterConfig
from reid_dist.core.credentials import command_line, printable
from reid_dist.errors import InputError, RunFailedError, StoreError
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.options import complete, recorded
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runs import evaluate_sides, open_side, ranking_digests
from reid_dist.reports import Report, described_run, print_report
from reid_dist.reports.files import refuse_occupied, refuse_uri, written_files
from reid_dist.reports.heading import Heading
from reid_dist.stages.expansion import describe_expansion
from reid_dist.stores import LabelledSet, Role, Workspace

__all__ = ["RESUME_OTHERWISE", "deliver", "evaluate_job", "named_already", "resumable", "this_run", "workspace_for"]


class _Headed(Protocol):
    @property
    def heading(self) -> Heading: ...


R = TypeVar("R", bound=_Headed)

# What else to do where an output directory holds something.
RESUME_OTHERWISE = "or --resume to take up what is in it"

_WORKSPACE = "workspace"
# What takes the place of features.
_GIVEN = ("distances", "lists")


def evaluate_job(
    job: PipelineJob,
    cluster: ClusterConfig,
    *,
    output: Path | None = None,
    name: str | None = None,
    workspace: str | None = None,
    resume: bool = False,
    performance_page: Path | None = None,
    again: str | None = None,
) -> Report:
    """Evaluate a job and save its report.

    Parameters
    ----------
    job
        What to compute.
    cluster
        Where.
    output
        Directory for the report, or None to write nothing.
    name
        Of the run; None for that of `output`.  A finished report keeps the name that it has.
    workspace
        Directory for intermediate stores; by default ``output/workspace``, and a temporary one without `output`.
    resume
        Whether `output` may hold an earlier run of the same job.
    performance_page
        New file for Dask's performance report, or None for none.
    again
        The command that goes on with a run that was cut short; None for this one with ``--resume``.

    Raises
    ------
    StoreExistsError
        If `output` holds something and `resume` is not set.
    InputError
        If it holds the report of another job, or what another one has begun.
    RunFailedError
        If the cluster broke; the message says what is left of the run.
    """
    if output is not None:
        refuse_uri(output)
    refuse_unobservable(cluster, performance_page, computes=job.lists is None)
    if output is not None and not resume:
        refuse_occupied(output, otherwise=RESUME_OTHERWISE)
    finished = resume and output is not None and (output / "report.json").is_file()
    with workspace_for(output, workspace) as folder:
        query, gallery = _open(job, "query"), _open(job, "gallery")
        if finished and output is not None:
            return named_already(_same_job(Report.load(output), job, query, gallery, output), name, output)
        if job.lists is None:
            refuse_long_curves(query.n_rows, job.max_rank)
        # Lists are read here and now; there is nothing to distribute.
        where = observed_cluster(cluster, performance_page) if job.lists is None else contextlib.nullcontext()
        begun = unfinished(output, folder, {} if output is None else _begun(job, query, gallery))
        with resumable(folder, output, again), without_old_temporaries(folder, output), begun, where as client:
            with stages() as progress:
                report = evaluate_sides(job, query, gallery, client, folder, progress)
            report = replace(report, run=this_run(name, output, report.heading.title, description=job.description))
            if output is not None:
                report.save(output, overwrite=True)
    return report


def this_run(name: str | None, output: Path | None, title: str, *, description: str = "") -> dict[str, str]:
    """Return where a report of the running command comes from.

    Parameters
    ----------
    name
        As given; None for the last part of `output`.
    output
        Where the report goes, if anywhere.
    title
        The name where there is no other.
    description
        Of the pipeline, if it has one.
    """
    context = click.get_current_context(silent=True)
    words = None if context is None else context.find_root().obj
    command = command_line(["reid-dist", *words]) if words else ""
    folder = "" if output is None else output.resolve().name
    return described_run(name or printable(folder) or title, description=description, command=command)


def named_already(report: R, name: str | None, output: Path) -> R:
    """Return a finished report as it is; one line on standard error where it was to have another name."""
    kept = report.heading.title
    if name not in (None, kept):
        click.echo(f"{output} is finished and keeps its name {kept!r}", err=True)
    return report


def deliver(report: Report, *, as_json: bool, output: Path | None) -> None:
    """Print a report, and say where its page is."""
    if as_json:
        sys.stdout.write(report.to_json())
        return
    print_report(report)
    if output is not None:
        print(f"\nwritten to {output}: {', '.join(written_files(output))}")


@contextlib.contextmanager
def resumable(folder: Path | str | None, output: Path | None, again: str | None = None) -> Iterator[None]:
    """Say of a run that failed, or was interrupted, what is left of it, and how to go on.

    Parameters
    ----------
    folder
        Its workspace; None for a temporary one.
    output
        Where its report goes, if anywhere.
    again
        The command that goes on; None for this one, with ``--resume`` where there is an `output`.
    """
    try:
        yield
    except (RunFailedError, KeyboardInterrupt) as error:
        if folder is None or not Workspace.at(folder).holds_parts():
            raise
        how = again or ("the same command" if output is None else "the same command with --resume")
        left = f"what is finished is kept in {folder}: {how} goes on from there"
        # Workers that a signal ended as well may have been missed first.
        if isinstance(error, KeyboardInterrupt) or signals.received() is not None:
            raise KeyboardInterrupt(left) from error
        raise RunFailedError(f"{error}; {left}") from error


def _open(job: PipelineJob, role: Role) -> LabelledSet:
    with rows_progress() as progress:
        return open_side(job, role, progress)


@contextlib.contextmanager
def workspace_for(output: Path | None, workspace: str | None) -> Iterator[Path | str | None]:
    """Directory for intermediate stores, or a URI of object storage; one that nobody asked for goes when it is empty.

    None where nothing is to be written: what must be on disk is then put into a temporary directory.
    """
    if workspace is not None:
        # Object storage has no directories to make.
        yield workspace if "://" in workspace else _make(Path(workspace))
    elif output is None:
        yield None
    else:
        made = not output.exists()
        folder = output / _WORKSPACE
        _make(folder)
        try:
            yield folder
        finally:
            # Nothing half-made is left behind: what is empty goes, and a directory that was not there before with it.
            for leftover in (folder, *([output] if made else [])):
                with contextlib.suppress(OSError):
                    leftover.rmdir()


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}; choose another --output") from None
    return folder


def _same_job(report: Report, job: PipelineJob, query: LabelledSet, gallery: LabelledSet, output: Path) -> Report:
    """Return a finished report if it is the answer to this very job: all that the answer depends on is compared."""
    wanted = {**evaluation_spec(job, query, gallery), **ranking_digests(job)}
    found = {
        **{name: report.inputs.get(name, {}).get("content_digest") for name in ("query", "gallery", *_GIVEN)},
        "protocol": {
            name: text for name, text in report.protocol.items() if name not in ("ground_truth", "single_shot")
        },
        "ground_truth": report.protocol.get("ground_truth", {}).get("content_digest"),
        "distance": None if set(_GIVEN) & set(report.inputs) else report.distance["name"],
        "expand": report.expand,
        "rerank": report.rerank,
        # A report that says nothing of an option is older than the option.
        **recorded(complete({})),
        **dict.fromkeys(_pictures(job)),
        **report.options,
        "metrics": _metrics(report.options.get("metrics"), [*report.metrics, *report.bounds]),
    }
    others = differing(wanted, found)
    if others:
        raise InputError(
            f"{output} holds the report of another job ({', '.join(others)} differ); choose another --output"
        )
    return report


def _begun(job: PipelineJob, query: LabelledSet, gallery: LabelledSet) -> dict[str, Any]:
    """All that tells a job that is begun from others; to digest distances would take as long as to read them."""
    paths = {name: getattr(job, name) for name in _GIVEN}
    files = {name: None if path is None else str(Path(path).absolute()) for name, path in paths.items()}
    return {**evaluation_spec(job, query, gallery), **files}


def evaluation_spec(job: PipelineJob, query: LabelledSet, gallery: LabelledSet) -> dict[str, Any]:
    """All that the answer to a job depends on, by name, but for distances and lists."""
    checked = CheckedOptions.of(job.options(), query, gallery)
    return {
        "query": query.content_digest,
        "gallery": gallery.content_digest,
        "protocol": checked.protocol.describe(),
        "ground_truth": None if checked.truth is None else checked.truth.content_digest,
        "distance": None if job.lists or job.distances else job.distance,
        "expand": describe_expansion(checked.expand) if checked.expand else None,
        "rerank": None if checked.rerank is None else checked.rerank.describe(),
        **dict.fromkeys(_GIVEN),
        **recorded(checked.values),
        "metrics": _metrics(checked.values["metrics"], [metric.name for metric in checked.metrics]),
        **_pictures(job),
    }


def _metrics(asked: Sequence[str] | None, reported: Sequence[str]) -> dict[str, Any]:
    """What was asked for, and what that came to: without being asked, a protocol's own metrics are reported."""
    return {"asked": asked, "reported": sorted({*reported})}


def _pictures(job: PipelineJob) -> dict[str, Any]:
    return {"pictures": job.pictures, "image_root": job.image_root if job.pictures is not None else None}
