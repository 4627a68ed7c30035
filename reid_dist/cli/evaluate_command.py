"""``reid-dist evaluate``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.click_options import (
    GroupedCommand,
    RunOptions,
    cluster_options,
    given_options,
    observation_options,
    output_options,
    refuse_idle_options,
    run_options,
    shared_options,
    sides_arguments,
)
from reid_dist.evaluation.options import JOB_OPTIONS


@click.command("evaluate", cls=GroupedCommand)
@sides_arguments
@shared_options(*JOB_OPTIONS)
@cluster_options
@output_options()
@observation_options
@run_options(refuse_idle_options)
def command(query: str, gallery: str, run: RunOptions, as_json: bool, **given: Any) -> None:
    """Evaluate QUERY against GALLERY: two feature stores, or any source that `ingest` reads.

    Without GALLERY, QUERY must contain both sides.

    \b
    Examples:
      reid-dist evaluate data/query.zarr data/gallery.zarr --output results/plain
      reid-dist evaluate pytorch_result.mat --metric mAP --metric CMC@20
      reid-dist evaluate set.zarr --protocol same_set --distance euclidean
      reid-dist evaluate q.zarr g.zarr --benchmark market1501 --output results/benchmark
      reid-dist evaluate q.zarr g.zarr --ties --breakdown camera_pair --breakdown gallery_size --output results/more
      reid-dist evaluate q.zarr g.zarr --protocol oxford --ground-truth gt.json
      reid-dist evaluate labels.npz --distances distmat.npy
    """
    from pydantic import ValidationError

    from reid_dist.cli.resumable import deliver_report, evaluate_job
    from reid_dist.core.validation import problems_of
    from reid_dist.errors import refusal
    from reid_dist.evaluation.pipelines import PipelineJob

    try:
        job = PipelineJob(query=query, gallery=gallery, **given_options(given))
    except ValidationError as error:
        faults = [f"{JOB_OPTIONS[str(path[0])].flag}: {text}" for path, text in problems_of(error, PipelineJob)]
        raise refusal(faults, many="the command") from None
    deliver_report(evaluate_job(job, run), as_json=as_json, output=run.output)
