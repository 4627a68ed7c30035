"""Options that several commands share, and what they mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reid_dist.cli.events import OPTION
from reid_dist.cli.grouping import INPUTS, OUTPUTS, RESOURCES, option

if TYPE_CHECKING:
    from reid_dist.clusters import ClusterConfig

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a command computes, and where its report goes.

    Attributes
    ----------
    cluster
        The cluster.
    output
        Directory of the report; None for nowhere.
    name
        Of the run; None for that of `output`.  A finished report keeps the name that it has.
    workspace
        Directory or URI for intermediate stores; by default ``output/workspace``, and a temporary one without `output`.
    resume
        Whether `output` may hold an earlier run of the same command.
    performance_page
        New file for Dask's performance report; None for none.
    description
        Of the pipeline, if it has one.
    """

    cluster: ClusterConfig
    output: Path | None = None
    name: str | None = None
    workspace: str | None = None
    resume: bool = False
    performance_page: Path | None = None
    description: str = ""


def run_options(check: Callable[[Mapping[str, Any]], None] | None = None) -> Callable[[F], Callable[..., Any]]:
    """Give a command its options of cluster and output as one value, ``run``; `check` sees all options first."""

    def apply(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            cluster_file: Path | None, workers: int | None, performance_report: Path | None, **given: Any
        ) -> Any:
            if check is not None:
                check(given)
            own = {name: given.pop(name) for name in ("output", "name", "workspace", "resume")}
            if own["resume"] and own["output"] is None:
                raise click.UsageError("--resume takes up an output directory; add --output DIR")
            cluster = choose_cluster(cluster_file, workers)
            return function(run=RunOptions(cluster=cluster, performance_page=performance_report, **own), **given)

        return command

    return apply


def refuse_idle_options(given: Mapping[str, Any]) -> None:
    """Refuse options of `evaluate` that have no effect without another one."""
    if given["gallery_order"] != "stored" and "gallery_size" not in given["breakdowns"]:
        raise click.UsageError(
            f"--gallery-order {given['gallery_order']} is of the distractor curve; add --breakdown gallery_size"
        )
    if given["image_root"] is not None and given["pictures"] is None:
        raise click.UsageError("--image-root is where the paths of --pictures start; add --pictures")
    if given["topk"] is not None and given["output"] is None and not given["as_json"]:
        raise click.UsageError("--topk writes topk.npz to the output directory; add --output DIR")


def override_option(function: F) -> F:
    """Add ``--set``."""
    return option(
        "--set",
        "overrides",
        group=INPUTS,
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a field, VALUE in YAML; protocol.base=VALUE is a field of protocol. Repeatable.",
    )(function)


def cluster_options(function: F) -> F:
    """Add ``--cluster`` and ``--workers``."""
    function = option(
        "--cluster",
        "cluster_file",
        group=RESOURCES,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Cluster file, such as cluster_configs/threads.yaml. Without one: a local cluster on all cores.",
    )(function)
    return option(
        "--workers",
        group=RESOURCES,
        type=click.IntRange(min=1),
        metavar="N",
        help="Worker processes of the local cluster.",
    )(function)


def output_options(function: F) -> F:
    """Add ``--output``, ``--name``, ``--resume``, ``--workspace`` and ``--json``."""
    function = option(
        "--output",
        group=OUTPUTS,
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Write report.json, report.html and per_query.npz there. Without it nothing is written.",
    )(function)
    function = option(
        "--resume",
        group=OUTPUTS,
        is_flag=True,
        help="Take up an output directory: a finished one gives the same report again.",
    )(function)
    function = option(
        "--workspace",
        group=RESOURCES,
        metavar="URI",
        help="Directory for intermediate stores, seen by all workers. Default: DIR/workspace.",
    )(function)
    return _json_option(name_option(function))


def document_options(*, output: str, workspace: str, resume: str) -> Callable[[F], F]:
    """Add the same as `output_options`, with help texts of their own."""

    def add(function: F) -> F:
        function = _json_option(function)
        function = option("--resume", group=OUTPUTS, is_flag=True, help=resume)(function)
        function = option("--workspace", group=RESOURCES, metavar="URI", help=workspace)(function)
        function = name_option(function)
        path = click.Path(path_type=Path)
        return option("--output", group=OUTPUTS, type=path, metavar="DIR", help=output)(function)

    return add


def _json_option(function: F) -> F:
    """Add ``--json``."""
    return option("--json", "as_json", group=OUTPUTS, is_flag=True, help="Print the report as JSON, and nothing else.")(
        function
    )


def name_option(function: F) -> F:
    """Add ``--name``."""
    return option(
        "--name",
        group=OUTPUTS,
        metavar="TEXT",
        callback=_checked_name,
        help="Name of the run on page and console and in the JSON. Default: the last part of DIR.",
    )(function)


def _checked_name(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    name = None if given is None else " ".join(given.split())
    if name is not None and not (name and name.isprintable()):
        raise click.UsageError(f"--name takes a line of text, found {given!r}")
    return name


def observation_options(function: F) -> F:
    """Add ``--log-json`` and ``--performance-report``."""
    function = option(
        "--performance-report",
        group=OUTPUTS,
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Write Dask's performance report of the cluster there: an HTML page that needs no network.",
    )(function)
    return events_option(function)


def events_option(function: F) -> F:
    """Add ``--log-json``."""
    # It holds before options are read, so that wrong ones are events too; see `reid_dist.cli.main`.
    return option(
        OPTION,
        group=OUTPUTS,
        is_flag=True,
        expose_value=False,
        help="Write progress, messages and errors to standard error as JSON, an object a line.",
    )(function)


def chunk_options(function: F) -> F:
    """Add ``--chunk-rows`` and ``--shard-rows`` of a feature store."""
    function = click.option(
        "--shard-rows",
        type=click.IntRange(min=1),
        help="Rows of a shard, for object stores; not below --chunk-rows. Default: no shards.",
    )(function)
    return click.option(
        "--chunk-rows", type=click.IntRange(min=1), help="Rows of a chunk. Default: about 16 MiB of features."
    )(function)


def choose_cluster(cluster_file: Path | None, workers: int | None) -> ClusterConfig:
    """Turn the two options into a cluster."""
    from reid_dist.clusters.workers import prepare_local_workers

    if cluster_file is None:
        # Before everything that takes time, so that the workers' imports run beside this process's own.
        prepare_local_workers()
    from reid_dist.clusters import LocalCluster, read_cluster, take_part

    if cluster_file is None:
        return LocalCluster(kind="local", workers=workers)
    if workers is not None:
        raise click.UsageError("--workers belongs to the local cluster; with --cluster, set it in the file")
    cluster = read_cluster(cluster_file)
    # A process of a job that runs this command many times over may have another part than to go on with it.
    take_part(cluster)
    return cluster
