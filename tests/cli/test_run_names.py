"""The name of a run, its date and its command: in every kind of report, and without a part in its result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reid_dist import Report
from reid_dist.evaluation.splits import SplitReport
from reid_dist.evaluation.sweeps import SweepReport

PIPELINE = "description: two cameras, one night\nquery: {}\ngallery: {}\nprotocol: no_cameras\n"


def test_a_name_changes_no_result(reid_dist, stores, threads, tmp_path: Path) -> None:
    found = {}
    for folder, words in (("plain", ()), ("other", ("--name", "ten  epochs"))):
        done = reid_dist("evaluate", *stores, "--cluster", threads, "--output", tmp_path / folder, *words)
        assert done.code == 0, done.err
        found[folder] = Report.load(tmp_path / folder), done.out
    (plain, out), (other, other_out) = found.values()
    assert plain.result_digest == other.result_digest
    assert [plain.run["name"], out.splitlines()[0]] == ["plain", "plain"], "without a name, that of the directory"
    assert [other.run["name"], other_out.splitlines()[0]] == ["ten epochs", "ten epochs"]
    assert other.run["command"].startswith(f"reid-dist evaluate {stores[0]} {stores[1]} --cluster")
    assert other.run["command"].endswith("--name 'ten  epochs'")
    assert "<h1>ten epochs</h1>" in (tmp_path / "other" / "report.html").read_text()


def test_a_finished_run_stays_as_it_is(reid_dist, stores, threads, tmp_path: Path) -> None:
    command = ("evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out")
    assert reid_dist(*command, "--name", "first").code == 0
    written = (tmp_path / "out" / "report.json").read_bytes()
    again = reid_dist(*command, "--resume")
    assert again.out.splitlines()[0] == "first"
    renamed = reid_dist(*command, "--resume", "--name", "second")
    assert renamed.out == again.out
    assert "keeps its name 'first'" in renamed.err
    assert (tmp_path / "out" / "report.json").read_bytes() == written


def test_without_a_directory_the_stages_are_the_name(reid_dist, stores, threads) -> None:
    done = reid_dist("evaluate", *stores, "--cluster", threads, "--json")
    assert json.loads(done.out)["run"]["name"] == "market1501 \N{MIDDLE DOT} cosine"


def test_a_pipeline_has_a_description(reid_dist, stores, threads, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(PIPELINE.format(*stores))
    done = reid_dist("run", pipeline, "--cluster", threads, "--output", tmp_path / "out")
    assert done.out.splitlines()[2] == "two cameras, one night"
    run = json.loads((tmp_path / "out" / "report.json").read_text())["run"]
    assert run["description"] == "two cameras, one night"
    assert "two cameras, one night" in (tmp_path / "out" / "report.html").read_text()


def test_sweeps_and_splits_have_names_too(reid_dist, stores, threads, tmp_path: Path) -> None:
    sweep = reid_dist(
        *("sweep", *stores, "--expand", "aqe", "--k", "1", "--metric", "mAP", "--cluster", threads),
        *("--output", tmp_path / "sweep", "--name", "by k"),
    )
    splits = reid_dist(
        *("splits", *stores, "--repeats", 2, "--metric", "mAP", "--cluster", threads),
        *("--output", tmp_path / "splits", "--name", "twice"),
    )
    for done, report, page, name in (
        (sweep, SweepReport.load(tmp_path / "sweep"), "sweep/sweep.html", "by k"),
        (splits, SplitReport.load(tmp_path / "splits"), "splits/splits.html", "twice"),
    ):
        assert done.code == 0, done.err
        assert report.run["name"] == done.out.splitlines()[0] == name
        assert report.run["command"].endswith(f"--name {name!r}" if " " in name else f"--name {name}")
        assert report.run["date"] in done.out
        assert f"<h1>{name}</h1>" in (tmp_path / page).read_text()
        # A page that is lost is written again.
        content = (tmp_path / page).read_bytes()
        (tmp_path / page).unlink()
        assert reid_dist("report", (tmp_path / page).parent).code == 0
        assert (tmp_path / page).read_bytes() == content


def test_passwords_stay_out_of_the_command(reid_dist, stores, threads, tmp_path: Path) -> None:
    folder = tmp_path / "s3:" / "key:secret@host"
    folder.mkdir(parents=True)
    query = stores[0].rename(folder / "query.zarr")
    done = reid_dist("evaluate", query, stores[1], "--cluster", threads, "--json", "--name", "x")
    assert done.code == 0, done.err
    command = json.loads(done.out)["run"]["command"]
    assert "@host/query.zarr" in command
    assert "secret" not in command


@pytest.mark.parametrize("name", ["", "  ", "red \x1b[31m"])
def test_a_name_is_a_line_of_text(reid_dist, stores, name: str) -> None:
    reid_dist("evaluate", *stores, "--name", name).assert_refused("--name takes a line of text")
