"""The runner of jobs: specification, finished result, finished parts, computation, saved result.

A result is a report in an output directory, or a feature store; its `Form` holds what differs.  The specification
holds all that a result depends on, by name.  It is compared with that of a finished result at the destination, and with
that of an unfinished run, which a small file records until the run is done.  Finished parts in a workspace are named
after all that they depend on and cannot be confused; the file serves users who resume with other options than before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import reid_dist.core.signals as signals
from reid_dist._version import __version__
from reid_dist.core.credentials import printable
from reid_dist.core.formatting import byte_size
from reid_dist.core.json_text import parse_json
from reid_dist.core.limits import usable_memory
from reid_dist.core.regular_files import MOST_SETTINGS, read_regular
from reid_dist.core.temporary import DRAFT_NAME, remove_abandoned_drafts
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.errors import DamagedStoreError, InputError, PlanError, RunFailedError, StoreError
from reid_dist.evaluation.checked_options import CheckedOptions, complete, recorded
from reid_dist.metrics.curves import curve_bytes
from reid_dist.reports import described_run
from reid_dist.reports.documents import plain
from reid_dist.reports.files import refuse_occupied, refuse_uri
from reid_dist.stores import LabelledSet, Workspace
from reid_dist.stores.folders import written_whole
from reid_dist.stores.workspace import read_record, write_record

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.evaluation.splits.report import SplitReport
    from reid_dist.evaluation.sweeps.report import SweepReport
    from reid_dist.reports import Report

_RESUME_OTHERWISE = "or --resume to continue the run in it"
_WORKSPACE = "workspace"
_UNFINISHED = "unfinished.json"

Part = TypeVar("Part")
R = TypeVar("R")
Document = TypeVar("Document", "Report", "SweepReport", "SplitReport")


@dataclass(frozen=True, kw_only=True)
class Destination:
    """Where the result of a job goes, and where its parts are kept.

    `output` is the directory of the run: of its report, and of its record while it is unfinished (None writes neither);
    with `resume` it may hold an earlier run of the job.  `workspace` is a directory or URI, by default
    ``output/workspace``, and a temporary one without `output`.  The name of a run is by default the last part of
    `output`; a finished report keeps its name.  `resumed_by` are words for what resumes an interrupted run, None where
    parts do not outlive it.
    """

    output: Path | None = None
    workspace: str | None = None
    resume: bool = False
    name: str | None = None
    description: str = ""
    command: str = ""
    resumed_by: str | None = None


class Form(Protocol[R]):
    """How results of a kind are kept at a destination."""

    def find(self, to: Destination) -> R | None:
        """The finished result; None if there is none."""

    def place(self, to: Destination) -> object:
        """Location of the result, for messages."""

    def name(self, result: R) -> str:
        """Name of the run that a finished result keeps."""

    def keep(self, result: R, to: Destination) -> R:
        """Save a result, unless its computation has; return it as it is kept."""


@dataclass(frozen=True)
class ReportForm(Generic[Document]):
    """Reports of a class as files of the output directory."""

    report_class: type[Document]

    def find(self, to: Destination) -> Document | None:
        """Load the report, if its document is there."""
        if to.output is None or not (to.output / self.report_class.document).is_file():
            return None
        return self.report_class.load(to.output)

    def place(self, to: Destination) -> object:
        """The output directory."""
        return to.output

    def name(self, result: Document) -> str:
        """Title of the report."""
        return result.heading.title

    def keep(self, result: Document, to: Destination) -> Document:
        """Write the report, with the description of its run."""
        name = to.name or printable("" if to.output is None else to.output.resolve().name) or result.heading.title
        report = replace(result, run=described_run(name, description=to.description, command=to.command))
        if to.output is not None:
            report.save(to.output, overwrite=True)
        return report


@dataclass(frozen=True, kw_only=True)
class Computation(Generic[R]):
    """What a job computes, with its inputs open.

    `form` is how the result is kept.  `spec` is all that the result depends on, by name, `spec_of` the same of a
    finished result, and `digests` are entries of it that take long to compute, for the comparison with a finished
    result.  `other` are words for the result of another specification.  `curve_shape` are queries and ranks of the
    curves, for which this process needs memory; None for no curves, or for curves that end earlier.  `beside` runs in a
    thread meanwhile, and prepares to save the result.
    """

    form: Form[R]
    spec: dict[str, Any]
    spec_of: Callable[[R], dict[str, Any]]
    compute: Callable[[Client | None, Path | str | None], R]
    other: str
    curve_shape: tuple[int, int] | None = None
    digests: Callable[[], dict[str, Any]] = field(default=dict)
    beside: Callable[[], object] = lambda: None


def run_job(
    prepare: Callable[[], Computation[R]],
    to: Destination,
    connect: Callable[[], AbstractContextManager[Client | None]],
    notify: Callable[[str], None] = warnings.warn,
) -> R:
    """Compute a result and save it, or return the finished one of the same specification.

    `prepare` opens the inputs; `connect` starts or reaches the cluster, and None is threads of this process; `notify`
    is called with remarks of one line.
    """
    output = to.output
    if output is not None:
        refuse_uri(output) if to.resume else refuse_occupied(output, otherwise=_RESUME_OTHERWISE)
    with _workspace_for(output, to.workspace) as folder:
        job = prepare()
        found = job.form.find(to) if to.resume else None
        if found is not None:
            _refuse_other_result(job, found, to)
            if to.name not in (None, job.form.name(found)):
                notify(f"{job.form.place(to)} is finished and keeps its name {job.form.name(found)!r}")
            return found
        if job.curve_shape is not None:
            _refuse_long_curves(*job.curve_shape)
        with (
            _failures_with_advice(folder, to.resumed_by),
            _without_old_temporaries(folder, output),
            _recorded_spec(output, folder, job.spec),
            connect() as client,
        ):
            if output is not None:
                threading.Thread(target=_without_errors, args=(job.beside,), daemon=True).start()
            return job.form.keep(job.compute(client, folder), to)


def _without_errors(prepare: Callable[[], object]) -> None:
    # What fails here fails again where it is needed.
    with contextlib.suppress(Exception):
        prepare()


# ---- specifications --------------------------------------------------------------------------------------------------


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


def reported_spec(report: Report | SweepReport | SplitReport) -> dict[str, Any]:
    """The same entries of a finished report."""
    found_per_run = ("ground_truth", "single_shot")
    return {
        **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
        "protocol": {name: text for name, text in report.protocol.items() if name not in found_per_run},
        "ground_truth": report.protocol.get("ground_truth", {}).get("content_digest"),
        "distance": report.distance["name"],
        # An option that is missing in a report is newer than the report.
        **recorded(complete({})),
        **report.options,
    }


def _as_json(value: Any) -> str:
    """A value as JSON, in which 1 and 1.0 differ, as they do as sizes of a gallery."""
    return json.dumps(plain(value))


# ---- finished results and parts --------------------------------------------------------------------------------------


def _refuse_other_result(job: Computation[R], result: R, to: Destination) -> None:
    """Refuse a finished result of another specification."""
    wanted, found = {**job.spec, **job.digests()}, job.spec_of(result)
    others = [name for name in wanted if _as_json(wanted[name]) != _as_json(found.get(name))]
    if others:
        raise InputError(
            f"{job.form.place(to)} holds {job.other} ({', '.join(others)} differ); choose another --output"
        )


class FinishedParts(Generic[Part]):
    """Finished parts of a job of many evaluations in a workspace, written one by one.

    `identity` is everything that the values of all parts depend on, `make` the dataclass of a part, made of plain
    values; `warn` is called with one line for each damaged part, which counts as not finished.
    """

    def __init__(
        self, workspace: Workspace, kind: str, identity: Any, make: Callable[..., Part], warn: Callable[[str], None]
    ) -> None:
        self._workspace, self._make, self._warn = workspace, make, warn
        self._stage = workspace.stage(kind, [__version__, identity], {})

    def find(self, name: str) -> Part | None:
        """Return a part; None if it is not finished, or damaged."""
        found = read_record(self._stage, name, self._warn)
        return None if found is None else self._make(**found)

    def keep(self, name: str, part: Part) -> None:
        """Write a part."""
        write_record(self._stage, name, vars(part))

    def remove(self) -> None:
        """Remove all parts."""
        self._workspace.remove(self._stage)


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
        found = parse_json(read_regular(path, MOST_SETTINGS))
        others = [name for name, digest in digests.items() if found.get(name) != digest]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}; choose another --output") from None
    except (ValueError, AttributeError):
        raise DamagedStoreError(f"{path} is damaged; delete it, or choose another --output") from None
    if others:
        raise InputError(
            f"{path.parent} holds an unfinished run of another job ({', '.join(others)} differ); repeat the "
            "command of that run with --resume, or choose another --output"
        )


def _write_spec(path: Path, digests: Mapping[str, str]) -> None:
    try:
        with written_whole(path) as file:
            file.write(json.dumps(digests, separators=(",", ":")).encode())
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; make room or choose another --output") from None


@contextlib.contextmanager
def _failures_with_advice(folder: Path | str | None, resumed_by: str | None) -> Iterator[None]:
    """Add to the error of a failed or interrupted run what is left of it, and how to resume."""
    try:
        yield
    except (RunFailedError, KeyboardInterrupt) as error:
        if resumed_by is None or folder is None or not Workspace.at(folder).holds_parts():
            raise
        left = f"what is finished is kept in {folder}: {resumed_by} goes on from there"
        # Workers that a signal ended as well may have been missed first.
        if isinstance(error, KeyboardInterrupt) or signals.received() is not None:
            raise KeyboardInterrupt(left) from error
        raise RunFailedError(f"{error}; {left}") from error


# ---- places ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _workspace_for(output: Path | None, workspace: str | None) -> Iterator[Path | str | None]:
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
    """Remove drafts of killed processes, also of this run: of this host, and those of others that have not changed.

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
        for folder in folders:
            if folder is not None and "://" not in str(folder):
                remove_abandoned_drafts(folder)


def _temporaries(folders: tuple[Path | str | None, ...]) -> dict[Path, tuple[int, int]]:
    """Size and time of the last change by temporary file; object storage, whose writes are atomic, has none."""
    found = {}
    for folder in folders:
        if folder is None or "://" in str(folder):
            continue
        for pattern in (".*", "*/.*"):
            for path in Path(folder).glob(pattern):
                if DRAFT_NAME.fullmatch(path.name):
                    with contextlib.suppress(OSError):
                        state = path.stat()
                        found[path] = (state.st_size, state.st_mtime_ns)
    return found


def _refuse_long_curves(n_query: int, max_rank: int) -> None:
    """Refuse curves over more ranks than this process, which puts the report together, has memory for."""
    needed = curve_bytes(n_query, max_rank)
    if needed <= DEFAULT_MEMORY:
        return
    limit = usable_memory()
    if needed > limit:
        raise PlanError(
            f"curves over {max_rank:,} ranks of {n_query:,} queries take {byte_size(needed)} in this process, and "
            f"it may take {byte_size(limit)}: choose a smaller --max-rank, or max_rank of the pipeline"
        )
