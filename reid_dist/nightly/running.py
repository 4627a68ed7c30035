"""A night: the jobs of a suite one after the other, each judged and written to the history as it ends."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import reid_dist.core.signals as signals
from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import ClusterError, ReidDistError, RunFailedError, StoreError
from reid_dist.evaluation.runs import evaluate_sides, open_side
from reid_dist.nightly.entries import done_entry, undone_entry
from reid_dist.nightly.history import History
from reid_dist.nightly.history.run_state import RUNNING
from reid_dist.nightly.history.schema import now
from reid_dist.nightly.history.values import FAILED, SKIPPED, Entry, Finding, Run, reports_folder
from reid_dist.nightly.judgement import judged
from reid_dist.nightly.memory import forget_peaks, peak_bytes
from reid_dist.nightly.suite import PlannedJob, Suite
from reid_dist.reports import Report, described_run
from reid_dist.stores import Workspace
from reid_dist.stores.folders import folder_at

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "DEFECTS",
    "FINE",
    "INTERRUPTED",
    "PARTS_FAILED",
    "REGRESSION",
    "STOPPED",
    "Surroundings",
    "run_suite",
]

FINE: Final = 0
PARTS_FAILED: Final = 3
REGRESSION: Final = 4
STOPPED: Final = 130
"""Exit codes of a night: a failed part outweighs a regression, and a night that was interrupted says nothing more."""

INTERRUPTED: Final = "the night was interrupted"
"""Why entries of such a night were skipped."""

DEFECTS: Final = "traceback.txt"
"""Where the traceback of a job stands that failed by a defect."""

# A cluster that could not be started so often in a row is not tried again for every job that is left.
_MOST_STARTS: Final = 2

# As the directories of runs are called; a name of more digits is none.
_NUMBER: Final = re.compile(r"[0-9]{5,12}")

# Digits that tell the histories apart whose nights share a workspace.
_DIGITS: Final = 12

RowsProgress = Callable[[int, int, str], None]


class _BudgetSpentError(Exception):
    """The time budget ended while a job ran."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Where a night runs, and who is told of it.

    Attributes
    ----------
    connect
        Starts or reaches the cluster; gives None for threads of this process.
    machine
        What times depend on beside the job.
    stages, rows
        Progress of an evaluation, and of reading.
    begun, ended
        Told of every job: its number from 1, how many there are, and its name or its entry.
    """

    connect: Callable[[], AbstractContextManager[Client | None]]
    machine: Mapping[str, Any] = field(default_factory=dict)
    stages: Callable[[], AbstractContextManager[Progress]] = lambda: contextlib.nullcontext(Progress())
    rows: Callable[[], AbstractContextManager[RowsProgress | None]] = lambda: contextlib.nullcontext(None)
    begun: Callable[[int, int, str], None] = lambda *_: None
    ended: Callable[[int, int, Entry], None] = lambda *_: None


def run_suite(
    suite: Suite,
    jobs: list[PlannedJob],
    history: History,
    folder: Path,
    surroundings: Surroundings,
    *,
    workspace: str | None = None,
) -> Run:
    """Run jobs of a suite; what fails is recorded, and the rest goes on.

    Parameters
    ----------
    suite
        The suite: its name, gates and budget.
    jobs
        Those of its jobs that run, in order.
    history
        Where every job is written to as it ends.
    folder
        Directory of the page; reports go to ``runs/NUMBER/model/dataset/job`` in it.
    surroundings
        Where it runs, and who is told.
    workspace
        Directory or URI for what jobs share while they run; None for one in `folder`.

    Returns
    -------
    The run as the history has it.

    Raises
    ------
    StoreError
        If the run cannot be begun.
    RunFailedError
        If the history cannot be written any more; what is in it, and reports that are done in `folder`, stay.
    """
    deadline = None if suite.hours is None else time.monotonic() + suite.hours * 3600
    shared = Workspace.at(workspace if workspace is not None else folder / "workspace")
    _remove_left_over(shared, history)
    history.back_up()
    # A history that was begun anew must not meet the reports of the one before.
    number = history.begin(
        suite.suite,
        suite.digest,
        folder=str(folder.absolute()),
        planned=[planned.name for planned in suite.planned()],
        hours=suite.hours,
        above=_last_report(folder),
    )
    places = _Places(folder, number, shared.place(_shared_name(history, number)))
    try:
        left_out = _run_jobs(suite, jobs, history, places, surroundings, deadline)
        Workspace(places.shared).clear()
        if workspace is None:
            with contextlib.suppress(OSError):
                (folder / "workspace").rmdir()
        history.finish(number, STOPPED if left_out == INTERRUPTED else _exit_code(history.run(number)))
        return history.run(number)
    except StoreError as error:
        raise RunFailedError(
            f"run {number} of suite {suite.suite} was broken off: {error}; what ended before is in the history"
        ) from error


def _run_jobs(
    suite: Suite,
    jobs: list[PlannedJob],
    history: History,
    places: _Places,
    surroundings: Surroundings,
    deadline: float | None,
) -> str:
    """Evaluate, judge and write down one job after the other; return why some were left out, empty if none was."""
    left_out = ""
    with _Session(surroundings) as session:
        for at, planned in enumerate(jobs, start=1):
            surroundings.begun(at, len(jobs), planned.name)
            report: Report | None = None
            findings: tuple[Finding, ...] = ()
            try:
                if deadline is not None and time.monotonic() >= deadline:
                    raise _BudgetSpentError
                if not left_out:
                    entry, report = _evaluated(planned, places, session, surroundings, deadline)
                    findings = judged(
                        entry, report, history, suite=suite.suite, number=places.number, gates=suite.gates
                    )
            except _BudgetSpentError:
                left_out = f"the time budget of {suite.hours:g} h was spent"
            except KeyboardInterrupt:
                # The books are closed all the same: what is done stays, and the page says how far the night came.
                left_out = INTERRUPTED
                signals.acknowledge("jobs that had ended are in the history and on its page")
            if left_out:
                # Also what was evaluated and not judged any more: nobody shall be compared with it.
                entry, report, findings = undone_entry(planned, SKIPPED, left_out, started=now()), None, ()
            entry = replace(entry, findings=findings)
            history.add(places.number, entry, report)
            surroundings.ended(at, len(jobs), entry)
            if at == len(jobs) or (jobs[at].model, jobs[at].dataset) != (planned.model, planned.dataset):
                places.clear(planned)
    return left_out


def _last_report(folder: Path) -> int:
    """Return the highest number of a run of which there are reports in a directory; 0 for none."""
    try:
        names = [path.name for path in (folder / reports_folder(0)).parent.iterdir()]
    except OSError:
        return 0
    return max((int(name) for name in names if _NUMBER.fullmatch(name)), default=0)


def _shared_name(history: History, number: int) -> str:
    """Name of what the jobs of a run share: nights of other histories may have the same number, and workspace."""
    return f"run-{number:05}-{fingerprint(str(Path(history.path).resolve()))[:_DIGITS]}"


def _remove_left_over(shared: Workspace, history: History) -> None:
    """Remove what nights that were killed had in the workspace."""
    ended = {_shared_name(history, number) for number, state in history.states().items() if state != RUNNING}
    for name in folder_at(shared.path).folders():
        if name in ended:
            Workspace(shared.place(name)).clear()


def _exit_code(run: Run) -> int:
    if run.failures:
        return PARTS_FAILED
    return REGRESSION if run.regressions else FINE


@dataclass(frozen=True)
class _Places:
    """Where things of one run go.

    Attributes
    ----------
    folder
        Directory of the page.
    number
        Of the run.
    shared
        URI of what jobs share.
    """

    folder: Path
    number: int
    shared: str

    def report(self, planned: PlannedJob) -> str:
        """Where the report of a job goes, relative to the page."""
        return f"{reports_folder(self.number)}/{planned.name}"

    def workspace(self, planned: PlannedJob) -> Workspace:
        """What the jobs of one model on one data set share: they read the same features."""
        return Workspace(f"{self.shared}/{planned.model}/{planned.dataset}")

    def clear(self, planned: PlannedJob) -> None:
        """Remove what they shared."""
        self.workspace(planned).clear()


class _Session:
    """A cluster for all jobs of a night; one that broke is replaced for the next job."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._connect = surroundings.connect
        self._open: contextlib.ExitStack | None = None
        self._client: Client | None = None
        self._failures: list[ReidDistError] = []

    def __enter__(self) -> _Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def client(self) -> Client | None:
        """Return the client, of a cluster that is started if none runs."""
        if self._open is None:
            if len(self._failures) >= _MOST_STARTS:
                raise self._failures[-1]
            stack = contextlib.ExitStack()
            try:
                self._client = stack.enter_context(self._connect())
            except (ClusterError, RunFailedError) as error:
                self._failures.append(error)
                raise
            self._open = stack
            self._failures.clear()
        return self._client

    def close(self) -> None:
        """Stop the cluster, if one runs."""
        stack, self._open, self._client = self._open, None, None
        if stack is not None:
            # It may be broken already; what broke it has been told.
            with contextlib.suppress(ReidDistError, OSError, RuntimeError, TimeoutError):
                stack.close()


