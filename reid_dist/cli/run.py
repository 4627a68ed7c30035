"""``reid-dist run``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.grouping import GroupedCommand
from reid_dist.cli.options import (
    choose_cluster,
    cluster_options,
    observation_options,
    output_options,
    override_option,
    refuse_idle_resume,
)

__all__ = ["command"]


@click.command("run", cls=GroupedCommand)
@click.argument("pipeline", type=click.Path(path_type=Path))
@override_option
@cluster_options
@output_options
@observation_options
def command(
    pipeline: Path,
    overrides: tuple[str, ...],
    cluster_file: Path | None,
    workers: int | None,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    as_json: bool,
    performance_report: Path | None,
) -> None:
    """Run the job of a PIPELINE file; --set replaces what it says, or says what it leaves out.

    \b
    Examples:
      reid-dist run pipelines/market1501.yaml --output results/market
      reid-dist run pipelines/market1501.yaml --cluster cluster_configs/threads.yaml --set max_rank=20
      reid-dist run pipelines/market1501.yaml --set 'metrics=[mAP, CMC@1]' --set protocol=same_set
      reid-dist run pipelines/query_expansion_sweep.yaml --output results/expansion
      reid-dist run pipelines/clothes_changing.yaml --set protocol.base=allshots --set protocol.name=all_clothes
    """
    refuse_idle_resume(resume, output)
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.cli.line import deliver, evaluate_job
    from reid_dist.evaluation.pipelines import read_job

    job = read_job(pipeline, overrides)
    if job.sweep is not None:
        from reid_dist.cli.sweeping import deliver_sweep, sweep_sides

        swept = sweep_sides(
            job.query,
            job.gallery,
            job.sweep_options(),
            cluster,
            output=output,
            name=name,
            description=job.description,
            workspace=workspace,
            resume=resume,
            performance_page=performance_report,
        )
        deliver_sweep(swept, as_json=as_json, output=output)
        return
    report = evaluate_job(
        job, cluster, output=output, name=name, workspace=workspace, resume=resume, performance_page=performance_report
    )
    deliver(report, as_json=as_json, output=output)
