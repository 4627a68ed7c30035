"""Options that several commands share, and what they mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reid_dist.cli.events import OPTION
from reid_dist.cli.grouping import CONVENTIONS, INPUTS, OUTPUTS, RESOURCES, option

if TYPE_CHECKING:
    from reid_dist.clusters import ClusterConfig

__all__ = [
    "choose_cluster",
    "cluster_options",
    "events_option",
    "job_fields",
    "job_options",
    "name_option",
    "observation_options",
    "output_options",
    "override_option",
    "refuse_idle_options",
    "refuse_idle_resume",
    "shared_options",
]

F = TypeVar("F", bound=Callable[..., Any])


PROTOCOLS = (
    *("market1501", "market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "no_cameras", "same_set"),
    *("oxford", "revisitop_easy", "revisitop_medium", "revisitop_hard"),
)
DISTANCES = ("cosine", "euclidean", "sqeuclidean")
VARIANTS = ("zhong", "zhong_d4", "faiss_k1", "paper")
"""Names of the registries, written out: help imports none of them."""

_JobOption = tuple[tuple[str, ...], dict[str, Any]]

# Options that commands share, by the field that they stand for.
_SHARED: dict[str, _JobOption] = {
    "protocol": (
        ("--protocol",),
        {
            "group": CONVENTIONS,
            "default": "market1501",
            "show_default": True,
            "metavar": "NAME",
            "help": f"Which items are relevant and which are junk: {', '.join(PROTOCOLS)}; see `reid-dist list "
            "protocols`.",
        },
    ),
    "distance": (
        ("--distance",),
        {
            "group": CONVENTIONS,
            "default": "cosine",
            "show_default": True,
            "metavar": f"[{'|'.join(DISTANCES)}]",
            "help": "See `reid-dist list distances`.",
        },
    ),
    "metrics": (
        ("--metric", "metrics"),
        {
            "group": CONVENTIONS,
            "multiple": True,
            "metavar": "NAME",
            "help": "mAP, CMC@10 (or rank-10), TAR@FAR=1e-3, …; repeatable, or with commas; see `reid-dist list "
            "metrics`. Default: mAP, mINP, the protocol's AP and CMC@1, 5, 10.",
        },
    ),
    "max_rank": (
        ("--max-rank",),
        {
            "group": CONVENTIONS,
            "type": int,
            "default": 50,
            "show_default": True,
            "metavar": "N",
            "help": "Length of the curves over ranks.",
        },
    ),
    "ground_truth": (
        ("--ground-truth",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "Lists for oxford and revisitop: JSON, or a directory of Oxford text files.",
        },
    ),
    "chunk_rows": (
        ("--chunk-rows",),
        {
            "group": RESOURCES,
            "type": int,
            "metavar": "N",
            "help": "Rows of a tile; the answer does not depend on it.",
        },
    ),
}

# Fields of a job that `evaluate` takes as options, in the order of its help.
_JOB_OPTIONS: tuple[_JobOption, ...] = (
    *(_SHARED[name] for name in ("protocol", "distance", "metrics", "max_rank", "ground_truth")),
    (
        ("--expand",),
        {
            "group": CONVENTIONS,
            "metavar": "SPEC",
            "help": "Such as 'alpha_qe(k=5,alpha=3)' or 'dba(k=5)+aqe(k=3)'; see `reid-dist list expansions`.",
        },
    ),
    (
        ("--rerank",),
        {
            "group": CONVENTIONS,
            "metavar": "SPEC",
            "help": "Such as 'k_reciprocal(k1=20,k2=6,lambda_value=0.3)'; see `reid-dist list rerankers`.",
        },
    ),
    (
        ("--topk",),
        {
            "group": OUTPUTS,
            "type": int,
            "metavar": "K",
            "help": "Write the K nearest items of every query to DIR (topk.npz).",
        },
    ),
    (
        ("--ties",),
        {
            "group": OUTPUTS,
            "is_flag": True,
            "help": "Also give optimistic and pessimistic values.",
        },
    ),
    (
        ("--breakdown", "breakdowns"),
        {
            "group": OUTPUTS,
            "multiple": True,
            "metavar": "NAME",
            "help": "camera, camera_pair, identity, gallery_size, or a label column; repeatable.",
        },
    ),
    (
        ("--gallery-size", "gallery_sizes"),
        {
            "group": OUTPUTS,
            "multiple": True,
            "metavar": "N",
            "help": "Size of the distractor curve: rows, or a share such as 0.5; repeatable. Default: ten steps.",
        },
    ),
    (
        ("--gallery-order",),
        {
            "group": OUTPUTS,
            "type": click.Choice(["stored", "random"]),
            "default": "stored",
            "show_default": True,
            "help": "How rows enter the distractor curve.",
        },
    ),
    (
        ("--single-shot-draws",),
        {
            "group": CONVENTIONS,
            "type": int,
            "metavar": "N",
            "help": "Estimate the single-shot CMC from N draws, not exactly.",
        },
    ),
    (
        ("--roc",),
        {
            "group": OUTPUTS,
            "is_flag": True,
            "help": "Also give the ROC at fixed false accept rates.",
        },
    ),
    (
        ("--confidence",),
        {
            "group": OUTPUTS,
            "type": float,
            "metavar": "LEVEL",
            "default": 0.95,
            "show_default": True,
            "help": "Level of the bootstrap intervals.",
        },
    ),
    (
        ("--seed",),
        {
            "group": OUTPUTS,
            "type": int,
            "metavar": "N",
            "default": 0,
            "show_default": True,
            "help": "Of draws, random orders and intervals.",
        },
    ),
    (
        ("--pictures",),
        {
            "group": OUTPUTS,
            "metavar": "ROWS",
            "help": "Show ranked pictures: 'hardest', or query rows such as 3,17 beside them. Needs --topk.",
        },
    ),
    (
        ("--image-root",),
        {
            "group": INPUTS,
            "metavar": "DIR",
            "help": "Where relative paths of --pictures start. Default: here.",
        },
    ),
    (
        ("--distances",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "A .npy block of distances, mapped; QUERY and GALLERY then give labels alone.",
        },
    ),
    (
        ("--lists",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "A .npz of top-k lists (index, distance); QUERY and GALLERY then give labels alone.",
        },
    ),
    _SHARED["chunk_rows"],
)


def shared_options(*fields: str, **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add options that several commands share.

    Parameters
    ----------
    *fields
        The fields that they stand for, in the order of the help.
    **changed
        Attributes of an option that this command has otherwise, by field.
    """

    def add(function: F) -> F:
        for field in reversed(fields):
            names, attributes = _SHARED[field]
            function = option(*names, **{**attributes, **changed.get(field, {})})(function)
        return function

    return add


