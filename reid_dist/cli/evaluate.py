"""``reid-dist evaluate``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.options import choose_cluster, cluster_options, output_options

__all__ = ["command"]


@click.command("evaluate")
@click.argument("query")
@click.argument("gallery")
@click.option("--protocol", default="market1501", show_default=True, help="See `reid-dist list protocols`.")
@click.option("--distance", default="cosine", show_default=True, help="See `reid-dist list distances`.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="mAP, CMC@10, …; repeatable. Default: mAP, mINP, CMC@1, CMC@5, CMC@10.",
)
@click.option("--max-rank", type=int, default=50, show_default=True, help="Length of the CMC curve.")
@click.option("--topk", type=int, metavar="K", help="Write the K nearest items of every query (topk.npz).")
@click.option("--chunk-rows", type=int, metavar="N", help="Rows of a tile; the answer does not depend on it.")
@cluster_options
@output_options
def command(
    query: str,
    gallery: str,
    protocol: str,
    distance: str,
    metrics: tuple[str, ...],
    max_rank: int,
    topk: int | None,
    chunk_rows: int | None,
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    workspace: str | None,
    resume: bool,
    as_json: bool,
) -> None:
    """Evaluate QUERY against GALLERY: two feature stores, or any source that `ingest` reads.

    A file that holds both sides may be given for both.

    \b
    Examples:
      reid-dist evaluate data/query.zarr data/gallery.zarr --output results/plain
      reid-dist evaluate pytorch_result.mat pytorch_result.mat --metric mAP --metric CMC@20
      reid-dist evaluate set.zarr set.zarr --protocol same_set --distance euclidean
    """
    cluster = choose_cluster(cluster_file, workers)
    from pydantic import ValidationError

    from reid_dist.cli.line import deliver, evaluate_job
    from reid_dist.errors import InputError
    from reid_dist.jobs import PipelineJob
    from reid_dist.validation import explain

    try:
        job = PipelineJob(
            query=query,
            gallery=gallery,
            protocol=protocol,
            distance=distance,
            metrics=metrics or None,
            max_rank=max_rank,
            topk=topk,
            chunk_rows=chunk_rows,
        )
    except ValidationError as error:
        raise InputError(explain("the command", error, PipelineJob.model_fields)) from None
    report = evaluate_job(job, cluster, output=output, workspace=workspace, resume=resume)
    deliver(report, as_json=as_json, output=output)
