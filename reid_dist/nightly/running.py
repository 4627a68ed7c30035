"""Run of a suite: its jobs one after the other, each gated and recorded as it ends."""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import reid_dist.core.signals as signals
from reid_dist.core.credentials import without_credentials
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import utc_now
from reid_dist.core.nested import PROSE
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import ClusterError, ExitCode, ReidDistError, RunFailedError, StoreError
from reid_dist.evaluation.options import EXTRAS_OFF
from reid_dist.evaluation.runner import ReportStore, run_job
from reid_dist.evaluation.runner import Run as JobRun
from reid_dist.evaluation.runs import OpenedJob, evaluate_features, prepared_job
from reid_dist.evaluation.sides import RowsProgress
from reid_dist.evaluation.splits import SplitReport
from reid_dist.nightly.common_items import CommonItems, NotCommonError, on_common_items
from reid_dist.nightly.gate_verdicts import apply_gates
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import (
    PER_SPLIT,
    RUNNING,
    Entry,
    Finding,
    Past,
    Run,
    State,
    estimates_of,
    reports_folder,
)
from reid_dist.nightly.memory import peak_bytes, reset_peaks
from reid_dist.nightly.outcomes import exit_code_of
from reid_dist.nightly.preparation import Preparations
from reid_dist.nightly.suite import PlannedJob, Suite
from reid_dist.nightly.wording import finding_text
from reid_dist.reports import Report
from reid_dist.reports.browse import Site, open_subject, write_folder
from reid_dist.reports.documents import plain
from reid_dist.reports.report_files import TOPK
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, Workspace, open_labels
from reid_dist.stores.folders import folder_at

if TYPE_CHECKING:
    from distributed import Client

DEFECTS: Final = "traceback.txt"
"""File with the traceback of a job that failed by a defect."""

# Fields of the protocol that describe an input and not the job.
_INPUTS: Final = frozenset({"ground_truth"})

# Folder of the output of preparations, which no model is called.
_PREPARATIONS: Final = "_prepare"

# Folder of the explorer beside a report.
_EXPLORER: Final = "explorer"

# Consecutive failed starts of the cluster after which it is not started again.
_MOST_STARTS: Final = 2

# Names of the directories of runs.
_NUMBER: Final = re.compile(r"[0-9]{5,12}")

# Digits that distinguish histories whose nights share a workspace.
_DIGITS: Final = 12

T = TypeVar("T")


class _BudgetSpentError(Exception):
    """The time budget ended while a job ran."""


