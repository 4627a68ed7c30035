"""The runner of jobs: spec, finished result, computation, saved result.

A result is a report in an output directory, or a feature store; its `ResultStore` holds what differs.  The spec
(`reid_dist.evaluation.checked_options`) is stored with the result, and compared with that of a job that resumes it; a
small file records the spec of an unfinished run until the run is done.  Finished parts in a workspace are named after
all that they depend on and cannot be confused; the file serves users who resume with other options than before.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import reid_dist.core.signals as signals
from reid_dist.core.credentials import printable
from reid_dist.core.formatting import byte_size, short_digests
from reid_dist.core.json_text import parse_json
from reid_dist.core.limits import usable_memory
from reid_dist.core.parameters import shown
from reid_dist.core.regular_files import MOST_SETTINGS, read_regular
from reid_dist.core.temporary import DRAFT_NAME, remove_abandoned_drafts
from reid_dist.engine.plan import DEFAULT_MEMORY
from reid_dist.errors import DamagedStoreError, InputError, PlanError, RunFailedError, StoreError
from reid_dist.evaluation.checked_options import Spec, differing, entry_text
from reid_dist.metrics.curves import curve_bytes
from reid_dist.reports import described_run
from reid_dist.reports.report_files import refuse_occupied, refuse_uri
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace
from reid_dist.stores.folders import make_folder, written_whole

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.evaluation.splits import SplitReport
    from reid_dist.evaluation.sweeps import SweepReport
    from reid_dist.reports import Report

_WORKSPACE = "workspace"
_ADVICE = "choose another --output"
_UNFINISHED = "unfinished.json"

R = TypeVar("R")
Document = TypeVar("Document", "Report", "SweepReport", "SplitReport")


class ResultStore(ABC, Generic[R]):
    """Loads and saves the result of one job."""

    @property
    @abstractmethod
    def location(self) -> object:
        """Location of the result, for messages."""

    @property
    @abstractmethod
    def mismatch(self) -> str:
        """What a result of another spec is called in an error."""

    @property
    @abstractmethod
    def home(self) -> Path | None:
        """Local directory of the record of an unfinished run, and of its workspace; None for neither."""

    @abstractmethod
    def begun(self, *, resume: bool) -> AbstractContextManager[None]:
        """Refuse a place that is taken; in the end, remove what an unfinished run need not keep."""

    @abstractmethod
    def find(self, spec: Spec) -> R | None:
        """The finished result, unless it is to be replaced by one of this spec; None if there is none."""

    @abstractmethod
    def spec(self, result: R) -> Spec:
        """The spec that is stored with a result; empty in one of an earlier version."""

    def remark(self, result: R) -> str | None:
        """One line on what a finished result keeps of its own; None for none."""
        return None

    def prepare(self) -> None:
        """Prepare to save a result, in a thread, while it is computed."""

    def save(self, result: R, spec: Spec) -> R:
        """Save a result with its spec, unless its computation has; return it as it is kept."""
        return result


@dataclass(frozen=True, kw_only=True)
class ReportStore(ResultStore[Document]):
    """A report of a class as files of an output directory, None to write nothing.

    `title` is the name of the run, by default the last part of `output`; a finished report keeps its own.
    """

    report_class: type[Document]
    output: Path | None = None
    title: str | None = None
    description: str = ""
    command: str = ""

    @property
    def location(self) -> object:
        """The output directory."""
        return self.output

    @property
    def mismatch(self) -> str:
        """What the report of another spec is called in an error."""
        return self.report_class.another

    @property
    def home(self) -> Path | None:
        """The output directory."""
        return self.output

    @contextlib.contextmanager
    def begun(self, *, resume: bool) -> Iterator[None]:
        """Refuse a directory that holds anything, unless the run in it is resumed."""
        if self.output is not None and resume:
            refuse_uri(self.output)
        elif self.output is not None:
            refuse_occupied(self.output, otherwise="or --resume to continue the run in it")
        yield

    def find(self, spec: Spec) -> Document | None:
        """Load the report, if its document is there."""
        if self.output is None or not (self.output / self.report_class.document).is_file():
            return None
        return self.report_class.load(self.output)

    def spec(self, result: Document) -> Spec:
        """The spec of the report."""
        return result.spec

    def remark(self, result: Document) -> str | None:
        """That the report keeps its name, if another one is wanted."""
        name = result.heading.title
        return None if self.title in (None, name) else f"{self.output} is finished and keeps its name {name!r}"

    def prepare(self) -> None:
        """Import what saving needs."""
        if self.output is not None:
            self.report_class.prepare_save()

    def save(self, result: Document, spec: Spec) -> Document:
        """Write the report, with its spec and the description of its run."""
        name = self.title or printable("" if self.output is None else self.output.resolve().name)
        run = described_run(name or result.heading.title, description=self.description, command=self.command)
        report = replace(result, spec=dict(spec), run=run)
        if self.output is not None:
            report.save(self.output, overwrite=True)
        return report


@dataclass(frozen=True, kw_only=True)
class Run(Generic[R]):
    """A job with its inputs open: its spec, and what it computes in a session.

    `curve_shape` are queries and ranks of the curves, for which this process needs memory; None for no curves, or for
    curves that end earlier.
    """

    spec: Spec
    compute: Callable[[Session], R]
    curve_shape: tuple[int, int] | None = None


def run_job(
    prepare: Callable[[], Run[R]],
    store: ResultStore[R],
    connect: Callable[[], AbstractContextManager[Client | None]],
    *,
    workspace: str | None = None,
    resume: bool = False,
    resumed_by: str | None = None,
    notify: Callable[[str], None] = warnings.warn,
) -> R:
    """Compute a result and save it, or return the finished one of the same spec.

    Parameters
    ----------
    prepare
        Opens the inputs.
    store
        Where the result goes.
    connect
        Starts or reaches the cluster; None is threads of this process.
    workspace
        A directory or URI for parts, by default in the directory of the store, and a temporary one without any.
    resume
        Whether the store may hold an earlier run of the job.
    resumed_by
        Words for what resumes an interrupted run, None where parts do not outlive it.
    notify
        Called with remarks of one line.
    """
    with store.begun(resume=resume), _workspace_for(store.home, workspace) as folder:
        run = prepare()
        found = store.find(run.spec) if resume else None
        if found is not None:
            _refuse_other_result(store, run.spec, found)
            if (remark := store.remark(found)) is not None:
                notify(remark)
            return found
        if run.curve_shape is not None:
            _refuse_long_curves(*run.curve_shape)
        with (
            _failures_with_advice(folder, resumed_by),
            _without_old_temporaries(folder, store.home),
            _recorded_spec(store.home, folder, run.spec),
            connect() as client,
        ):
            threading.Thread(target=_without_errors, args=(store.prepare,), daemon=True).start()
            session = Session(client=client, workspace=None if folder is None else Workspace.at(folder))
            return store.save(run.compute(session), run.spec)


def _without_errors(prepare: Callable[[], object]) -> None:
    # What fails here fails again where it is needed.
    with contextlib.suppress(Exception):
        prepare()


# ---- finished results ------------------------------------------------------------------------------------------------


def _refuse_other_result(store: ResultStore[R], spec: Spec, result: R) -> None:
    """Refuse a finished result of another spec."""
    found = store.spec(result)
    if not found:
        raise InputError(
            f"{store.location} holds a result of an earlier version, which did not store what it was made from; "
            "choose another --output"
        )
    if others := differing(spec, found):
        names = ", ".join(dict.fromkeys(path[0] for path in others))
        raise InputError(
            f"{store.location} holds {store.mismatch} (different {names}); choose another --output",
            details=[_difference(".".join(path), *values) for path, values in others.items()],
        )


def _difference(name: str, wanted: object, found: object) -> str:
    now, before = short_digests(*("none" if each is None else shown(each).strip("'") for each in (wanted, found)))
    return f"{name}: {before} before, {now} now"


# ---- unfinished runs -------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _recorded_spec(output: Path | None, workspace: Path | str | None, spec: Spec) -> Iterator[None]:
    """Record a spec in the output directory until the run is done, or has left no parts.

    A workspace outside the output directory is shared by many runs, and none is recorded then.
    """
    if output is None or workspace is None or output not in Path(workspace).parents:
        yield
        return
    path = output / _UNFINISHED
    # Short, for the file has to fit on a disk that is almost full.
    digests = {name: digest for name in spec if (digest := _digest_of(spec, name)) != _digest_of({}, name)}
    _refuse_other_run(path, digests)
    _write_spec(path, digests)
    try:
        yield
    except BaseException:
        # Keep the original exception.
        with contextlib.suppress(StoreError, OSError):
            if not Workspace.at(workspace).holds_parts():
                path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)


def _digest_of(spec: Spec, name: str) -> str:
    return hashlib.sha256(entry_text(spec, name).encode()).hexdigest()[:8]


def _refuse_other_run(path: Path, digests: Mapping[str, str]) -> None:
    try:
        found = parse_json(read_regular(path, MOST_SETTINGS))
        others = [name for name in dict.fromkeys([*digests, *found]) if found.get(name) != digests.get(name)]
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}; choose another --output") from None
    except (ValueError, AttributeError, TypeError):
        raise DamagedStoreError(f"{path} is damaged; delete it, or choose another --output") from None
    if others:
        raise InputError(
            f"{path.parent} holds an unfinished run of another job (different {', '.join(others)}); repeat the "
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
        raise RunFailedError(str(error), details=(*getattr(error, "details", ()), left)) from error


# ---- places ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _workspace_for(output: Path | None, workspace: str | None) -> Iterator[Path | str | None]:
    """Directory for intermediate stores, or a URI of object storage; a default one is removed when it is empty.

    None where nothing is to be written: what must be on disk is then put into a temporary directory.
    """
    if workspace is not None:
        # Object storage has no directories to make.
        yield workspace if "://" in workspace else make_folder(Path(workspace), _ADVICE)
    elif output is None:
        yield None
    else:
        made = not output.exists()
        folder = output / _WORKSPACE
        make_folder(folder, _ADVICE)
        try:
            yield folder
        finally:
            # Empty directories are removed, the output directory only if it was not there before.
            for leftover in (folder, *([output] if made else [])):
                with contextlib.suppress(OSError):
                    leftover.rmdir()


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
