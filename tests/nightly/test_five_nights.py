"""The command over five nights: good, retrained, really worse, with a store that is damaged, and slow."""

from __future__ import annotations

import contextlib
import json
import signal
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from small_nights import damage, save_model, write_suite
from support.processes import COMMAND

from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Run, run_state
from reid_dist.nightly.outcomes import Streak
from reid_dist.nightly.wording import lasting_text, removed_text

# Three nights are enough here, and only what is grossly slow counts: machines that run tests are busy, and jobs that
# take a tenth of a second may take a whole one.
SLOW = 20
GATES = {"speed": {"minimum_runs": 3, "smallest_ratio": SLOW, "false_alarm": 0.5}, "memory": None}


class Done(NamedTuple):
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


class Nights:
    """A folder with a suite, its history and its page."""

    def __init__(
        self, folder: Path, models: dict[str, float], jobs: dict[str, Any], command: Callable[..., Any] | None = None
    ) -> None:
        self.folder, self.command = folder, command
        self.models = {name: save_model(folder / name, noise) for name, noise in models.items()}
        self.suite = write_suite(folder, self.models, jobs, gates=GATES)
        self.history = folder / "nights.db"
        (folder / "threads.yaml").write_text("kind: threads\n")

    def words(self, *more: str) -> list[str]:
        return ["nightly", str(self.suite), "--history", str(self.history), "--cluster", "threads.yaml", *more]

    def start(self, *more: str) -> subprocess.Popen[str]:
        streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*COMMAND, *self.words(*more)], cwd=self.folder, **streams)

    def run(self, *more: str) -> Done:
        """Run a night with the command of this process, or without one in a process of its own."""
        if self.command is not None:
            done = self.command(*self.words(*more))
            assert "Traceback" not in done.err
            return Done(done.code, done.out, done.err)
        with self.start(*more) as process:
            out, err = process.communicate(timeout=200)
        assert "Traceback" not in err, err
        return Done(process.returncode, out, err)

    def recorded(self) -> list[Run]:
        with History.open(self.history, create=False) as history:
            return history.runs()

    def night(self) -> tuple[int, dict[str, Any]]:
        done = self.run("--json")
        verdict = json.loads(done.out)
        assert verdict == json.loads((self.folder / "nights" / "verdict.json").read_text())
        assert verdict["exit_code"] == done.code
        return done.code, {entry["name"]: entry for entry in verdict["entries"]}

    def disturbed(self, strike: Callable[[subprocess.Popen[str]], None], name: str, *more: str) -> Done:
        """Run a night, and do something to it when the first stage of a job begins."""
        lines, job = [], ""
        with self.start("--log-json", *more) as process:
            assert process.stderr is not None
            for line in process.stderr:
                lines.append(line)
                event = json.loads(line)
                job = event["job"] if event["event"] == "job_started" else job
                if event["event"] == "stage_started" and job == name:
                    strike(process)
                    job = ""
            assert process.stdout is not None
            out = process.stdout.read()
        return Done(process.returncode, out, "".join(lines))