@dataclass(frozen=True, kw_only=True)
class NightContext:
    """Cluster of a night and callbacks.

    `connect` starts or reaches the cluster and yields None for threads of this process; `machine` is what times depend
    on beside the job.  `stages` and `rows` show the progress of an evaluation and of reading.  `begun` and `ended` are
    called for every job with its number from 1, the number of jobs, and its name or entry.
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
    context: NightContext,
    *,
    workspace: str | None = None,
    allow_incomparable: bool = False,
) -> Run:
    """Run jobs of a suite in order, and return the run as recorded; a failed job is recorded, and the rest continues.

    Every job is added to the history as it ends.  Reports go to ``runs/NUMBER/model/dataset/job`` in `folder`, the
    directory of the page; `workspace` is a directory or URI of what jobs share while they run, by default in `folder`.
    With `allow_incomparable`, a job that could not be compared does not set the exit code.  If the history can no
    longer be written, its content and finished reports in `folder` stay.
    """
    deadline = None if suite.hours is None else time.monotonic() + suite.hours * 3600
    place = Workspace.at(workspace if workspace is not None else folder / "workspace")
    _remove_left_over(place, history)
    history.back_up()
    # Numbers of a new history must differ from those of reports of the one before.
    number = history.begin(
        suite.suite,
        suite.digest,
        folder=str(folder.absolute()),
        planned=[planned.name for planned in suite.planned()],
        hours=suite.hours,
        above=_last_report(folder),
    )
    shared = place.place(_shared_name(history, number))
    output = f"{reports_folder(number)}/{_PREPARATIONS}"
    night = _Night(
        suite=suite,
        history=history,
        context=context,
        cluster=_NightCluster(context),
        preparations=Preparations(folder / output, output),
        folder=folder,
        number=number,
        shared=shared,
        deadline=deadline,
    )
    try:
        interrupted = night.run(jobs)
        Workspace(shared).clear()
        if workspace is None:
            with contextlib.suppress(OSError):
                (folder / "workspace").rmdir()
        code = exit_code_of(history.run(number), allow_incomparable=allow_incomparable)
        history.finish(number, ExitCode.INTERRUPTED if interrupted else code)
        return history.run(number)
    except StoreError as error:
        raise RunFailedError(
            f"run {number} of suite {suite.suite} was aborted: {error}; jobs that had ended are in the history"
        ) from error


@dataclass(frozen=True, kw_only=True)
class _Night:
    """A run that was begun: `folder` is that of the page, `shared` the URI of the folder that jobs share."""

    suite: Suite
    history: History
    context: NightContext
    cluster: _NightCluster
    preparations: Preparations
    folder: Path
    number: int
    shared: str
    deadline: float | None

    def run(self, jobs: list[PlannedJob]) -> bool:
        """Evaluate, gate and record the jobs; return whether the night was interrupted."""
        left_out, interrupted = "", False
        with contextlib.closing(self.cluster):
            for at, planned in enumerate(jobs, start=1):
                self.context.begun(at, len(jobs), planned.name)
                started = utc_now()
                try:
                    if not left_out:
                        entry, report = self._gated(planned)
                except _BudgetSpentError:
                    left_out = f"the time budget of {self.suite.hours:g} h was spent"
                except KeyboardInterrupt:
                    # Finished jobs stay, and the page shows which ones are missing.
                    left_out, interrupted = "the night was interrupted", True
                    signals.acknowledge("jobs that had ended are in the history and on its page")
                if left_out:
                    # Also an evaluated job that was not gated: it must not become a baseline.
                    entry, report = undone_entry(planned, State.SKIPPED, left_out), None
                entry = replace(entry, started=started)
                self.history.add(self.number, entry, report)
                self.context.ended(at, len(jobs), entry)
                if at == len(jobs) or (jobs[at].model, jobs[at].dataset) != (planned.model, planned.dataset):
                    self._workspace(planned).clear()
        return interrupted

    def _gated(self, planned: PlannedJob) -> tuple[Entry, Report | None]:
        """Make the features of a job, evaluate it, and return its entry with the findings of the gates."""
        self._keep_to_budget()
        remaining = None if self.deadline is None else self.deadline - time.monotonic()
        if (failure := self.preparations.failure(planned.preparations, remaining)) is not None:
            self._keep_to_budget()
            return undone_entry(planned, State.FAILED, finding_text(failure), findings=(failure,)), None
        entry, report = self._evaluated(planned)
        findings = apply_gates(
            entry,
            report,
            self.history,
            suite=self.suite.suite,
            number=self.number,
            gates=self.suite.gates,
            common=partial(self._on_common_items, planned),
            expects_new=planned.expects_new,
        )
        return self._explained(replace(entry, findings=findings), planned), report

    def _keep_to_budget(self) -> None:
        """Raise _BudgetSpentError after the deadline."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise _BudgetSpentError

    def _workspace(self, planned: PlannedJob) -> Workspace:
        """Return the workspace of the jobs of one model on one data set, which read the same features."""
        return Workspace(f"{self.shared}/{planned.model}/{planned.dataset}")

    def _on_common_items(self, planned: PlannedJob, past: Past) -> CommonItems:
        """Evaluate a job on the items that it has in common with an earlier entry, without what a report has beside."""
        job = planned.pipeline.model_copy(update={**EXTRAS_OFF, "pictures": None, "other_codes": False})

        def evaluate(query: FeatureSet, gallery: FeatureSet) -> Report:
            opened = OpenedJob(job, query, gallery, {}, partial(evaluate_features, job, query, gallery))

            def compute(session: Session) -> Report:
                with self.context.stages() as progress:
                    return opened.evaluate(session.showing(_Limited(progress, self._keep_to_budget)))

            return run_job(
                lambda: JobRun(spec=opened.spec, compute=compute),
                ReportStore(report_class=Report, title=planned.name),
                lambda: contextlib.nullcontext(self.cluster.client()),
                workspace=self._workspace(planned).path,
            )

        try:
            return on_common_items(job, past, evaluate)
        except NotCommonError as error:
            if isinstance(error.__cause__, ClusterError | RunFailedError):
                self.cluster.close()
            raise

    def _evaluated(self, planned: PlannedJob) -> tuple[Entry, Report | None]:
        """Evaluate one job; any failure becomes its entry, except for an interruption of the night."""
        relative = f"{reports_folder(self.number)}/{planned.name}"
        target = self.folder / relative
        seconds, peak = [], None

        # Opening and evaluating count, saving does not.
        @contextlib.contextmanager
        def timed(shown: Callable[[], AbstractContextManager[T]]) -> Iterator[T]:
            with shown() as progress:
                begin = time.perf_counter()
                yield progress
                seconds.append(time.perf_counter() - begin)

        @contextlib.contextmanager
        def stages() -> Iterator[Progress]:
            nonlocal peak
            with timed(self.context.stages) as progress:
                yield _Limited(progress, self._keep_to_budget)
            peak = peak_bytes(client)

        try:
            client = self.cluster.client()
            reset_peaks(client)
            workspace = self._workspace(planned)
            reused = tuple(workspace.kinds())
            job = planned.pipeline
            report_class, prepare = prepared_job(job, partial(timed, self.context.rows), stages)
            report: Report | SplitReport = run_job(
                prepare,
                ReportStore(report_class=report_class, output=target, title=planned.name, description=job.description),
                lambda: contextlib.nullcontext(client),
                workspace=workspace.path,
            )
        except _BudgetSpentError:
            raise
        except ReidDistError as error:
            if isinstance(error, ClusterError | RunFailedError):
                self.cluster.close()
            return undone_entry(planned, State.FAILED, error.in_one_line), None
        except Exception as error:  # A defect in one job: the night continues, and the traceback is kept.
            self.cluster.close()
            return _defect(planned, error, target), None
        entry = replace(
            done_entry(planned, report),
            seconds=sum(seconds),
            peak_bytes=peak,
            reused=reused,
            machine=self.context.machine,
            folder=relative,
        )
        # Means over splits have no values per query; nights are compared by the values of each split.
        return entry, report if isinstance(report, Report) else None

    def _explained(self, entry: Entry, planned: PlannedJob) -> Entry:
        """Add the files of the queries that lost most, and for a regression an explorer of the lists, if it has any.

        Pictures are left out, since reading them all may take longer than the job; nothing here fails a night.
        """
        if not any(change.lost for finding in entry.findings for change in finding.changes):
            return entry
        files: Mapping[int, str] = {}
        with contextlib.suppress(ReidDistError, OSError):
            found = open_labels(planned.pipeline.query, "query").image_paths
            files = {} if found is None else {row: Path(str(path)).name for row, path in enumerate(found)}
        findings = []
        for finding in entry.findings:
            changes = (
                replace(change, files=tuple(files.get(moved.row, "") for moved in change.lost))
                for change in finding.changes
            )
            findings.append(replace(finding, changes=tuple(changes)))
        explorer, target = "", self.folder / entry.folder
        if any(finding.is_regression for finding in findings) and (target / TOPK).is_file():
            with contextlib.suppress(ReidDistError, OSError):
                write_folder(Site(open_subject(Report.load(target)), pictures=False), target / _EXPLORER)
                explorer = f"{entry.folder}/{_EXPLORER}"
        return replace(entry, findings=tuple(findings), explorer=explorer)


