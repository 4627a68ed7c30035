"""The workflow: validated against the schema of workflows; its steps of plain shell are run, its actions are not."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from schedule_files import SCHEDULES, SUITE, StandIn, install_command, save_features
from support.schemas import read_schema

from reid_dist.errors import ExitCode

TEXT = (SCHEDULES / "github-actions.yaml").read_text()
# YAML 1.1 reads the key `on` as true.
WORKFLOW: dict[str, Any] = {("on" if key is True else key): value for key, value in yaml.safe_load(TEXT).items()}
JOBS = WORKFLOW["jobs"]
STEPS = [step for job in JOBS.values() for step in job["steps"]]
SCRIPTS = {step["name"]: step for step in STEPS if "run" in step}


def validate(workflow: dict[str, Any]) -> None:
    schema = read_schema("github-workflows.json")
    jsonschema.validators.validator_for(schema)(schema).validate(workflow)


@pytest.mark.slow
def test_schema_validates() -> None:
    validate(WORKFLOW)


def test_schema_validation_finds_errors() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate({**WORKFLOW, "concurrency": {"groop": "nightly"}})


def test_nights_do_not_overlap_and_are_not_cut_off() -> None:
    assert set(WORKFLOW["on"]) == {"schedule", "workflow_dispatch"}
    assert WORKFLOW["concurrency"]["cancel-in-progress"] is False
    assert all("timeout-minutes" in job for job in JOBS.values())


def test_rights_are_minimal() -> None:
    """What runs code of others cannot write to the repository, and what can, runs none but pinned actions."""
    assert WORKFLOW["permissions"] == {}
    assert JOBS["nightly"]["permissions"] == {"contents": "read"}
    assert JOBS["charts"]["permissions"] == {"contents": "write"}
    assert not any("run" in step for step in JOBS["charts"]["steps"])


def test_actions_are_pinned_by_commit() -> None:
    used = re.findall(r"uses: (.*)", TEXT)
    assert len(used) == sum("uses" in step for step in STEPS) > 5
    for line in used:
        assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)
    # One action is one version throughout.
    versions = {(line.split("/")[0], line.split("/")[1].split("@")[0], line.split("@")[1]) for line in used}
    assert len({version[:2] for version in versions}) == len(versions)


def test_charts_show_what_the_night_wrote() -> None:
    charts = [step["with"] for step in JOBS["charts"]["steps"] if "github-action-benchmark" in step["uses"]]
    assert {chart["tool"]: Path(chart["output-file-path"]).name for chart in charts} == {
        "customBiggerIsBetter": "benchmark-accuracy.json",
        "customSmallerIsBetter": "benchmark-cost.json",
    }
    assert len({chart["name"] for chart in charts}) == len(charts)


def test_every_night_that_was_run_is_published() -> None:
    """Whatever exit code it ended with; with wrong input none was run, an interrupted one is cancelled."""
    summary = next(step for step in JOBS["nightly"]["steps"] if step.get("name") == "Summary")
    for condition in (summary["if"], JOBS["charts"]["if"]):
        assert json.loads(re.search(r"fromJSON\('(.*?)'\)", condition)[1]) == [
            str(code) for code in (ExitCode.DONE, ExitCode.FAILED, ExitCode.REGRESSION, ExitCode.NOT_COMPARED)
        ]


def test_the_verdict_is_the_last_step() -> None:
    assert list(SCRIPTS)[-1] == JOBS["nightly"]["steps"][-1]["name"] == "Verdict"


@pytest.mark.parametrize("name", SCRIPTS)
def test_scripts_parse_and_hold_no_expressions(name: str) -> None:
    """An expression within a script is text that becomes code."""
    script = SCRIPTS[name]["run"]
    assert "${{" not in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True, timeout=60)


class Runner:
    """Runs steps of plain shell as GitHub does."""

    def __init__(self, directory: Path, programs: Path) -> None:
        self.directory = directory
        self.summary = directory / "step-summary"
        self._output = directory / "step-output"
        self._env = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "GITHUB_OUTPUT": str(self._output),
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def run(self, name: str, **env: str) -> int:
        script = self.directory / "script.sh"
        script.write_text(SCRIPTS[name]["run"])
        assert WORKFLOW["defaults"]["run"]["shell"] == "bash"
        # The command line of `shell: bash`.
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", script]
        return subprocess.run(words, cwd=self.directory, env={**self._env, **env}, check=False, timeout=60).returncode

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in self._output.read_text().splitlines())


@pytest.mark.parametrize("code", [0, 3, 4, 5])
def test_a_night_is_published_and_then_fails_with_its_exit_code(tmp_path: Path, stand_in: StandIn, code: int) -> None:
    runner = Runner(tmp_path, stand_in.programs)
    stand_in.end_with(code)
    assert runner.run("Night") == 0
    assert runner.outputs == {"code": str(code)}
    assert stand_in.record == [
        f"started {tmp_path} nightly pipelines/nightly.yaml --history history/nightly.db",
        "ended",
    ]
    assert runner.run("Summary") == 0
    assert runner.summary.read_text() == "# Night\n"
    assert SCRIPTS["Verdict"]["env"] == {"CODE": "${{ steps.night.outputs.code }}"}
    assert runner.run("Verdict", CODE=runner.outputs["code"]) == code


def test_wrong_input_fails_the_job(tmp_path: Path, stand_in: StandIn) -> None:
    runner = Runner(tmp_path, stand_in.programs)
    stand_in.end_with(2)
    assert runner.run("Night") == 0
    assert runner.run("Verdict", CODE=runner.outputs["code"]) == 2


@pytest.mark.slow
def test_a_night_of_the_command_itself_leaves_what_is_published(tmp_path: Path) -> None:
    install_command(tmp_path / "programs")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "nightly.yaml").write_text(SUITE)
    save_features(tmp_path, noise=0.5)
    runner = Runner(tmp_path, tmp_path / "programs")
    assert runner.run("Night") == 0
    assert runner.outputs == {"code": "0"}
    assert runner.run("Summary") == 0
    assert runner.summary.read_text().startswith("#")
    charts = [step["with"] for step in JOBS["charts"]["steps"] if "github-action-benchmark" in step["uses"]]
    for chart in charts:
        values = json.loads((tmp_path / chart["output-file-path"]).read_text())
        # What the action reads.
        assert {type(value["name"]) for value in values} == {type(value["unit"]) for value in values} == {str}
        assert {type(value["value"]) for value in values} <= {int, float}
        assert any("small/toy/plain" in value["name"] for value in values)
    # The artifact, in which the job with the charts finds them.
    (kept,) = [step["with"] for step in JOBS["nightly"]["steps"] if "upload-artifact" in step.get("uses", "")]
    (taken,) = [step["with"] for step in JOBS["charts"]["steps"] if "download-artifact" in step["uses"]]
    assert (kept["name"], kept["path"]) == (taken["name"], taken["path"])
    assert all(chart["output-file-path"].startswith(taken["path"] + "/") for chart in charts)
