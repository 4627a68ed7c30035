"""Options in groups, with one heading per group in the help: those of an evaluation, and others that commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.core import ParameterSource

from reid_dist.cli.events import OPTION
from reid_dist.evaluation.options import JOB_OPTIONS, SPLIT_OPTIONS, Option

if TYPE_CHECKING:
    from reid_dist.clusters import ClusterConfig, EarlyCluster

# Key of the device in the context of a command.
_DEVICE = "reid_dist.device"

F = TypeVar("F", bound=Callable[..., Any])

INPUTS: Final = "Inputs"
SWEPT: Final = "Swept parameters"
DRAW: Final = "Draw"
CONVENTIONS: Final = "Conventions"
OUTPUTS: Final = "Outputs"
RESOURCES: Final = "Resources"

_ORDER: Final = (INPUTS, SWEPT, DRAW, CONVENTIONS, OUTPUTS, RESOURCES)
_UNGROUPED: Final = "Other options"


class GroupedOption(click.Option):
    """An option with a heading in the help, its `group`."""

    def __init__(self, *declarations: Any, group: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows options under the headings of their groups; those without one come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            # Arguments are explained in the text above.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "group", _UNGROUPED), []).append(record)
        known = [*_ORDER, _UNGROUPED]
        for heading in sorted(sections, key=lambda heading: known.index(heading) if heading in known else -1):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def option(*declarations: str, group: str, **attributes: Any) -> Callable[[F], F]:
    """Add an option to a command, under a heading of its help; otherwise as `click.option`."""
    return click.option(*declarations, cls=GroupedOption, group=group, **attributes)


def _reader(declared: Option) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Callback that reads the texts of an option as it is declared; a usage error says what a value must be."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else declared.read(text)
        except ValueError as error:
            raise click.BadParameter(f"{error}, found {text!r}", context, parameter) from None

    def read_all(context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]) -> Any:
        return tuple(value for text in texts for value in read(context, parameter, text))

    return read_all if declared.is_repeatable else read


def shared_options(*names: str, **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add some options of a job or of splits, in the order of the help; `changed` are attributes that differ."""
    known = {**JOB_OPTIONS, **SPLIT_OPTIONS}
    return declared_options([known[name] for name in names], **changed)


