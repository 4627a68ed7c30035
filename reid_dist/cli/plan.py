"""``reid-dist plan``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.options import override_option

__all__ = ["command"]


@click.command("plan")
@click.argument("pipeline", type=click.Path(path_type=Path))
@override_option
@click.option("--threads", type=click.IntRange(min=1), help="Of all workers. Default: the cores here.")
@click.option("--memory-per-thread", "memory_gib", type=click.FloatRange(min=0, min_open=True), help="In GiB.")
def command(pipeline: Path, overrides: tuple[str, ...], threads: int | None, memory_gib: float | None) -> None:
    """Show tiles, tasks, bytes and arithmetic of the job of a PIPELINE file; reads labels, no features.

    \b
    Examples:
      reid-dist plan pipelines/market1501.yaml --threads 64
      reid-dist plan pipelines/clothes_changing.yaml --set protocol.base=allshots
    """
    from reid_dist.environment import usable_cores
    from reid_dist.errors import InputError
    from reid_dist.evaluation import plan_job
    from reid_dist.jobs import read_job
    from reid_dist.plan import DEFAULT_MEMORY, readable_bytes
    from reid_dist.stores import FeatureSet

    job = read_job(pipeline, overrides)
    if job.distances is not None or job.lists is not None:
        raise InputError("plan is for jobs over features; one over distances or lists reads its file once, row by row")
    query, gallery = FeatureSet.open(job.query), FeatureSet.open(job.gallery)
    n_threads = threads or usable_cores()
    memory = DEFAULT_MEMORY if memory_gib is None else int(memory_gib * 2**30)
    plan = plan_job(
        query,
        gallery,
        n_threads=n_threads,
        memory_per_thread=memory,
        distance=job.distance,
        **job.options(),
    )
    rows = {
        "query": f"{plan.query.n_rows} x {plan.query.dim}",
        "gallery": f"{plan.gallery.n_rows} x {plan.gallery.dim}, chunks of {plan.gallery.chunk_rows} rows",
        "tiles": f"{plan.n_tiles} of {plan.tile.query} x {plan.tile.gallery}",
        "tasks": f"{plan.n_tasks} of {plan.query_block} x {plan.gallery_block} rows, on {n_threads} threads",
        "memory": f"{readable_bytes(plan.task_bytes)} a task, {readable_bytes(plan.task_bytes * n_threads)} in all; "
        f"the answer takes {readable_bytes(plan.result_bytes)}",
        "read": readable_bytes(plan.bytes_read),
        "arithmetic": f"{plan.flop / 1e12:.3g} TFLOP in products",
        **({"sweeps": "2 as a rule: thresholds over all pairs are searched for"} if plan.bracket_counts else {}),
    }
    for name, text in rows.items():
        click.echo(f"{name:<11}{text}")