def job_options(function: F) -> F:
    """Add an option for every field of a job that is no input."""
    for names, attributes in reversed(_JOB_OPTIONS):
        function = option(*names, **attributes)(function)
    return function


def job_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Turn the values of `job_options` into fields of a job: what was not given is left to its default."""
    fields = dict(given)
    fields["metrics"] = fields["metrics"] or None
    fields["gallery_sizes"] = [_size(text) for text in fields["gallery_sizes"]] or None
    pictures = fields["pictures"]
    if pictures is not None and pictures != "hardest":
        try:
            fields["pictures"] = [int(row) for row in pictures.split(",")]
        except ValueError:
            raise click.UsageError(
                f"--pictures takes 'hardest' or query rows separated by commas, found {pictures!r}"
            ) from None
    return fields


def refuse_idle_options(given: Mapping[str, Any], *, output: Path | None, as_json: bool) -> None:
    """Refuse options of `evaluate` that would do nothing without another one, which must have been forgotten.

    Parameters
    ----------
    given
        The values of `job_options`.
    output
        Where the report goes, if anywhere.
    as_json
        Whether the report is printed as JSON, which holds a digest of the lists.
    """
    if given["gallery_order"] != "stored" and "gallery_size" not in given["breakdowns"]:
        raise click.UsageError(
            f"--gallery-order {given['gallery_order']} is of the distractor curve; add --breakdown gallery_size"
        )
    if given["image_root"] is not None and given["pictures"] is None:
        raise click.UsageError("--image-root is where the paths of --pictures start; add --pictures")
    if given["topk"] is not None and output is None and not as_json:
        raise click.UsageError("--topk writes topk.npz to the output directory; add --output DIR")


def refuse_idle_resume(resume: bool, output: Path | None) -> None:
    """Refuse to resume where there is nothing to take up."""
    if resume and output is None:
        raise click.UsageError("--resume takes up an output directory; add --output DIR")


def _size(text: str) -> int | float:
    """Read a number of rows, or a share."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(
            f"--gallery-size takes a number of rows or a share such as 0.5, found {text!r}"
        ) from None


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
    function = name_option(function)
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
        help="Tell progress, messages and errors on standard error as JSON, an object a line.",
    )(function)


def choose_cluster(cluster_file: Path | None, workers: int | None) -> ClusterConfig:
    """Turn the two options into a cluster."""
    from reid_dist.workers import prepare_local_workers

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