@pytest.fixture
def here(reid_dist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command in this process, which works in the folder of the suite."""
    monkeypatch.chdir(tmp_path)
    command: Callable[..., Any] = reid_dist
    return command


def verdicts(entry: dict[str, Any]) -> dict[str, str]:
    return {finding["gate"]: finding["verdict"] for finding in entry["findings"]}


@pytest.mark.slow
def test_five_nights(tmp_path: Path) -> None:
    nights = Nights(tmp_path, {"ours": 1.0, "theirs": 1.1}, {"plain": {}, "expanded": {"expand": "aqe(k=2)"}})
    names = [f"{model}/set/{job}" for model in ("ours", "theirs") for job in ("plain", "expanded")]
    # Nothing to compare with; one model trained again, by noise better or worse; that model really worse; as good as
    # before, and a store of the other one damaged.
    expected = [
        (0, ["incomparable"] * 4),
        (0, ["undecided"] * 2 + ["same"] * 2),
        (4, ["worse"] * 2 + ["same"] * 2),
        (3, ["same"] * 2 + ["failed"] * 2),
    ]
    for night, (code, outcomes) in enumerate(expected, start=1):
        if night > 1:
            save_model(nights.models["ours"], 1.5 if night == 3 else 1.0, seed=8 if night == 3 else 7)
        if night == 4:
            damage(nights.models["theirs"] / "gallery.zarr")
        found, entries = nights.night()
        assert (found, list(entries)) == (code, names)
        accuracy = [entry["state"] if entry["reason"] else verdicts(entry)["accuracy"] for entry in entries.values()]
        assert accuracy == outcomes
    assert "gallery.zarr" in entries["theirs/set/plain"]["reason"]

    # The fifth: all is well again, and one job is slow.
    save_model(nights.models["theirs"], 1.1)
    usual = [entry.seconds for run in nights.recorded() for entry in run.entries if entry.name == "ours/set/expanded"]

    def pause(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(SLOW * statistics.median(usual))
        process.send_signal(signal.SIGCONT)

    done = nights.disturbed(pause, "ours/set/expanded", "--json")
    assert done.code == 4
    found = {entry["name"]: verdicts(entry) for entry in json.loads(done.out)["entries"]}
    assert {name: each["accuracy"] for name, each in found.items()} == dict.fromkeys(names, "same")
    assert [name for name, each in found.items() if each["speed"] == "worse"] == ["ours/set/expanded"]

    page = (tmp_path / "nights" / "index.html").read_text()
    for number, entry in ((3, "ours/set/plain"), (5, "ours/set/expanded")):
        assert f'href="./runs/{number:05}/{entry}/report.html"' in page
        assert (tmp_path / "nights" / "runs" / f"{number:05}" / entry / "report.html").is_file()
    assert [run.exit_code for run in nights.recorded()] == [0, 0, 4, 3, 4]
    for name in ("accuracy", "cost"):
        assert json.loads((tmp_path / "nights" / f"benchmark-{name}.json").read_text())


@pytest.mark.slow
def test_a_killed_night_keeps_what_it_had(tmp_path: Path) -> None:
    jobs = {"plain": {}, "reranked": {"rerank": "k_reciprocal(k1=4,k2=2)"}}
    nights = Nights(tmp_path, {"ours": 1.0}, jobs)
    assert nights.disturbed(subprocess.Popen.kill, "ours/set/reranked").code == -signal.SIGKILL
    with History.open(nights.history, create=False) as history:
        (killed,) = history.runs()
        assert run_state(killed) == "killed"
        assert [entry.name for entry in killed.entries] == ["ours/set/plain"]
        assert history.report(1, "ours/set/plain").result_digest == killed.entries[0].result_digest
    code, entries = nights.night()
    assert code == 0
    assert verdicts(entries["ours/set/plain"])["accuracy"] == "same"
    assert verdicts(entries["ours/set/reranked"])["accuracy"] == "incomparable"
    assert not (tmp_path / "nights" / "workspace").exists()
    with contextlib.closing(sqlite3.connect(nights.history)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_night_is_recorded_as_finished(tmp_path: Path, number: signal.Signals) -> None:
    jobs = {"plain": {}, "reranked": {"rerank": "k_reciprocal(k1=4,k2=2)"}, "more": {}}
    nights = Nights(tmp_path, {"ours": 1.0}, jobs)
    done = nights.disturbed(lambda process: process.send_signal(number), "ours/set/reranked")
    assert done.code == 128 + number
    assert "jobs that had ended are in the history" in done.err
    assert "the night was interrupted" in done.out
    (run,) = nights.recorded()
    assert (run_state(run), run.exit_code) == ("finished", 130)
    assert [entry.state for entry in run.entries] == ["done", "skipped", "skipped"]
    assert run.entries[1].reason == "the night was interrupted"
    assert (tmp_path / "nights" / "index.html").is_file()
    # A thread that was in the middle of a task may have left its part behind; the next night removes it.
    assert nights.run("--only", "ours/set/plain").code == 0
    assert not (tmp_path / "nights" / "workspace").exists()


@pytest.mark.slow
def test_a_night_is_exported_to_mlflow_and_an_unreachable_server_hides_nothing(tmp_path: Path) -> None:
    nights = Nights(tmp_path, {"ours": 1.0}, {"plain": {}})
    done = nights.run("--mlflow", "http://127.0.0.1:9")
    assert done.code == 3
    assert "run 1 of suite small: " in done.out
    assert "was not exported to MLflow at http://127.0.0.1:9" in done.err
    assert nights.run("--mlflow", f"sqlite:///{tmp_path / 'mlflow.db'}").code == 0
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        assert connection.execute("SELECT count(*) FROM runs").fetchone() == (1,)


@pytest.mark.slow
def test_a_page_that_cannot_be_written_hides_nothing(tmp_path: Path, here: Callable[..., Any]) -> None:
    nights = Nights(tmp_path, {"ours": 1.0}, {"plain": {}}, here)
    (tmp_path / "nights" / "index.html").mkdir(parents=True)
    done, as_json = nights.run(), nights.run("--json")
    for number, each in enumerate((done, as_json), start=1):
        assert each.code == 3
        assert f"Error: cannot write the page of run {number} to" in each.err
    assert "run 1 of suite small: " in done.out
    verdict = json.loads(as_json.out)
    assert (verdict["run"], verdict["exit_code"], [entry["state"] for entry in verdict["entries"]]) == (2, 0, ["done"])
    assert [run.exit_code for run in nights.recorded()] == [0, 0]


@pytest.mark.slow
def test_nights_of_a_suite_that_changes(tmp_path: Path, here: Callable[..., Any]) -> None:
    """A job that fails again has its first night, one that is removed is listed once, and pages keep to their suite."""
    nights = Nights(tmp_path, {"ours": 1.0}, {"plain": {}, "other": {"gallery": "nowhere.zarr"}}, here)
    page, summary = tmp_path / "nights" / "index.html", tmp_path / "nights" / "summary.md"
    assert [nights.night()[1]["ours/set/other"]["since"] for _ in range(2)] == [None, 1]
    done = nights.run()
    lasting = lasting_text(Streak("failed", 1, 3))
    assert all(lasting in text for text in (done.out, page.read_text(), summary.read_text()))
    removed = removed_text(3)
    done = nights.run("--only", "ours/set/plain")
    assert (done.code, removed in done.out) == (0, False), "what --only leaves out is still in the suite"
    write_suite(tmp_path, nights.models, {"plain": {}}, gates=GATES)
    done = nights.run()
    assert (done.code, f"ours/set/other: {removed}\n" in done.out) == (0, True)
    assert "<h3>No longer in the suite</h3>" in page.read_text()
    assert f"- ours/set/other: {removed}\n" in summary.read_text()
    verdict = json.loads((tmp_path / "nights" / "verdict.json").read_text())
    assert verdict["removed"] == [{"name": "ours/set/other", "last_run": 3}]
    assert json.loads(nights.run("--json").out)["removed"] == []
    # A page links to the reports that are there.
    assert [nights.run(*words).code for words in (("--output", "elsewhere"), ())] == [0, 0]
    linked = {number for number in range(1, 9) if f"./runs/{number:05}/ours/set/plain/report.html" in page.read_text()}
    assert linked == {1, 2, 3, 4, 5, 6, 8}
    nights.suite.write_text(nights.suite.read_text().replace("suite: small", "suite: other"))
    done = nights.run()
    assert done.code == 2
    assert "holds the page of suite small, which that of suite other would replace" in done.err
    assert nights.run("--output", "other").code == 0
    assert [run.suite for run in nights.recorded()] == ["small"] * 8 + ["other"]


@pytest.mark.slow
def test_two_nights_at_once(tmp_path: Path) -> None:
    nights = Nights(tmp_path, {"ours": 1.0, "theirs": 1.1}, {"plain": {}})
    running = [nights.start() for _ in range(2)]
    ended = [process.communicate(timeout=200) for process in running]
    assert [process.returncode for process in running] == [0, 0], ended
    runs = nights.recorded()
    assert [run.number for run in runs] == [1, 2]
    assert all([entry.state for entry in run.entries] == ["done", "done"] for run in runs)
    assert len({entry.result_digest for run in runs for entry in run.entries}) == 2


def test_some_jobs_alone(tmp_path: Path, here: Callable[..., Any]) -> None:
    nights = Nights(tmp_path, {"ours": 1.0, "theirs": 1.1}, {"plain": {}, "more": {"max_rank": 9}}, here)
    assert nights.run("--list", "--only", "*/plain").out.splitlines() == ["ours/set/plain", "theirs/set/plain"]
    assert not nights.history.exists()
    done = nights.run("--only", "ours/*/more", "--output", "elsewhere")
    assert done.code == 0
    assert [[entry.name for entry in run.entries] for run in nights.recorded()] == [["ours/set/more"]]
    assert (tmp_path / "elsewhere" / "index.html").is_file()
    assert "written to elsewhere" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--only", "other/*"), "matches no job of suite small; its jobs: ours/set/plain"),
        (("--output", "s3://bucket/nights"), "local directory"),
        (("--workers", "2"), "--workers belongs to the local cluster"),
        (("--output", "threads.yaml/page"), "threads.yaml is no directory; choose another --output"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, here: Callable[..., Any], words: tuple[str, ...], message: str) -> None:
    nights = Nights(tmp_path, {"ours": 1.0}, {"plain": {}}, here)
    here(*nights.words(*words)).assert_refused(message)
    assert not nights.history.exists()
