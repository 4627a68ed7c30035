"""Options that several commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from reid_dist.clusters import ExistingCluster, LocalCluster, Threads

__all__ = ["choose_cluster", "cluster_options", "output_options"]

F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """Add ``--cluster`` and ``--workers``."""
    function = click.option(
        "--cluster",
        "cluster_file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Cluster file, such as cluster_configs/threads.yaml. Without one: a local cluster on all cores.",
    )(function)
    return click.option(
        "--workers", type=click.IntRange(min=1), metavar="N", help="Worker processes of the local cluster."
    )(function)


def output_options(function: F) -> F:
    """Add ``--output``, ``--resume``, ``--workspace`` and ``--json``."""
    function = click.option(
        "--output",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Write report.json, report.html and per_query.npz there. Without it nothing is written.",
    )(function)
    function = click.option(
        "--resume", is_flag=True, help="Take up an output directory: a finished one gives the same report again."
    )(function)
    function = click.option(
        "--workspace",
        metavar="URI",
        help="Directory for intermediate stores, seen by all workers. Default: DIR/workspace.",
    )(function)
    return click.option("--json", "as_json", is_flag=True, help="Print the report as JSON, and nothing else.")(function)


def choose_cluster(cluster_file: Path | None, workers: int | None) -> Threads | LocalCluster | ExistingCluster:
    """Turn the two options into a cluster."""
    from reid_dist.workers import prepare_local_workers

    if cluster_file is None:
        # Before everything that takes time, so that the workers' imports run beside this process's own.
        prepare_local_workers()
    from reid_dist.clusters import LocalCluster, read_cluster

    if cluster_file is None:
        return LocalCluster(kind="local", workers=workers)
    if workers is not None:
        raise click.UsageError("--workers belongs to the local cluster; with --cluster, set it in the file")
    return read_cluster(cluster_file)