class _Limited(Progress):
    """Passes progress on, and ends the job when the time is over."""

    def __init__(self, inner: Progress, deadline: float | None) -> None:
        self._inner = inner
        self._deadline = deadline

    def start(self, totals: dict[str, int]) -> None:
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        self._inner.advance(stage)
        if self._deadline is not None and time.monotonic() >= self._deadline:
            raise _BudgetSpentError

    def warn(self, message: str) -> None:
        self._inner.warn(message)


def _evaluated(
    planned: PlannedJob,
    places: _Places,
    session: _Session,
    surroundings: Surroundings,
    deadline: float | None,
) -> tuple[Entry, Report | None]:
    """Evaluate one job; whatever goes wrong becomes its entry, but for the end of the night itself."""
    started, target = now(), places.folder / places.report(planned)
    try:
        client = session.client()
        forget_peaks(client)
        workspace = places.workspace(planned)
        reused = tuple(workspace.kinds())
        begin = time.perf_counter()
        with surroundings.rows() as rows:
            query, gallery = (open_side(planned.pipeline, role, rows) for role in ("query", "gallery"))
        with surroundings.stages() as progress:
            limited = _Limited(progress, deadline)
            report = evaluate_sides(planned.pipeline, query, gallery, client, workspace.path, limited)
        seconds = time.perf_counter() - begin
        report = replace(report, run=described_run(planned.name, description=planned.pipeline.description))
        peak = peak_bytes(client)
        report.save(target)
    except _BudgetSpentError:
        raise
    except (ClusterError, RunFailedError) as error:
        session.close()
        return undone_entry(planned, FAILED, str(error), started=started), None
    except ReidDistError as error:
        return undone_entry(planned, FAILED, str(error), started=started), None
    except Exception as error:  # A defect of ours in one job; the night goes on and the traceback is kept.
        session.close()
        return _defect(planned, error, target, started), None
    entry = done_entry(
        planned,
        report,
        started=started,
        seconds=seconds,
        peak_bytes=peak,
        reused=reused,
        machine=surroundings.machine,
        folder=places.report(planned),
    )
    return entry, report


def _defect(planned: PlannedJob, error: Exception, target: Path, started: str) -> Entry:
    where = ""
    with contextlib.suppress(OSError):
        target.mkdir(parents=True, exist_ok=True)
        (target / DEFECTS).write_text(traceback.format_exc(), encoding="utf-8")
        where = f"; its traceback is in {target / DEFECTS}"
    reason = f"a defect of reid-dist: {type(error).__name__}: {error}{where}"
    return undone_entry(planned, FAILED, reason, started=started)
