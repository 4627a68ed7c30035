"""``reid-dist evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from reid_dist.cli.grouping import GroupedCommand
from reid_dist.cli.job_options import job_fields, job_options
from reid_dist.cli.options import (
    choose_cluster,
    cluster_options,
    observation_options,
    output_options,
    refuse_idle_options,
    refuse_idle_resume,
)

__all__ = ["command"]


@click.command("evaluate", cls=GroupedCommand)
@click.argument("query")
@click.argument("gallery")
@job_options
@cluster_options
@output_options
@observation_options
def command(
    query: str,
    gallery: str,
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    as_json: bool,
    performance_report: Path | None,
    **given: Any,
) -> None:
    """Evaluate QUERY against GALLERY: two feature stores, or any source that `ingest` reads.

    A file that holds both sides may be given for both.

    \b
    Examples:
      reid-dist evaluate data/query.zarr data/gallery.zarr --output results/plain
      reid-dist evaluate pytorch_result.mat pytorch_result.mat --metric mAP --metric CMC@20
      reid-dist evaluate set.zarr set.zarr --protocol same_set --distance euclidean
      reid-dist evaluate q.zarr g.zarr --ties --breakdown camera_pair --breakdown gallery_size --output results/more
      reid-dist evaluate q.zarr g.zarr --protocol oxford --ground-truth gt.json
      reid-dist evaluate labels.npz labels.npz --distances distmat.npy
    """
    refuse_idle_options(given, output=output, as_json=as_json)
    refuse_idle_resume(resume, output)
    cluster = choose_cluster(cluster_file, workers)
    from pydantic import ValidationError

    from reid_dist.cli.line import deliver, evaluate_job
    from reid_dist.core.validation import explain
    from reid_dist.errors import InputError
    from reid_dist.evaluation.pipelines import PipelineJob

    try:
        job = PipelineJob(query=query, gallery=gallery, **job_fields(given))
    except ValidationError as error:
        raise InputError(explain("the command", error, PipelineJob.model_fields)) from None
    report = evaluate_job(
        job, cluster, output=output, name=name, workspace=workspace, resume=resume, performance_page=performance_report
    )
    deliver(report, as_json=as_json, output=output)
