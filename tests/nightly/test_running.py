"""A night in this process: every job is recorded as it ends, whatever becomes of the others."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distributed import Client
from small_nights import damage, run_night, save_model, threads, write_suite
from support.local_workers import started

import reid_dist.evaluation.runs as runs
import reid_dist.nightly.memory as memory
import reid_dist.nightly.running as running
from reid_dist import FeatureSet, evaluate, evaluate_splits
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import ClusterError, RunFailedError, StoreError, StoreNotFoundError
from reid_dist.nightly.delivery import deliver_night, recent_runs
from reid_dist.nightly.gate_verdicts import apply_gates
from reid_dist.nightly.gating.gate_settings import Gates
from reid_dist.nightly.history import History
from reid_dist.nightly.history.chain import update_run
from reid_dist.nightly.history.history_values import ALARM, Code, Entry, Finding, Run, State
from reid_dist.nightly.night_tables import report_link
from reid_dist.nightly.running import NightContext
from reid_dist.reports import Report

JOBS = {"plain": {}, "reranked": {"rerank": "k_reciprocal(k1=4,k2=2)"}}


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one job."""
    return write_suite(tmp_path, {"a": save_model(tmp_path / "a", 0.8)}, {"plain": {}})


@pytest.mark.slow
def test_means_over_splits_are_recorded_and_compared_by_split(tmp_path: Path) -> None:
    """Their speed and memory are gated; another result of equal inputs is an alarm all the same."""
    jobs = {"named": {"benchmark": "llcm"}, "drawn": {"splits": {"repeats": 2}, "metrics": ["mAP"]}}
    suite = write_suite(tmp_path, {"a": save_model(tmp_path / "a", 0.8)}, jobs)
    first, second = run_night(suite), run_night(suite)
    sides = [FeatureSet.open(tmp_path / "a" / f"{name}.zarr") for name in ("query", "gallery")]
    for options, entry in (({"benchmark": "llcm"}, "named"), ({"repeats": 2, "metrics": ["mAP"]}, "drawn")):
        expected = evaluate_splits(*sides, **options)
        for run in (first, second):
            found = by_name(run)[f"a/set/{entry}"]
            assert (found.state, found.result_digest) == (State.DONE, expected.result_digest)
            assert {name: each.value for name, each in found.metrics.items()} == expected.metrics
            assert found.counts["n_gallery"] == max(expected.counts["n_gallery"])
            assert (tmp_path / "nights" / report_link(found)).name == "splits.html"
            assert (tmp_path / "nights" / report_link(found)).is_file()
            findings = {finding.gate: finding for finding in found.findings}
            assert list(findings) == ["accuracy", "speed", "memory"]
            assert findings["accuracy"].code == (Code.NO_BASELINE if run is first else Code.EQUAL)
            assert found.counts["per_split"] == {name: each.tolist() for name, each in expected.per_split.items()}
    assert (first.exit_code, second.exit_code) == (0, 0)
    with History.open(tmp_path / "nights.db") as history:
        with pytest.raises(StoreNotFoundError, match="it was pruned, or the job has means over splits"):
            history.report(2, "a/set/named")
        deliver_night(recent_runs(second, history, tmp_path / "nights"), tmp_path / "nights")
    assert "runs/00002/a/set/named/splits.html" in (tmp_path / "nights" / "index.html").read_text()
    other = replace(by_name(second)["a/set/named"], result_digest="0" * 64)
    with History.open(tmp_path / "nights.db") as history:
        alarm, *_ = apply_gates(other, None, history, suite="small", number=3, gates=Gates())
    assert (alarm.alarm, alarm.is_regression) == (ALARM, True)


def by_name(run: Run) -> dict[str, Entry]:
    return {entry.name: entry for entry in run.entries}


