"""The runner of jobs without a command line: what is resumed, what is refused, and what errors add."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate
from reid_dist.core.temporary import draft_of
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError, PlanError, RunFailedError, StoreExistsError
from reid_dist.evaluation import runner
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runner import ReportStore, Run, run_job
from reid_dist.evaluation.runs import prepare_evaluation
from reid_dist.reports import Report
from reid_dist.reports.documents import with_digest
from reid_dist.stages.session import Session
from reid_dist.stores import Stage


@pytest.fixture
def job(tmp_path: Path) -> PipelineJob:
    rng = np.random.default_rng(5)
    for name, n in (("query", 10), ("gallery", 40)):
        features = rng.standard_normal((n, 6)).astype(np.float32)
        FeatureSet.from_arrays(features, np.arange(n) % 5, np.arange(n) % 3).save(tmp_path / f"{name}.zarr")
    return PipelineJob(query=str(tmp_path / "query.zarr"), gallery=str(tmp_path / "gallery.zarr"))


def prepared(job: PipelineJob) -> Run[Report]:
    return prepare_evaluation(job, contextlib.nullcontext, lambda: contextlib.nullcontext(Progress()))


def no_work(*_: object) -> Report:
    raise AssertionError("a finished report is not computed again")


def test_a_finished_report_is_returned_and_another_job_is_refused(job: PipelineJob, tmp_path: Path) -> None:
    to = ReportStore(
        report_class=Report, output=tmp_path / "out", title="first", description="small", command="a command"
    )
    report = run_job(lambda: prepared(job), to, contextlib.nullcontext)
    assert report.result_digest == evaluate(job.query, job.gallery).result_digest
    expected = {"name": "first", "description": "small", "command": "a command"}
    assert {name: report.run[name] for name in expected} == expected
    with pytest.raises(StoreExistsError, match="not empty"):
        run_job(lambda: prepared(job), to, contextlib.nullcontext)
    remarks: list[str] = []
    again = partial(
        run_job, store=replace(to, title="second"), connect=contextlib.nullcontext, resume=True, notify=remarks.append
    )
    kept = again(lambda: replace(prepared(job), compute=no_work))
    assert kept.to_json() == report.to_json()
    assert remarks == [f"{to.output} is finished and keeps its name 'first'"]
    other = job.model_copy(update={"max_rank": 7})
    with pytest.raises(InputError, match=r"holds the report of another job \(different max_rank\)"):
        again(lambda: prepared(other))


def test_the_spec_is_stored_with_the_result_to_the_last_bit(job: PipelineJob, tmp_path: Path) -> None:
    """A report of the library serves for a job, and one of an earlier version, without a spec, for none."""
    alpha = 1.2345671
    report = evaluate(job.query, job.gallery, expand=f"alpha_qe(k=2,alpha={alpha!r})")
    report.save(tmp_path / "out")
    assert Report.load(tmp_path / "out").spec == report.spec
    assert replace(report, spec={}).result_digest == report.result_digest
    again = partial(
        run_job,
        store=ReportStore(report_class=Report, output=tmp_path / "out"),
        connect=contextlib.nullcontext,
        resume=True,
    )

    def with_alpha(value: float) -> PipelineJob:
        return job.model_copy(update={"expand": f"alpha_qe(k=2,alpha={value!r})"})

    assert again(lambda: replace(prepared(with_alpha(alpha)), compute=no_work)).to_json() == report.to_json()
    with pytest.raises(InputError, match=r"\(different expand\)"):
        again(lambda: prepared(with_alpha(math.nextafter(alpha, 2))))
    document = {name: value for name, value in report.to_dict().items() if name != "spec"}
    (tmp_path / "out" / "report.json").write_text(json.dumps(with_digest(document)))
    assert Report.load(tmp_path / "out").result_digest == report.result_digest
    with pytest.raises(InputError, match="of an earlier version, which did not store what it was made from"):
        again(lambda: prepared(with_alpha(alpha)))


@pytest.mark.parametrize("is_kept", [True, False])
def test_saving_is_prepared_while_values_are_computed(
    job: PipelineJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_kept: bool
) -> None:
    """In a thread, if there is an output; an error in it is no error of the run."""
    called = threading.Event()

    def prepare() -> None:
        assert threading.current_thread() is not threading.main_thread()
        called.set()
        raise ImportError("broken")

    computation = prepared(job)

    def compute(*where: Any) -> Report:
        if is_kept:
            assert called.wait(20)
        return computation.compute(*where)

    monkeypatch.setattr(Report, "prepare_save", prepare)
    to = ReportStore(report_class=Report, output=tmp_path / "out" if is_kept else None)
    made = run_job(lambda: replace(computation, compute=compute), to, contextlib.nullcontext)
    assert made.result_digest == evaluate(job.query, job.gallery).result_digest
    assert called.is_set() == is_kept


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("resumed_by", ["the same command", None])
@pytest.mark.parametrize("error", [RunFailedError("lost the scheduler"), KeyboardInterrupt()])
def test_a_failed_run_names_its_parts_where_they_are_kept(
    job: PipelineJob, tmp_path: Path, error: BaseException, resumed_by: str | None
) -> None:
    def failing(session: Session) -> Report:
        assert session.workspace is not None
        session.workspace.stage("kind", 1, {}).write("part", {"values": np.zeros(1)})
        raise error

    with pytest.raises(type(error)) as caught:
        run_job(
            lambda: replace(prepared(job), compute=failing),
            ReportStore(report_class=Report),
            contextlib.nullcontext,
            workspace=str(tmp_path / "shared"),
            resumed_by=resumed_by,
        )
    advice = f"what is finished is kept in {tmp_path / 'shared'}: the same command goes on from there"
    shown = [*getattr(caught.value, "details", ()), str(caught.value)]
    assert (advice in shown) == (resumed_by is not None)


def test_an_unfinished_run_of_another_job_is_refused(job: PipelineJob, tmp_path: Path) -> None:
    """Whether an entry of the spec has another value, or is there in one of the two jobs alone."""

    def failing(session: Session) -> Report:
        assert session.workspace is not None
        session.workspace.stage("kind", 1, {}).write("part", {"values": np.zeros(1)})
        raise RunFailedError("lost the scheduler")

    def resumed(job: PipelineJob) -> Report:
        to = ReportStore(report_class=Report, output=tmp_path / "out")
        return run_job(lambda: replace(prepared(job), compute=failing), to, contextlib.nullcontext, resume=True)

    listed = job.model_copy(update={"topk": 3})
    pictured = listed.model_copy(update={"pictures": (1,)})
    with pytest.raises(RunFailedError):
        resumed(pictured)
    for other, words in ((listed, "pictures"), (pictured.model_copy(update={"topk": 4}), "topk")):
        with pytest.raises(InputError, match=rf"an unfinished run of another job \(different {words}\)"):
            resumed(other)
    with pytest.raises(RunFailedError):
        resumed(pictured)


_DRAFT = """
import sys
from pathlib import Path
from reid_dist.core.temporary import draft_of
draft_of(Path(sys.argv[1])).write_text("half")
"""


@pytest.mark.parametrize("by_runner", [True, False])
def test_a_worker_that_is_killed_while_it_writes_leaves_no_draft(
    job: PipelineJob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_runner: bool
) -> None:
    """Another process of this host leaves a draft beside the first part; one that still runs keeps its own."""
    kept, write = tmp_path / "kept", Stage.write
    drafts: list[Path] = []

    def killed_once(stage: Stage, part: str, arrays: Any) -> int:
        if not drafts:
            running = draft_of(Path(stage.path).parent / "running")
            running.write_text("half")
            for place in (Path(stage.path), kept):
                subprocess.run([sys.executable, "-c", _DRAFT, str(place / "part.npz")], check=True, timeout=60)
            drafts.append(running)
        return write(stage, part, arrays)

    monkeypatch.setattr(Stage, "write", killed_once)
    if by_runner:
        to = ReportStore(report_class=Report, output=tmp_path / "out")
        run_job(lambda: prepared(job), to, contextlib.nullcontext, workspace=str(kept))
    else:
        evaluate(job.query, job.gallery, rerank="k_reciprocal(k1=4,k2=2)", workspace=kept)
    assert [path for path in kept.rglob(".*") if path.is_file()] == drafts != []


def test_curves_that_do_not_fit_are_refused_before_the_cluster_starts(
    job: PipelineJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "DEFAULT_MEMORY", 0)
    monkeypatch.setattr(runner, "usable_memory", lambda: 100)
    with pytest.raises(PlanError, match="choose a smaller --max-rank"):
        run_job(lambda: prepared(job), ReportStore(report_class=Report), lambda: pytest.fail("the cluster was started"))
