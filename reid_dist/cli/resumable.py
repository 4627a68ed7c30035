"""The runner of resumable commands: specification, finished report, computation, saved report.

The specification holds all that a result depends on, by name.  It is compared with that of a finished report in the
output directory, and with that of an unfinished run, which a small file records until the run is done.  Partial results
in a workspace are named after all that they depend on and cannot be confused; the file serves users who resume with
other options than before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

import reid_dist.core.signals as signals
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.options import RunOptions
from reid_dist.core.credentials import command_line, printable
from reid_dist.core.formatting import byte_size
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.errors import DamagedStoreError, InputError, PlanError, RunFailedError, StoreError
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.option_values import recorded
from reid_dist.metrics.curves import curve_bytes
from reid_dist.reports import described_run
from reid_dist.reports.documents import plain
from reid_dist.reports.files import refuse_occupied, refuse_uri
from reid_dist.stores import LabelledSet, Workspace

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.evaluation.splits import SplitReport
    from reid_dist.evaluation.sweeps import SweepReport
    from reid_dist.reports import Report

_RESUME_OTHERWISE = "or --resume to take up what is in it"
_WORKSPACE = "workspace"
_UNFINISHED = "unfinished.json"

# The two kinds of names of temporary files: parts of a workspace, and reports.
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}|\..+\.[0-9a-f]{8}\.tmp")


R = TypeVar("R", "Report", "SweepReport", "SplitReport")


@dataclass(frozen=True, kw_only=True)
class Computation(Generic[R]):
    """What a resumable command computes, with its inputs open.

    Attributes
    ----------
    spec
        All that the result depends on, by name.
    spec_of
        The same of a finished report.
    compute
        Function of a client and a workspace that returns the report.
    n_query, max_rank
        Shape of the curves, for which this process needs memory.
    digests
        Entries of the specification that take long to compute; they are compared with those of a finished report.
    """

    spec: dict[str, Any]
    spec_of: Callable[[R], dict[str, Any]]
    compute: Callable[[Client | None, Path | str | None], R]
    n_query: int
    max_rank: int
    digests: Callable[[], dict[str, Any]] = field(default=dict)


def run_resumable(
    run: RunOptions,
    report_class: type[R],
    prepare: Callable[[], Computation[R]],
    *,
    document: str,
    other: str,
    on_cluster: bool = True,
    again: str | None = None,
) -> R:
    """Compute a report and save it, or return the finished one of the same specification.

    Parameters
    ----------
    run
        Where to compute and to save.
    report_class
        Class of the report.
    prepare
        Opens the inputs.
    document
        File that a finished output directory has.
    other
        Words for the report of another specification.
    on_cluster
        Whether anything is computed on the cluster.
    again
        The command that resumes a stopped run; None for this one with ``--resume``.

    Raises
    ------
    StoreExistsError
        If the output directory holds anything and ``--resume`` is not given.
    InputError
        If it holds the report, or an unfinished run, of another specification.
    PlanError
        If the curves need more memory than there is.
    RunFailedError
        If the cluster broke; the message names what is left of the run.
    """
    output = run.output
    if output is not None:
        refuse_uri(output) if run.resume else refuse_occupied(output, otherwise=_RESUME_OTHERWISE)
    refuse_unobservable(run.cluster, run.performance_page, computes=on_cluster)
    finished = run.resume and output is not None and (output / document).is_file()
    with workspace_for(output, run.workspace) as folder:
        computation = prepare()
        if finished and output is not None:
            report = report_class.load(output)
            _refuse_other_report(report, computation, f"{output} holds {other}")
            return _with_kept_name(report, run.name, output)
        if on_cluster:
            _refuse_long_curves(computation.n_query, computation.max_rank)
        with (
            _failures_with_advice(folder, output, again),
            _without_old_temporaries(folder, output),
            _recorded_spec(output, folder, computation.spec),
            observed_cluster(run.cluster, run.performance_page) if on_cluster else contextlib.nullcontext() as client,
        ):
            report = computation.compute(client, folder)
            origin = _origin(run.name, output, report.heading.title, run.description)
            report = replace(report, run=origin)
            if output is not None:
                report.save(output, overwrite=True)
    return report


def options_spec(checked: CheckedOptions, query: LabelledSet, gallery: LabelledSet) -> dict[str, Any]:
    """Entries of a specification that every evaluation has."""
    return {
        "query": query.content_digest,
        "gallery": gallery.content_digest,
        "protocol": checked.protocol.describe(),
        "ground_truth": None if checked.truth is None else checked.truth.content_digest,
        "distance": checked.values["distance"],
        **recorded(checked.values),
    }


def differing(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Names of what is not the same; as JSON, for 1 and 1.0 are different sizes of a gallery."""
    return [name for name in wanted if _as_json(wanted[name]) != _as_json(found.get(name))]


def _as_json(value: Any) -> str:
    return json.dumps(plain(value))


# ---- finished reports ------------------------------------------------------------------------------------------------


def _refuse_other_report(report: R, computation: Computation[R], found: str) -> None:
    others = differing({**computation.spec, **computation.digests()}, computation.spec_of(report))
    if others:
        raise InputError(f"{found} ({', '.join(others)} differ); choose another --output")


def _with_kept_name(report: R, name: str | None, output: Path) -> R:
    """Return a finished report as it is; one line on standard error if it was to have another name."""
    kept = report.heading.title
    if name not in (None, kept):
        click.echo(f"{output} is finished and keeps its name {kept!r}", err=True)
    return report