def test_every_job_has_the_result_of_its_evaluation(tmp_path: Path) -> None:
    models = {"good": save_model(tmp_path / "good", 0.8), "bad": save_model(tmp_path / "bad", 1.6)}
    run = run_night(write_suite(tmp_path, models, JOBS))
    assert (run.number, run.exit_code, run.finished is not None) == (1, 0, True)
    assert [entry.name for entry in run.entries] == [f"{m}/set/{j}" for m in models for j in JOBS]
    for entry in run.entries:
        sides = [FeatureSet.open(models[entry.model] / f"{name}.zarr") for name in ("query", "gallery")]
        expected = evaluate(*sides, rerank=JOBS[entry.job].get("rerank"))
        assert entry.result_digest == expected.result_digest
        assert {name: each.value for name, each in entry.metrics.items()} == expected.metrics
        assert [entry.metrics["mAP"].low, entry.metrics["mAP"].high] == expected.confidence["intervals"]["mAP"]
        assert entry.state == State.DONE
        assert entry.seconds > 0
        assert entry.peak_bytes > 10_000_000
        assert Report.load(tmp_path / "nights" / entry.folder).result_digest == expected.result_digest
        assert all(finding.verdict == "incomparable" for finding in entry.findings)
    entries = by_name(run)
    assert entries["good/set/plain"].input_digest == entries["good/set/reranked"].input_digest
    assert entries["good/set/plain"].input_digest != entries["bad/set/plain"].input_digest
    assert entries["good/set/plain"].job_digest == entries["bad/set/plain"].job_digest
    assert entries["good/set/plain"].job_digest != entries["good/set/reranked"].job_digest
    assert {path.name for path in (tmp_path / "nights").iterdir()} == {"runs"}


@pytest.mark.slow
def test_stages_are_shared_and_recorded(tmp_path: Path) -> None:
    jobs = {
        "reranked": {"rerank": "k_reciprocal(k1=4,k2=2)"},
        "mixed": {"rerank": "k_reciprocal(k1=4,k2=2,lambda_value=0.5)"},
        "plain": {},
    }
    counted: list[dict[str, int]] = []

    class Count(Progress):
        def start(self, totals: dict[str, int]) -> None:
            counted[-1].update(totals)

    shown = threads(stages=lambda: contextlib.nullcontext(Count()), begun=lambda *_: counted.append({}))
    models = {"one": save_model(tmp_path / "one", 0.8), "two": save_model(tmp_path / "two", 0.9)}
    run = run_night(write_suite(tmp_path, models, jobs), shown)
    computed = [sorted(set(totals) & {"neighbours", "weights", "means"}) for totals in counted]
    assert computed == [["means", "neighbours", "weights"], [], []] * 2
    assert [entry.reused for entry in run.entries] == [(), *[("means", "neighbours", "weights")] * 2] * 2


@pytest.mark.slow
def test_queries_that_lost_most_have_file_names_and_an_explorer(tmp_path: Path) -> None:
    suite = write_suite(tmp_path, {"a": save_model(tmp_path / "a", 0.8)}, {"plain": {}, "lists": {"topk": 5}})
    run_night(suite)
    save_model(tmp_path / "a", 4.0)
    run = run_night(suite)
    assert run.exit_code == 4
    labels = FeatureSet.open(tmp_path / "a" / "query.zarr")
    for entry in run.entries:
        change = entry.findings[0].changes[0]
        assert len(change.files) == len(change.lost) == 10
        for moved, file in zip(change.lost, change.files, strict=True):
            assert file == Path(str(labels.image_paths[moved.row])).name
            assert file.startswith(f"{moved.pid:04}_c{moved.camid}_")
    plain, lists = run.entries
    assert (plain.explorer, lists.explorer) == ("", f"{lists.folder}/explorer")
    with History.open(tmp_path / "nights.db") as history:
        runs = recent_runs(run, history, tmp_path / "nights")
        deliver_night(runs, tmp_path / "nights")
    page, moved = (tmp_path / "nights" / "index.html").read_text(), lists.findings[0].changes[0].lost[0]
    link = f"{lists.explorer}/index.html"
    assert f'href="./{link}#q={moved.row}"' in page
    assert (tmp_path / "nights" / link).is_file()
    # What was removed is not linked.
    (tmp_path / "nights" / link).unlink()
    with History.open(tmp_path / "nights.db") as history:
        assert recent_runs(run, history, tmp_path / "nights")[-1].entries[1].explorer == ""


def test_what_fails_does_not_stop_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "good": save_model(tmp_path / "good", 0.8),
        "missing": tmp_path / "missing",
        "damaged": save_model(tmp_path / "damaged", 0.8),
        "last": save_model(tmp_path / "last", 0.8),
    }
    damage(models["damaged"] / "gallery.zarr")
    real = runs.evaluate_features

    def defective(job: Any, *rest: Any) -> Report:
        if "last" in job.query and job.rerank is None:
            raise AttributeError("'NoneType' object has no attribute 'shape'")
        return real(job, *rest)

    monkeypatch.setattr(runs, "evaluate_features", defective)
    run = run_night(write_suite(tmp_path, models, JOBS))
    assert run.exit_code == 3
    entries = by_name(run)
    assert [entry.state for entry in run.entries] == [State.DONE, State.DONE, *[State.FAILED] * 5, State.DONE]
    assert "missing" in entries["missing/set/plain"].reason
    assert "gallery.zarr" in entries["damaged/set/reranked"].reason
    assert all("\n" not in entry.reason for entry in run.entries)
    defect = entries["last/set/plain"].reason
    assert "a defect of reid-dist: AttributeError" in defect
    kept = tmp_path / "nights" / "runs" / "00001" / "last" / "set" / "plain" / running.DEFECTS
    assert str(kept) in defect
    assert "Traceback" in kept.read_text()
    assert not entries["missing/set/plain"].findings
    assert not list((tmp_path / "nights").glob("workspace*"))


