"""Commands that make features before the jobs, and features that are not new."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from small_nights import run_night, save_model, write_suite
from support.processes import is_running, wait_until

from reid_dist.errors import InputError
from reid_dist.nightly.delivery import verdict_document
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Code, Run, State
from reid_dist.nightly.outcomes import outcome
from reid_dist.nightly.page.document import render_nights
from reid_dist.nightly.suite import Preparation, read_suite

JOBS: dict[str, Any] = {"plain": {}, "other": {"max_rank": 9}}


def suite_of(tmp_path: Path, models: dict[str, dict[str, Any]], jobs: dict[str, Any] = JOBS, **more: Any) -> Path:
    """A suite whose models have further fields."""
    content = {name: {"path": str(tmp_path / name), **fields} for name, fields in models.items()}
    return write_suite(tmp_path, content, jobs, **more)


def python(code: str, *words: str) -> list[str]:
    return [sys.executable, "-c", code, *words]


def outcomes(run: Run) -> dict[str, str]:
    return {entry.name: outcome(entry) for entry in run.entries}


APPEND = "import sys; open(sys.argv[1], 'a').write(' '.join(sys.argv[2:]) + '\\n')"


def test_each_command_runs_once_before_its_jobs(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    fields = {"prepare": python(APPEND, str(log), "{model}", "{path}", "a b; $HOME")}
    for name in ("a", "b"):
        save_model(tmp_path / name, 0.8)
    sets = {"set": {"query": "{path}/query.zarr", "gallery": "{path}/gallery.zarr"}}
    # Of a data set: once for all models, unless it names one of them.
    sets["set"]["prepare"] = python(APPEND, str(log), "{dataset}")
    run = run_night(suite_of(tmp_path, {"a": fields, "b": fields}, datasets=sets))
    assert (run.exit_code, {entry.state for entry in run.entries}) == (0, {State.DONE})
    assert log.read_text().splitlines() == [f"a {tmp_path / 'a'} a b; $HOME", "set", f"b {tmp_path / 'b'} a b; $HOME"]
    assert all(finding.gate != "preparation" for entry in run.entries for finding in entry.findings)


def test_a_failed_command_is_a_verdict_of_all_its_jobs_and_of_no_others(tmp_path: Path) -> None:
    save_model(tmp_path / "good", 0.8)
    # 30 lines, of which the last 20 are shown, with a password and a control code.
    code = "import sys\nfor n in range(30): print('line', n, 'https://me:secret@host/x', '\\x1b[31m')\nsys.exit(7)"
    models = {"bad": {"prepare": python(code)}, "good": {"prepare": python("")}}
    run = run_night(suite_of(tmp_path, models))
    assert run.exit_code == 3
    assert outcomes(run) == {
        "bad/set/plain": "unprepared",
        "bad/set/other": "unprepared",
        "good/set/plain": "incomparable",
        "good/set/other": "incomparable",
    }
    first, second, *_ = run.entries
    assert first.state == State.FAILED
    (finding,) = first.findings
    assert (finding.gate, finding.verdict, finding.code) == ("preparation", "unprepared", Code.EXITED)
    assert second.findings == first.findings
    assert finding.facts["exit_code"] == 7
    assert [int(line.split()[1]) for line in finding.facts["tail"]] == [*range(10, 30)]
    output = tmp_path / "nights" / finding.facts["output"]
    assert len(output.read_text().splitlines()) == 30
    document = json.dumps(verdict_document(run))
    page = render_nights([run])
    for text in (document, page, first.reason):
        assert "secret" not in text
        assert "\x1b" not in text
    assert '<pre class="tail">line 10 ' in page
    with History.open(tmp_path / "nights.db", create=False) as history:
        assert history.run(1) == run


def test_a_command_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    child = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
    code = (
        "import subprocess, sys, time; "
        "subprocess.Popen([sys.executable, '-c', sys.argv[1], sys.argv[2]]); print('begun', flush=True); time.sleep(60)"
    )
    fields = {"prepare": python(code, child, str(tmp_path / "pid")), "prepare_hours": 2 / 3600}
    begin = time.monotonic()
    run = run_night(suite_of(tmp_path, {"slow": fields}, {"plain": {}}))
    assert time.monotonic() - begin < 30
    (finding,) = run.entries[0].findings
    assert (finding.code, finding.facts["seconds"], finding.facts["tail"]) == (Code.OVERTIME, 2.0, ["begun"])
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not is_running(pid), "the end of the child")


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    run = run_night(suite_of(tmp_path, {"a": {"prepare": ["no-such-program", "https://me:secret@host"]}}))
    (finding,) = run.entries[0].findings
    assert finding.code == Code.NOT_STARTED
    assert finding.facts["command"] == "no-such-program 'https://…@host'"
    assert run.exit_code == 3


def test_the_budget_of_the_night_limits_commands_too(tmp_path: Path) -> None:
    fields = {"prepare": python("import time; time.sleep(60)")}
    run = run_night(suite_of(tmp_path, {"slow": fields}, hours=1.5 / 3600))
    assert [entry.state for entry in run.entries] == [State.SKIPPED, State.SKIPPED]
    assert run.exit_code == 0


def test_features_of_the_last_night_are_stale_where_new_ones_are_expected(tmp_path: Path) -> None:
    save_model(tmp_path / "a", 0.8)
    suite = suite_of(tmp_path, {"a": {"expect_new": True}}, {"plain": {}})
    first = run_night(suite)
    assert (first.exit_code, outcomes(first)) == (0, {"a/set/plain": "incomparable"})
    second = run_night(suite)
    assert (second.exit_code, outcomes(second)) == (3, {"a/set/plain": "stale"})
    # It is evaluated, and compared, all the same.
    assert {finding.gate: finding.code for finding in second.entries[0].findings} | {"speed": "", "memory": ""} == {
        "accuracy": Code.EQUAL,
        "trend": Code.EQUAL_NIGHTS,
        "speed": "",
        "memory": "",
        "preparation": Code.STALE,
    }
    assert second.entries[0].findings[-1].baseline == 1
    save_model(tmp_path / "a", 0.8, seed=1)
    third = run_night(suite)
    assert (third.exit_code, outcomes(third)["a/set/plain"] == "stale") == (0, False)
    run_night(suite)
    with History.open(tmp_path / "nights.db", create=False) as history:
        history.accept(4, None, "no training on Sundays")
        assert outcomes(history.run(4)) == {"a/set/plain": "same"}


def test_commands_are_filled_in_and_checked_with_the_suite(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, {"a": {"prepare": ["make", "{path}/{dataset}", "{{x}}"], "prepare_hours": 0.5}})
    for planned in read_suite(suite).planned():
        assert planned.preparations == (Preparation(("make", f"{tmp_path / 'a'}/set", "{x}"), 1800.0),)
        assert not planned.expects_new
    for wrong, found in (
        (["make", "{modle}"], "models.a.prepare.1: unknown placeholder {modle}"),
        ([], "models.a.prepare"),
        ("make all", "models.a.prepare"),
        (["make", 3], "models.a.prepare"),
    ):
        with pytest.raises(InputError) as error:
            read_suite(suite_of(tmp_path, {"a": {"prepare": wrong}}))
        assert found in str(error.value)
