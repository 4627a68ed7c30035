"""What `evaluate`, `run` and `demo` have in common: sources to report, on a cluster, into a directory."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reid_dist.cli.progress import rows_progress, stages
from reid_dist.clusters import ExistingCluster, LocalCluster, Threads, connect
from reid_dist.errors import InputError, StoreError
from reid_dist.evaluation import evaluate
from reid_dist.jobs import PipelineJob
from reid_dist.reports import Report, print_report
from reid_dist.reports.files import refuse_occupied
from reid_dist.stores import FeatureSet
from reid_dist.stores.importers import open_features

__all__ = ["deliver", "evaluate_job"]

_WORKSPACE = "workspace"


def evaluate_job(
    job: PipelineJob,
    cluster: Threads | LocalCluster | ExistingCluster,
    *,
    output: Path | None = None,
    workspace: str | None = None,
    resume: bool = False,
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
    workspace
        Directory for intermediate stores; by default ``output/workspace``, and a temporary one without `output`.
    resume
        Whether `output` may hold an earlier run of the same job.

    Raises
    ------
    StoreExistsError
        If `output` holds something and `resume` is not set.
    InputError
        If it holds the report of another job.
    """
    if output is not None and not resume:
        refuse_occupied(output)
    finished = resume and output is not None and (output / "report.json").is_file()
    with _workspace(output, workspace) as folder:
        query = _open(job.query, "query")
        gallery = _open(job.gallery, "gallery")
        if finished and output is not None:
            return _same_job(Report.load(output), job, query, gallery, output)
        with connect(cluster) as client, stages() as progress:
            report = evaluate(
                query,
                gallery,
                protocol=job.protocol,
                distance=job.distance,
                metrics=job.metrics,
                max_rank=job.max_rank,
                topk=job.topk,
                chunk_rows=job.chunk_rows,
                client=client,
                workspace=folder,
                progress=progress,
            )
    if output is not None:
        report.save(output, overwrite=True)
    return report


def deliver(report: Report, *, as_json: bool, output: Path | None) -> None:
    """Print a report, and say where its page is."""
    if as_json:
        sys.stdout.write(report.to_json())
        return
    print_report(report)
    if output is not None:
        print(f"\nwritten to {output}: report.html, report.json, per_query.npz")


def _open(source: str, role: str) -> FeatureSet:
    with rows_progress() as progress:
        return open_features(source, role=role, progress=progress)


@contextlib.contextmanager
def _workspace(output: Path | None, workspace: str | None) -> Iterator[Path]:
    """Directory for intermediate stores; one that nobody asked for goes when it is empty or temporary."""
    if workspace is not None:
        yield _make(Path(workspace))
    elif output is None:
        with tempfile.TemporaryDirectory(prefix="reid-dist-") as temporary:
            yield Path(temporary)
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


def _same_job(report: Report, job: PipelineJob, query: FeatureSet, gallery: FeatureSet, output: Path) -> Report:
    """Return a finished report if it is the answer to this very job."""
    digests = {side: report.inputs[side]["content_digest"] for side in ("query", "gallery")}
    found = (digests["query"], digests["gallery"], report.protocol["name"], report.distance["name"])
    wanted = (query.content_digest, gallery.content_digest, job.protocol, job.distance)
    same_metrics = job.metrics is None or list(job.metrics) == list(report.metrics)
    curve = next(values for name, values in report.curves.items() if name.startswith("CMC"))
    if found != wanted or not same_metrics or len(curve) != job.max_rank:
        raise InputError(
            f"{output} holds the report of another job (inputs, protocol, distance, metrics or max_rank differ); "
            "choose another --output"
        )
    return report