def declared_options(options: Iterable[Option], **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add options as they are declared; `changed` are attributes that differ, among them the ``flag``."""
    found = [(each.name, {"flag": each.flag, **_attributes(each), **changed.get(each.name, {})}) for each in options]
    return _together(*(option(attributes.pop("flag"), name, **attributes) for name, attributes in found))


def _attributes(given: Option) -> dict[str, Any]:
    """Arguments of `click.option`."""
    found: dict[str, Any] = {"group": given.heading, "help": given.help}
    if given.form == "flag":
        return {**found, "is_flag": True, **({"flag_value": False, "default": True} if given.switches_off else {})}
    if given.is_repeatable:
        return {**found, "multiple": True, "metavar": given.metavar or "N", "type": str, "callback": _reader(given)}
    if given.default is not None:
        found |= {"default": given.default, "show_default": True}
    metavar = f"[{'|'.join(given.choices)}]" if given.form == "choice" else "N"
    return {**found, "type": str, "metavar": given.metavar or metavar, "callback": _reader(given)}


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out options that keep their default because they are not on the command line."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Where a command computes, and where its report goes.

    `name` is that of the run (None for that of `output`; a finished report keeps its name).  `workspace` is a directory
    or URI for intermediate stores: by default ``output/workspace``, and a temporary one without `output`.  With
    `resume`, `output` may hold an earlier run of the same command.  `performance_page` is a new file for Dask's
    performance report, and `description` that of the pipeline.  A command that writes a store takes its place as an
    option of its own, and fills in `output`.  `early` is the cluster if it has been started.
    """

    cluster: ClusterConfig
    output: Path | None = None
    name: str | None = None
    workspace: str | None = None
    resume: bool = False
    performance_page: Path | None = None
    description: str = ""
    early: EarlyCluster | None = None


def run_options(
    check: Callable[[Mapping[str, Any]], None] | None = None, *, in_threads: bool = False
) -> Callable[[F], Callable[..., Any]]:
    """Give a command its options of cluster and output as one value, ``run``; `check` sees all options first.

    A command `in_threads` runs in threads of this process unless a cluster is requested; any other command, where one
    process serves all cores.
    """

    def apply(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(
            cluster_file: Path | None, workers: int | None, performance_report: Path | None, **given: Any
        ) -> Any:
            if check is not None:
                check(given)
            # A command that writes a store has its place and no name of a run.
            own = {name: given.pop(name) for name in ("output", "name", "workspace", "resume") if name in given}
            if own.get("resume") and own.get("output", ...) is None:
                raise click.UsageError("--resume needs the output directory of the run; add --output DIR")
            from reid_dist.core.environment import default_processes

            usual = in_threads or (performance_report is None and default_processes() == 1)
            if usual and cluster_file is None and workers is None and "rerank" in given:
                from reid_dist.kernels.warmup import warmup

                # First, so that it runs beside the imports of this process.
                warmup()
            cluster = choose_cluster(cluster_file, workers, in_threads=usual)
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


def _together(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Add several options, in the order of the help."""

    def add(function: F) -> F:
        for each in reversed(options):
            function = each(function)
        return function

    return add


def _gallery_or_query(context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """Return the gallery; of one source alone, that source, which holds both sides."""
    return given or str(context.params["query"])


sides_arguments: Final = _together(
    click.argument("query"), click.argument("gallery", required=False, callback=_gallery_or_query)
)
"""QUERY and GALLERY of a command that evaluates them."""


def _checked_name(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str | None:
    name = None if given is None else " ".join(given.split())
    if name is not None and not (name and name.isprintable()):
        raise click.UsageError(f"--name takes a line of text, found {given!r}")
    return name


PATH: Final = click.Path(path_type=Path)
COUNT: Final = click.IntRange(min=1)

override_option = option(
    "--set",
    "overrides",
    group=INPUTS,
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a field with a YAML value; protocol.base=VALUE sets a nested field. Repeatable.",
)

name_option = option(
    "--name",
    group=OUTPUTS,
    metavar="TEXT",
    callback=_checked_name,
    help="Name of the run in all reports. Default: the last part of DIR.",
)

# In effect before options are parsed, so that wrong ones are events too; see `reid_dist.cli.group.run_command`.
events_option = option(
    OPTION,
    group=OUTPUTS,
    is_flag=True,
    expose_value=False,
    help="Write progress, messages and errors to standard error as JSON lines.",
)

observation_options = _together(
    events_option,
    option(
        "--performance-report",
        group=OUTPUTS,
        type=PATH,
        metavar="FILE",
        help="Write Dask's performance report of the cluster to this file: an HTML page that needs no network.",
    ),
)


def _note_device(context: click.Context, _: click.Parameter, given: str | None) -> None:
    """Keep the device for `choose_cluster`."""
    context.meta[_DEVICE] = given


def _cluster_options(*, example: str, usual: str) -> Callable[[F], F]:
    """Add ``--workers``, ``--cluster`` and ``--device``; `usual` is what runs without a cluster."""
    file = f"Cluster file, such as cluster_configs/{example}. Without one: {usual}."
    return _together(
        option("--workers", group=RESOURCES, type=COUNT, metavar="N", help="Worker processes of the local cluster."),
        option("--cluster", "cluster_file", group=RESOURCES, type=PATH, metavar="FILE", help=file),
        option(
            "--device",
            group=RESOURCES,
            type=click.Choice(["auto", "cpu", "cuda"]),
            callback=_note_device,
            expose_value=False,
            help="Device for the products: auto uses a GPU if torch finds one and the job is large enough. "
            "Results do not depend on it. Default: that of the cluster file, or auto.",
        ),
    )


local_options = _cluster_options(example="threads.yaml", usual="a local cluster on all cores")

cluster_options = _cluster_options(
    example="local.yaml", usual="threads on up to 8 cores, and a local cluster on more cores or with --workers"
)

threads_options = _cluster_options(
    example="local.yaml", usual="threads on all cores, or a local cluster with --workers"
)


def metrics_option(purpose: str) -> Callable[[F], F]:
    """Option of the metrics of runs that a command is for."""
    words = f"Metric to {purpose}; repeatable. Default: all common ones."
    return click.option("--metric", "metrics", multiple=True, metavar="NAME", help=words)


# At what level differences between runs are tested, what these tests draw, and how often.
test_options = _together(
    click.option("--level", type=float, default=0.95, show_default=True, help="Confidence level; tests use 1 - level."),
    click.option(
        "--by",
        "unit",
        type=click.Choice(["identity", "query"]),
        default="identity",
        show_default=True,
        help="Resampling unit: identities or single queries.",
    ),
    click.option(
        "--resamples",
        "n_resamples",
        type=int,
        default=10_000,
        show_default=True,
        help="Number of bootstrap resamples and permutations.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the resampling."),
)

image_root_option = click.option(
    "--image-root", metavar="DIR", help="Base directory of relative picture paths. Default: that of the run."
)

chunk_option = option(
    "--chunk-rows", group=OUTPUTS, type=COUNT, metavar="N", help="Rows per chunk. Default: about 16 MiB of features."
)


def resume_options(*, workspace: str, resume: str) -> Callable[[F], F]:
    """Add ``--workspace`` and ``--resume``, with these help texts."""
    return _together(
        option("--workspace", group=RESOURCES, metavar="URI", help=workspace),
        option("--resume", group=OUTPUTS, is_flag=True, help=resume),
    )


def output_options(
    *,
    output: str = "Write report.json, report.html and per_query.npz there. Without it nothing is written.",
    workspace: str = "Directory for intermediate stores; all workers must see it. Default: DIR/workspace.",
    resume: str = "Resume an unfinished run in the output directory. A finished run prints the same report again.",
) -> Callable[[F], F]:
    """Add ``--output``, ``--name``, ``--workspace``, ``--resume`` and ``--json``, with these help texts."""
    words = "Print the report as JSON, and nothing else."
    return _together(
        option("--output", group=OUTPUTS, type=PATH, metavar="DIR", help=output),
        name_option,
        resume_options(workspace=workspace, resume=resume),
        option("--json", "as_json", group=OUTPUTS, is_flag=True, help=words),
    )


def options_in_threads(function: F) -> Callable[..., Any]:
    """Add the options of a command that runs in threads of this process."""
    workspace = "Directory for intermediate stores; all workers must see it."
    added: Callable[[Callable[..., Any]], Callable[..., Any]] = _together(
        threads_options, option("--workspace", group=RESOURCES, metavar="URI", help=workspace), observation_options
    )
    return added(run_options(in_threads=True)(function))


def choose_cluster(cluster_file: Path | None, workers: int | None, *, in_threads: bool = False) -> ClusterConfig:
    """Cluster of ``--cluster``, ``--workers`` and ``--device``; without a file or workers a local one, or threads.

    Prepares local workers, and may end a process that only serves.  Raises `InputError` for a GPU of this machine that
    cannot be used.
    """
    cluster: ClusterConfig
    if cluster_file is not None:
        if workers is not None:
            raise click.UsageError("--workers belongs to the local cluster; with --cluster, set it in the file")
        from reid_dist.clusters import read_cluster, take_part

        cluster = read_cluster(cluster_file)
        # In a job whose tasks all run this command, this process may be the scheduler or a worker.
        take_part(cluster)
    elif in_threads and workers is None:
        from reid_dist.clusters import Threads

        cluster = Threads(kind="threads")
    else:
        from reid_dist.clusters.workers import prepare_local_workers

        # First, so that the workers' imports run beside those of this process.
        prepare_local_workers()
        from reid_dist.clusters import LocalCluster

        cluster = LocalCluster(kind="local", workers=workers)
    device = click.get_current_context().meta.get(_DEVICE)
    if device is not None:
        cluster = cluster.model_copy(update={"device": device})
    wants_gpu = cluster.device == "cuda" or getattr(cluster, "gpus", None) is not None
    if wants_gpu and cluster.kind in ("threads", "local"):
        from reid_dist.engine.policy import require_device

        require_device()
    return cluster