def _last_report(folder: Path) -> int:
    """Return the highest number of a run with reports in a directory; 0 for none."""
    try:
        names = [path.name for path in (folder / reports_folder(0)).parent.iterdir()]
    except OSError:
        return 0
    return max((int(name) for name in names if _NUMBER.fullmatch(name)), default=0)


def _shared_name(history: History, number: int) -> str:
    """Return the name of the shared folder of a run, unique among histories that share a workspace."""
    return f"run-{number:05}-{fingerprint(str(Path(history.path).resolve()))[:_DIGITS]}"


def _remove_left_over(shared: Workspace, history: History) -> None:
    ended = {_shared_name(history, number) for number, state in history.states().items() if state != RUNNING}
    for name in folder_at(shared.path).folders():
        if name in ended:
            Workspace(shared.place(name)).clear()


class _NightCluster:
    """Cluster for all jobs of a night; a broken one is replaced for the next job."""

    def __init__(self, context: NightContext) -> None:
        self._connect = context.connect
        self._open: contextlib.ExitStack | None = None
        self._client: Client | None = None
        self._failures: list[ReidDistError] = []

    def client(self) -> Client | None:
        """Return the client of the cluster, which is started if none runs."""
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
        """Stop the cluster if one runs."""
        stack, self._open, self._client = self._open, None, None
        if stack is not None:
            # It may be broken already, which has been reported.
            with contextlib.suppress(ReidDistError, OSError, RuntimeError, TimeoutError):
                stack.close()