def _origin(name: str | None, output: Path | None, title: str, description: str) -> dict[str, str]:
    """Name, description and command of the run; without a name, the last part of `output`, or else `title`."""
    context = click.get_current_context(silent=True)
    words = None if context is None else context.find_root().obj
    command = command_line(["reid-dist", *words]) if words else ""
    folder = "" if output is None else output.resolve().name
    return described_run(name or printable(folder) or title, description=description, command=command)


# ---- unfinished runs -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _recorded_spec(output: Path | None, workspace: Path | str | None, spec: Mapping[str, Any]) -> Iterator[None]:
    """Record a specification in the output directory until the run is done, or has left no parts.

    A workspace outside the output directory is shared by many runs, and none is recorded then.
    """
    if output is None or workspace is None or output not in Path(workspace).parents:
        yield
        return
    path = output / _UNFINISHED
    # Short, for the file has to fit on a disk that is almost full.
    digests = {name: hashlib.sha256(_as_json(value).encode()).hexdigest()[:8] for name, value in spec.items()}
    _refuse_other_run(path, digests)
    _write_spec(path, digests)
    try:
        yield
    except BaseException:
        # Whatever else is wrong by now, the error on its way is the one to report.
        with contextlib.suppress(StoreError, OSError):
            if not Workspace.at(workspace).holds_parts():
                path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


def _refuse_other_run(path: Path, digests: Mapping[str, str]) -> None:
    try:
        found = json.loads(path.read_text())
        others = [name for name, digest in digests.items() if found.get(name) != digest]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}; choose another --output") from None
    except (ValueError, AttributeError):
        raise DamagedStoreError(f"{path} is damaged; delete it, or choose another --output") from None
    if others:
        raise InputError(
            f"{path.parent} holds an unfinished run of another job ({', '.join(others)} differ); repeat the "
            "command of that run with --resume, or choose another --output"
        )


def _write_spec(path: Path, digests: Mapping[str, str]) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        temporary.write_text(json.dumps(digests, separators=(",", ":")))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise StoreError(f"cannot write {path}: {error.strerror}; make room or choose another --output") from None


@contextlib.contextmanager
def _failures_with_advice(folder: Path | str | None, output: Path | None, again: str | None) -> Iterator[None]:
    """Add to the error of a failed or interrupted run what is left of it, and how to resume."""
    try:
        yield
    except (RunFailedError, KeyboardInterrupt) as error:
        if folder is None or not Workspace.at(folder).holds_parts():
            raise
        how = again or ("the same command" if output is None else "the same command with --resume")
        left = f"what is finished is kept in {folder}: {how} goes on from there"
        # Workers that a signal ended as well may have been missed first.
        if isinstance(error, KeyboardInterrupt) or signals.received() is not None:
            raise KeyboardInterrupt(left) from error
        raise RunFailedError(f"{error}; {left}") from error


# ---- places ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def workspace_for(output: Path | None, workspace: str | None) -> Iterator[Path | str | None]:
    """Directory for intermediate stores, or a URI of object storage; a default one is removed when it is empty.

    None where nothing is to be written: what must be on disk is then put into a temporary directory.
    """
    if workspace is not None:
        # Object storage has no directories to make.
        yield workspace if "://" in workspace else _make(Path(workspace))
    elif output is None:
        yield None
    else:
        made = not output.exists()
        folder = output / _WORKSPACE
        _make(folder)
        try:
            yield folder
        finally:
            # Empty directories are removed, the output directory only if it was not there before.
            for leftover in (folder, *([output] if made else [])):
                with contextlib.suppress(OSError):
                    leftover.rmdir()


def _make(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}; choose another --output") from None
    return folder


@contextlib.contextmanager
def _without_old_temporaries(*folders: Path | str | None) -> Iterator[None]:
    """Remove temporary files of a killed run: those that were there at the beginning and have not changed at the end.

    Another run may work in the same folders, and its files grow; times of other machines are not compared.
    """
    before = _temporaries(folders)
    try:
        yield
    finally:
        after = _temporaries(folders)
        for path, state in before.items():
            if after.get(path) == state:
                with contextlib.suppress(OSError):
                    path.unlink()


def _temporaries(folders: tuple[Path | str | None, ...]) -> dict[Path, tuple[int, int]]:
    """Size and time of the last change by temporary file; object storage, whose writes are atomic, has none."""
    found = {}
    for folder in folders:
        if folder is None or "://" in str(folder):
            continue
        for pattern in (".*", "*/.*"):
            for path in Path(folder).glob(pattern):
                if _TEMPORARY.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        state = path.stat()
                        found[path] = (state.st_size, state.st_mtime_ns)
    return found


def _refuse_long_curves(n_query: int, max_rank: int) -> None:
    """Refuse curves over more ranks than this process, which puts the report together, has memory for."""
    needed = curve_bytes(n_query, max_rank)
    if needed <= DEFAULT_MEMORY:
        return
    # Dask reads limits that the system's own numbers leave out; it takes long to import.
    from distributed.system import memory_limit

    limit = memory_limit()
    if needed > limit:
        raise PlanError(
            f"curves over {max_rank:,} ranks of {n_query:,} queries take {byte_size(needed)} in this process, and "
            f"it may take {byte_size(limit)}: choose a smaller --max-rank, or max_rank of the pipeline"
        )
