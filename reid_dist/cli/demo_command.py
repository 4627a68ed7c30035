"""``reid-dist demo``."""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from reid_dist.cli.click_options import PATH, RunOptions, choose_cluster, local_options, name_option

_DEFAULT = "reid-dist-demo"


@click.command("demo")
@click.option(
    "--output",
    type=PATH,
    metavar="DIR",
    help=f"Directory for the data and the reports. Default: ./{_DEFAULT}, or the first free ./{_DEFAULT}-N.",
)
@name_option
@local_options
def command(output: Path | None, name: str | None, cluster_file: Path | None, workers: int | None) -> None:
    """Generate a small synthetic data set modelled on Market-1501, evaluate it and write the reports.

    The evaluation runs on a local Dask cluster.

    \b
    Example:
      reid-dist demo --output demo
    """
    cluster = choose_cluster(cluster_file, workers)
    from reid_dist.clusters import EarlyCluster, LocalCluster
    from reid_dist.kernels.warmup import warmup
    from reid_dist.reports.report_files import refuse_occupied

    target = _first_free() if output is None else output
    refuse_occupied(target, otherwise="")
    with contextlib.ExitStack() as stack:
        early = None
        if isinstance(cluster, LocalCluster):
            early = stack.enter_context(EarlyCluster(cluster))
            warmup()
        _run(RunOptions(cluster=cluster, output=target, name=name, resume=True, early=early), target)


def _run(run: RunOptions, target: Path) -> None:
    """Make the data, evaluate them, and print the report."""
    from reid_dist.cli.progress import rows_progress, stages
    from reid_dist.cli.resumable import deliver_report, report_store, run_resumable
    from reid_dist.evaluation.pipelines import PipelineJob
    from reid_dist.evaluation.runs import prepare_evaluation
    from reid_dist.reports import Report
    from reid_dist.stores import FeatureSet
    from reid_dist.stores.synthetic import MARKET1501, make_sets

    click.echo(
        f"making {MARKET1501.n_query} queries and {MARKET1501.n_gallery} gallery rows of {MARKET1501.dim} features in "
        f"{target / 'data'}",
        err=True,
    )
    stores = []
    data = target / "data"
    with _unless_interrupted(data, target):
        for side, made in zip(("query", "gallery"), make_sets(MARKET1501), strict=True):
            path = str(data / f"{side}.zarr")
            FeatureSet.from_arrays(made.features, made.pids, made.camids).save(path)
            stores.append(path)
    job = PipelineJob.model_validate({"query": stores[0], "gallery": stores[1], "topk": 10})
    words = ["reid-dist", "evaluate", *stores, "--topk", str(job.topk), "--output", str(target), "--resume"]
    again = shlex.join([*words, *([] if run.name is None else ["--name", run.name])])
    try:
        prepare = partial(prepare_evaluation, job, rows_progress, stages)
        report = run_resumable(run, prepare, report_store(Report, run), again=again)
    except KeyboardInterrupt as error:
        # Before anything of the evaluation was finished.
        raise KeyboardInterrupt(str(error) or f"the data are kept in {data}: {again} goes on from there") from error
    deliver_report(report, as_json=False, output=target)


@contextlib.contextmanager
def _unless_interrupted(*folders: Path) -> Iterator[None]:
    """On an interruption, remove the first directory, and the others if they are then empty."""
    try:
        yield
    except KeyboardInterrupt:
        shutil.rmtree(folders[0], ignore_errors=True)
        for folder in folders[1:]:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise


def _first_free() -> Path:
    """The default directory, or the first numbered one that does not exist."""
    path, number = Path(_DEFAULT), 2
    while path.exists():
        path, number = Path(f"{_DEFAULT}-{number}"), number + 1
    return path