class _Slow(Progress):
    def advance(self, stage: str) -> None:
        time.sleep(0.2)


def test_what_the_budget_leaves_out_is_skipped(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", 0.8)
    jobs = {f"job{number}": {"chunk_rows": 16} for number in range(4)}
    suite = write_suite(tmp_path, {"model": model}, jobs, hours=1.2 / 3600)
    slow = threads(stages=lambda: contextlib.nullcontext(_Slow()))
    begin = time.monotonic()
    run = run_night(suite, slow)
    # A job that runs when the time is over ends with the task that it is at.
    assert time.monotonic() - begin < 6
    assert run.exit_code == 0
    states = [entry.state for entry in run.entries]
    assert states[-1] == State.SKIPPED
    assert set(states) <= {State.DONE, State.SKIPPED}
    skipped = [entry for entry in run.entries if entry.state == State.SKIPPED]
    assert all("the time budget of" in entry.reason for entry in skipped)


@pytest.mark.slow
def test_a_broken_cluster_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[int] = []

    @contextlib.contextmanager
    def connect() -> Iterator[Client]:
        connected.append(1)
        with started(1, tmp_path / "workers") as client:
            yield client

    models = {name: save_model(tmp_path / name, 0.8) for name in ("a", "b", "c")}
    real = runs.evaluate_features

    def broken(job: Any, query: Any, gallery: Any, client: Client, *rest: Any) -> Report:
        if "/b/" in job.query:
            raise RunFailedError("lost the scheduler")
        return real(job, query, gallery, client, *rest)

    monkeypatch.setattr(runs, "evaluate_features", broken)
    run = run_night(write_suite(tmp_path, models, {"plain": {}}), NightContext(connect=connect))
    assert [entry.state for entry in run.entries] == [State.DONE, State.FAILED, State.DONE]
    assert len(connected) == 2
    assert run.entries[0].peak_bytes > 10_000_000


def test_a_cluster_that_was_lost_between_two_jobs_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its peaks are unknown, and the next job, which resets them, fails."""

    def lost(*_: object) -> None:
        raise OSError("Timed out during handshake")

    monkeypatch.setattr(memory, "run_on_workers", lost)
    assert memory.peak_bytes(object()) is None
    with pytest.raises(RunFailedError, match="lost the scheduler of the cluster between two jobs: Timed out"):
        memory.reset_peaks(object())


def test_a_cluster_that_never_starts_is_not_waited_for_again_and_again(tmp_path: Path) -> None:
    tried: list[int] = []

    @contextlib.contextmanager
    def connect() -> Iterator[Client]:
        tried.append(1)
        raise ClusterError("no scheduler at tcp://127.0.0.1:1")
        yield

    models = {name: save_model(tmp_path / name, 0.8) for name in ("a", "b", "c", "d")}
    run = run_night(write_suite(tmp_path, models, {"plain": {}}), NightContext(connect=connect))
    assert [entry.state for entry in run.entries] == [State.FAILED] * 4
    assert all("no scheduler at" in entry.reason for entry in run.entries)
    assert len(tried) == 2
    assert run.exit_code == 3


@pytest.mark.slow
def test_what_killed_nights_left_in_the_workspace_goes(tmp_path: Path) -> None:
    models = {"a": save_model(tmp_path / "a", 0.8)}
    suite = write_suite(tmp_path, models, JOBS)
    workspace = tmp_path / "nights" / "workspace"
    names: set[str] = set()

    def ended(*_: object) -> None:
        names.update(path.name for path in workspace.glob("run-*"))

    run_night(suite, threads(ended=ended))
    (name,) = names
    assert name.startswith("run-00001-")
    with History.open(tmp_path / "nights.db") as history:
        killed = history.begin("small", "0", pid=2**22 - 1)
        alive = history.begin("small", "0")
        gone, elsewhere = (history.begin("small", "0", host="another") for _ in range(2))
    with contextlib.closing(sqlite3.connect(tmp_path / "nights.db", isolation_level=None)) as connection:
        update_run(connection, gone, seen="2020-01-01T00:00:00Z")
    left = [workspace / name.replace("00001", f"{number:05}") for number in (killed, alive, gone, elsewhere)]
    # A night of another history with the same workspace may have the number of one that is killed here.
    left += [workspace / f"run-{killed:05}-0123456789ab", workspace / "mine"]
    for folder in left:
        (folder / "a" / "set" / "weights-0").mkdir(parents=True)
    run = run_night(suite)
    assert run.exit_code == 0
    assert [folder.exists() for folder in left] == [False, True, False, True, True, True]


def test_a_run_holds_the_whole_suite_and_its_budget(tmp_path: Path) -> None:
    """Its jobs, also those that are left out, and the time after which another host takes it for killed."""
    suite = write_suite(tmp_path, {"a": save_model(tmp_path / "a", 0.8)}, JOBS, hours=30.0)
    run = run_night(suite, most_jobs=1)
    assert [entry.name for entry in run.entries] == ["a/set/plain"]
    assert run.planned == ("a/set/plain", "a/set/reranked")
    assert run.hours == 30.0
    assert run.started <= run.seen <= str(run.finished)


def test_another_wording_is_not_another_job(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_night(suite)
    real = runs.evaluate_features

    def reworded(*given: Any) -> Report:
        report = real(*given)
        report.protocol["summary"] = "the same in other words"
        return report

    monkeypatch.setattr(runs, "evaluate_features", reworded)
    second = run_night(suite)
    assert first.entries[0].job_digest == second.entries[0].job_digest
    findings = {finding.gate: finding for finding in second.entries[0].findings}
    assert (findings["accuracy"].verdict, findings["accuracy"].alarm) == ("same", "")
    assert findings["accuracy"].baseline == first.number


def test_numbers_that_move_without_a_cause_are_an_alarm(
    suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_night(suite)
    real = runs.evaluate_features

    def moved(*given: Any) -> Report:
        report = real(*given)
        found = {name: values.copy() for name, values in report.per_query.items()}
        found["AP"][0] = found["AP"][0] * 0.999
        return replace(report, per_query={**report.per_query, "AP": found["AP"]})

    monkeypatch.setattr(runs, "evaluate_features", moved)
    run = run_night(suite)
    assert run.exit_code == 4
    (accuracy,) = (finding for finding in run.entries[0].findings if finding.gate == "accuracy")
    assert (accuracy.alarm, accuracy.facts["moved"]["run"]) == (ALARM, 1)
    # And again until it is accepted.
    assert run_night(suite).exit_code == 4
    with History.open(tmp_path / "nights.db") as history:
        assert history.accept(3, None, "the old one was wrong") == 1
    assert run_night(suite).exit_code == 0
    assert json.loads((tmp_path / "nights" / run.entries[0].folder / "report.json").read_text())["schema"] == 1


def test_a_history_that_was_begun_anew_leaves_old_reports_alone(suite: Path, tmp_path: Path) -> None:
    (tmp_path / "nights" / "runs" / "00007").mkdir(parents=True)
    assert [run_night(suite).entries[0].folder for _ in range(2)] == [
        f"runs/{number:05}/a/set/plain" for number in (8, 9)
    ]
    assert [path.name for path in (tmp_path / "nights.db.copies").iterdir()] == ["before-run-00009.db"]


def test_a_history_that_breaks_ends_the_night_as_failed(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    def locked(*_: object) -> None:
        raise StoreError("history is locked")

    monkeypatch.setattr(History, "add", locked)
    with pytest.raises(RunFailedError, match="run 1 of suite small was aborted: history is locked; jobs"):
        run_night(suite)


def test_an_ungated_entry_of_an_interrupted_night_is_no_baseline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = write_suite(tmp_path, {"a": save_model(tmp_path / "a", 0.8)}, JOBS)

    def interrupted(*_: object, **__: object) -> tuple[Finding, ...]:
        raise KeyboardInterrupt

    monkeypatch.setattr(running, "apply_gates", interrupted)
    run = run_night(suite)
    assert ([entry.state for entry in run.entries], run.exit_code) == ([State.SKIPPED, State.SKIPPED], 130)


def test_passwords_do_not_reach_the_history(suite: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: Any) -> Report:
        raise RunFailedError("lost tcp://me:hunter2@host:8786")

    monkeypatch.setattr(runs, "evaluate_features", failing)
    run = run_night(suite)
    assert run.entries[0].reason == "lost tcp://…@host:8786"
