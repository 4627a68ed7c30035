"""``reid-dist run``."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from reid_dist.cli.click_options import (
    PATH,
    GroupedCommand,
    RunOptions,
    cluster_options,
    observation_options,
    output_options,
    override_option,
    run_options,
)


@click.command("run", cls=GroupedCommand)
@click.argument("pipeline", type=PATH)
@override_option
@cluster_options
@output_options()
@observation_options
@run_options()
def command(pipeline: Path, overrides: tuple[str, ...], run: RunOptions, as_json: bool) -> None:
    """Run the job of a PIPELINE file. --set overrides or adds fields.

    \b
    Examples:
      reid-dist run pipelines/market1501.yaml --output results/market
      reid-dist run pipelines/market1501.yaml --cluster cluster_configs/threads.yaml --set max_rank=20
      reid-dist run pipelines/market1501.yaml --set 'metrics=[mAP, CMC@1]' --set protocol=same_set
      reid-dist run pipelines/query_expansion_sweep.yaml --output results/expansion
      reid-dist run pipelines/clothes_changing.yaml --set protocol.base=allshots --set protocol.name=all_clothes
    """
    from reid_dist.cli.resumable import deliver_report, evaluate_job
    from reid_dist.evaluation.pipelines import read_job

    job = read_job(pipeline, overrides)
    run = replace(run, description=job.description)
    if job.sweep is None:
        deliver_report(evaluate_job(job, run), as_json=as_json, output=run.output)
        return
    from reid_dist.cli.sweeping import sweep_sides

    deliver_report(sweep_sides(job.query, job.gallery, job.sweep_options(), run), as_json=as_json, output=run.output)