class _Limited(Progress):
    """Forwards progress, and may end the job after each task."""

    def __init__(self, inner: Progress, check: Callable[[], None]) -> None:
        self._inner, self._check = inner, check

    def start(self, totals: dict[str, int]) -> None:
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        self._inner.advance(stage)
        self._check()

    def warn(self, message: str) -> None:
        self._inner.warn(message)


def _defect(planned: PlannedJob, error: Exception, target: Path) -> Entry:
    where = ""
    with contextlib.suppress(OSError):
        target.mkdir(parents=True, exist_ok=True)
        (target / DEFECTS).write_text(traceback.format_exc(), encoding="utf-8")
        where = f"; its traceback is in {target / DEFECTS}"
    reason = f"a defect of reid-dist: {type(error).__name__}: {error}{where}"
    return undone_entry(planned, State.FAILED, reason)


# ------------------------------------------------------------------------------------------------- entries of reports


def done_entry(planned: PlannedJob, report: Report | SplitReport) -> Entry:
    """Entry of a job that is done, with what its report holds; of splits, the largest of each count."""
    counts = plain(report.counts)
    if isinstance(report, SplitReport):
        # A report of splits lists its stages among the options.
        own = {name: report.options.get(name) for name in ("expand", "rerank")} | {"draw": report.draw}
        counts = {name: max(each) if isinstance(each, list) else each for name, each in counts.items()}
        counts[PER_SPLIT] = plain(report.per_split)
    else:
        own = {"expand": report.expand, "rerank": report.rerank}
    conventions = {
        "protocol": {name: each for name, each in report.protocol.items() if name not in _INPUTS},
        "distance": report.distance,
        **own,
        # The names of the metrics are listed apart, whether requested or default.
        "options": {name: value for name, value in report.options.items() if name != "metrics"},
        "metrics": [*report.metrics],
    }
    digests = {name: _digests_of(each) for name, each in report.inputs.items() if isinstance(each, Mapping)}
    truth = report.protocol.get("ground_truth")
    if isinstance(truth, Mapping):
        digests["ground_truth"] = _digests_of(truth)
    return Entry(
        model=planned.model,
        dataset=planned.dataset,
        job=planned.job,
        labels=planned.labels,
        timing=report.timing,
        metrics=estimates_of(report),
        counts=counts,
        conventions=plain(conventions),
        inputs=plain(report.inputs),
        environment=plain(report.environment),
        input_digest=fingerprint(digests),
        job_digest=fingerprint(plain(_without_prose(conventions))),
        result_digest=report.result_digest,
    )


def undone_entry(planned: PlannedJob, state: str, reason: str, *, findings: tuple[Finding, ...] = ()) -> Entry:
    """Entry of a job that failed or was skipped; the reason becomes one line without passwords of URIs."""
    return Entry(
        model=planned.model,
        dataset=planned.dataset,
        job=planned.job,
        labels=planned.labels,
        state=state,
        reason=without_credentials(" ".join(reason.split())),
        findings=findings,
    )


def _digests_of(description: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in description.items() if name.endswith("digest")}


def _without_prose(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_prose(each) for name, each in value.items() if name not in PROSE}
    return value
