"""Nights in real stores of MLflow on this disk, read back with MLflow."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import example_nights
import pytest

from reid_dist.errors import InputError, RunFailedError
from reid_dist.nightly.history.history_values import ALARM, Estimate, Run, State
from reid_dist.nightly.mlflow_export import export_run, import_mlflow
from reid_dist.nightly.wording import finding_text

# SQLAlchemy warns of what MLflow's models do.
sqlalchemy_is_warned_of = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy")


@pytest.fixture(scope="module")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As MLflow makes it, which takes it seconds."""
    import mlflow

    path = tmp_path_factory.mktemp("empty") / "mlflow.db"
    mlflow.MlflowClient(tracking_uri=f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture(params=["directory", pytest.param("database", marks=sqlalchemy_is_warned_of)])
def tracking_uri(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store, and a working directory: artifacts of a database are beside it."""
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    if request.param == "directory":
        return (tmp_path / "mlruns").as_uri()
    database = shutil.copy(request.getfixturevalue("empty_database"), tmp_path)
    return f"sqlite:///{database}"


@pytest.fixture
def night(tmp_path: Path) -> Run:
    """The last of several: regressions, an alarm, a failure, a skipped job."""
    return dataclasses.replace(example_nights.eventful_nights(13)[-1], folder=str(tmp_path / "nightly"))


def logged(tracking_uri: str, run_id: str) -> Any:
    import mlflow

    return mlflow.MlflowClient(tracking_uri=tracking_uri).get_run(run_id)


def all_runs(tracking_uri: str, experiment: str) -> list[Any]:
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    return list(client.search_runs([client.get_experiment_by_name(experiment).experiment_id]))


@pytest.mark.slow
def test_every_entry_is_a_run_with_its_values(tracking_uri: str, night: Run) -> None:
    run_ids = export_run(night, tracking_uri=tracking_uri, experiment="re-identification")
    assert len(set(run_ids)) == len(night.entries)
    for entry, run_id in zip(night.entries, run_ids, strict=True):
        run = logged(tracking_uri, run_id)
        tags = run.data.tags
        assert (tags["reid_dist.suite"], tags["reid_dist.run"]) == ("nightly", "13")
        assert tags["reid_dist.entry"] == run.info.run_name.split(" #")[0] == entry.name
        assert run.info.status == {State.FAILED: "FAILED", State.SKIPPED: "KILLED"}.get(entry.state, "FINISHED")
        for finding in entry.findings:
            assert tags[f"reid_dist.verdict.{finding.gate}"] == finding.verdict
            assert finding_text(finding) in tags["mlflow.note.content"]
        if entry.state in (State.FAILED, State.SKIPPED):
            assert tags["reid_dist.reason"] == entry.reason
            assert run.data.metrics == {}
            continue
        assert tags["reid_dist.result_digest"] == entry.result_digest
        assert run.data.metrics["mAP"] == entry.metrics["mAP"].value
        assert run.data.metrics["mAP.low"] == entry.metrics["mAP"].low
        assert run.data.metrics["CMC_1"] == entry.metrics["CMC@1"].value
        assert run.data.metrics["seconds"] == entry.seconds
        assert run.data.metrics["seconds.counts"] == entry.timing["counts"]
        assert run.data.metrics["peak_bytes"] == entry.peak_bytes
        assert run.data.params["distance.name"] == "cosine"
        assert run.data.params["counts.n_query"] == "3368"
        assert (run.info.end_time - run.info.start_time) / 1000 == pytest.approx(entry.seconds, abs=0.001)
    alarms = [logged(tracking_uri, run_id).data.tags.get("reid_dist.alarm") for run_id in run_ids]
    assert alarms.count(ALARM) == 1


@pytest.mark.slow
def test_a_second_export_finds_the_first_and_adds_acceptances(tracking_uri: str, night: Run) -> None:
    first = export_run(night, tracking_uri=tracking_uri, experiment="nights")
    accepted = dataclasses.replace(night.entries[0], accepted="the new labels are right")
    again = dataclasses.replace(night, entries=(accepted, *night.entries[1:]))
    assert export_run(again, tracking_uri=tracking_uri, experiment="nights") == first
    assert len(all_runs(tracking_uri, "nights")) == len(night.entries)
    run = logged(tracking_uri, first[0])
    assert run.data.tags["reid_dist.accepted"] == "the new labels are right"
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_another_night_suite_or_history_is_another_run(tracking_uri: str, night: Run) -> None:
    one = dataclasses.replace(night, entries=night.entries[:1])
    others = [
        one,
        dataclasses.replace(one, number=14),
        dataclasses.replace(one, suite="weekly"),
        # A history that was begun anew counts from 1 again.
        dataclasses.replace(one, started="2027-01-01T02:00:00Z"),
    ]
    run_ids = [export_run(each, tracking_uri=tracking_uri, experiment="nights")[0] for each in others]
    assert len(set(run_ids)) == 4


@pytest.mark.slow
def test_an_interrupted_export_is_completed(tracking_uri: str, night: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """One entry is whole, of the next only the run is there, of later ones nothing."""
    import mlflow

    real = mlflow.MlflowClient.log_batch
    calls = iter(range(4))

    def interrupted(client: Any, *args: Any, **kwargs: Any) -> None:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        real(client, *args, **kwargs)

    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export_run(night, tracking_uri=tracking_uri, experiment="nights")
    monkeypatch.setattr(mlflow.MlflowClient, "log_batch", real)
    left = all_runs(tracking_uri, "nights")
    assert {run.info.status for run in left} == {"FINISHED", "RUNNING"}
    run_ids = export_run(night, tracking_uri=tracking_uri, experiment="nights")
    assert {run.info.run_id for run in left} < set(run_ids)
    for entry, run_id in zip(night.entries, run_ids, strict=True):
        run = logged(tracking_uri, run_id)
        assert run.info.status != "RUNNING"
        assert len(run.data.metrics) == (0 if entry.seconds is None else 3 * len(entry.metrics) + len(entry.timing) + 2)


@pytest.mark.slow
def test_the_report_is_an_artifact(tracking_uri: str, night: Run) -> None:
    import mlflow

    (entry, other, *_) = night.entries
    report = Path(night.folder) / entry.folder / "report.html"
    report.parent.mkdir(parents=True)
    report.write_text("<p>of that night</p>")
    run_ids = export_run(night, tracking_uri=tracking_uri, experiment="nights")
    client = mlflow.MlflowClient(tracking_uri=tracking_uri)
    assert [item.path for item in client.list_artifacts(run_ids[0])] == ["report.html"]
    assert Path(client.download_artifacts(run_ids[0], "report.html")).read_text() == "<p>of that night</p>"
    assert not (Path(night.folder) / other.folder).exists()
    assert client.list_artifacts(run_ids[1]) == []


@pytest.mark.slow
def test_names_and_texts_are_adapted_to_mlflow(tracking_uri: str) -> None:
    values = {"a@1": 0.1, "a=1": 0.2, "../b": 0.3, ".": 0.4, "x" * 300: 0.5, "x" * 299 + "y": 0.6, "ö/ü": 0.7}
    values |= {"undefined": None, "nan": float("nan")}
    entry = example_nights.entry(
        model="ResNet-50 'big' / \"é\"",
        metrics={name: Estimate(value) for name, value in values.items()},
        conventions={"text": "t" * 10_000, "none": None, "list": [1, 2], "deep": {"er": {"still": True}}},
        labels={"owner@team": "o" * 10_000},
    )
    entry = dataclasses.replace(entry, conventions={**entry.conventions, **{f"p{number}": 0 for number in range(250)}})
    (run_id,) = export_run(example_nights.run(0, [entry]), tracking_uri=tracking_uri, experiment="nights")
    data = logged(tracking_uri, run_id).data
    # Every value is there once, under whatever name.
    own = [value for name, value in data.metrics.items() if not name.startswith(("seconds", "peak_bytes"))]
    assert sorted(own) == [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    assert (data.metrics["a_1"], data.metrics["a_1_2"]) == (0.1, 0.2)
    assert set(data.params["text"]) == {"t"}
    assert (data.params["none"], data.params["list"], data.params["deep.er.still"]) == ("null", "[1, 2]", "true")
    assert len(data.params) == 4 + 250 + len(entry.counts)
    assert data.tags["reid_dist.model"] == entry.model
    assert set(data.tags["reid_dist.label.owner_team"]) == {"o"}


@pytest.mark.slow
def test_an_unreachable_server_is_one_clear_error(night: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(RunFailedError, match=r"not exported to MLflow at http://…@127.0.0.1:1/: ") as caught:
        export_run(night, tracking_uri="http://me:secret@127.0.0.1:1/", experiment="nights")
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_credentials_alone_in_an_error_are_masked(night: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("login as me:secret was refused")

    monkeypatch.setattr("mlflow.MlflowClient", refuse)
    with pytest.raises(RunFailedError, match="login as … was refused"):
        export_run(night, tracking_uri="postgresql://me:secret@store/runs", experiment="nights")


def test_without_mlflow_the_error_has_the_install_command(monkeypatch: pytest.MonkeyPatch, night: Run) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    for attempt in (import_mlflow, lambda: export_run(night, tracking_uri="file:x", experiment="nights")):
        with pytest.raises(InputError, match=r"pip install 'reid-dist\[mlflow\]'"):
            attempt()


@pytest.mark.slow
def test_mlflow_is_imported_by_an_export_alone() -> None:
    program = "import sys, reid_dist.nightly.mlflow_export; sys.exit('mlflow' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
