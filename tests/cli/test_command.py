"""The command as users and schedulers call it: output, exit codes, one clear line for a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate
from reid_dist._version import __version__
from reid_dist.cli.group import _COMMANDS
from reid_dist.engine import graph
from reid_dist.errors import RunFailedError


def test_help_is_quick_and_lists_every_command(reid_dist) -> None:
    outcome = reid_dist("--help")
    assert outcome.code == 0
    for name in _COMMANDS:
        assert f"\n  {name} " in outcome.out
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "reid_dist.cli", "--help"], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - begin)
    # Measured at 0.05 s; whoever imports Dask or Numba at the top adds more than this allows.
    assert min(taken) < 0.5


def test_help_has_exit_codes_and_all_that_can_be_listed(reid_dist) -> None:
    text = " ".join(reid_dist("--help").out.split())
    codes = text.partition("Exit codes: ")[2].partition(". ")[0]
    assert [part.split()[0] for part in codes.split("; ")] == ["0", "2", "3", "4", "5", "130", "143"]
    # The line of usage may be broken anywhere.
    words = "".join(reid_dist("list", "--help").out.split())
    for kind in words.partition("{")[2].partition("}")[0].split("|"):
        assert kind.replace("rerankers", "re-rankers") in text


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom reid_dist.cli import main\n"
        "for name in ('evaluate', 'history'):\n    try:\n        main([name, '--help'])\n"
        "    except SystemExit:\n        pass\n"
        "print(sorted({'numpy', 'dask', 'zarr', 'numba', 'rich', 'pydantic', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("name", _COMMANDS)
def test_help_of_every_command_has_an_example(reid_dist, name: str) -> None:
    outcome = reid_dist(name, "--help")
    assert outcome.code == 0
    assert f"reid-dist {name}" in outcome.out.split("Example")[1]


def test_version(reid_dist) -> None:
    assert reid_dist("--version").out.strip() == f"reid-dist, version {__version__}"


def test_evaluate_writes_the_report_it_prints(reid_dist, stores, threads, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = reid_dist("evaluate", *stores, "--cluster", threads, "--output", output, "--topk", 5, "--metric", "mAP")
    assert done.code == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "per_query.npz", "per_query.parquet", "report.html", "report.json", "topk.npz",
    ]  # fmt: skip
    document = json.loads((output / "report.json").read_text())
    expected = evaluate(*map(FeatureSet.open, stores), metrics=["mAP"], topk=5)
    assert document["result_digest"] == expected.result_digest
    assert list(document["metrics"]) == ["mAP"]
    assert f"{100 * expected.metrics['mAP']:.2f}%" in done.out
    assert expected.result_digest[:16] in done.out
    names = "report.html, report.json, per_query.npz, per_query.parquet, topk.npz"
    assert done.out.splitlines()[-1] == f"written to {output}: {names}"
    with np.load(output / "topk.npz", allow_pickle=False) as arrays:
        assert arrays["index"].shape == (40, 5)


COMPUTING = [["evaluate"], ["sweep", "--expand", "aqe", "--k", "0:1"], ["splits", "--repeats", "1"]]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("words", COMPUTING)
def test_without_output_nothing_is_written(reid_dist, stores, threads, tmp_path: Path, monkeypatch, words) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert reid_dist(words[0], *stores, *words[1:], "--cluster", threads).code == 0
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("words", [*COMPUTING, ["demo"]])
@pytest.mark.parametrize("occupied", [True, False])
def test_an_output_that_cannot_be_used_is_refused_before_any_work(
    reid_dist, stores, threads, tmp_path: Path, occupied: bool, words: list[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    output = tmp_path / "out" if occupied else tmp_path / "out" / "notes.txt" / "results"
    sides = () if words == ["demo"] else stores
    refused = reid_dist(words[0], *sides, *words[1:], "--cluster", threads, "--output", output)
    refused.assert_refused("notes.txt", *(["is not empty"] if occupied else []))
    assert ("--resume to continue" in refused.err) == (occupied and words != ["demo"])
    assert "tasks" not in refused.err
    assert "point " not in refused.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_local_cluster_gives_the_answer_of_threads(stores, tmp_path: Path) -> None:
    """In a process of its own, as a user starts it: nothing printed but the report, nothing left running."""
    words = [sys.executable, "-m", "reid_dist.cli", "evaluate", *map(str, stores), "--workers", "2", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["result_digest"] == evaluate(*map(FeatureSet.open, stores)).result_digest
    assert all("tasks" in line for line in done.stderr.splitlines()), done.stderr


def test_a_run_that_left_nothing_can_be_followed_by_any(
    reid_dist, stores, threads, tmp_path: Path, monkeypatch
) -> None:
    def stop_short(*_: object) -> None:
        raise RunFailedError("stopped short")

    words = ("evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(graph, "relevance_task", stop_short)
        assert reid_dist(*words).code == 3
    assert not (tmp_path / "out").exists()
    assert reid_dist(*words, "--resume", "--distance", "euclidean").code == 0


def test_no_more_memory_is_one_line(reid_dist, stores, threads, monkeypatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError("Unable to allocate 149. GiB for an array")

    monkeypatch.setattr("reid_dist.evaluation.report_assembly.rank_curves", greedy)
    reid_dist("evaluate", *stores, "--cluster", threads, "--json").assert_refused(
        "ran out of memory (Unable to allocate 149. GiB for an array)", "--max-rank", code=3
    )


@pytest.mark.parametrize("words", COMPUTING)
def test_curves_that_do_not_fit_are_refused_before_the_work(
    reid_dist, stores, threads, tmp_path: Path, words: list[str]
) -> None:
    output = tmp_path / "out"
    long = ("--max-rank", "2000000000", "--cluster", threads, "--output", output)
    refused = reid_dist(words[0], *stores, *words[1:], *long)
    refused.assert_refused("curves over 2,000,000,000 ranks of 40 queries take", "choose a smaller --max-rank")
    assert "tasks" not in refused.err
    assert not output.exists()


@pytest.mark.parametrize("words", COMPUTING[1:])
def test_nothing_is_resumed_without_a_directory(reid_dist, stores, threads, words: list[str]) -> None:
    refused = reid_dist(words[0], *stores, *words[1:], "--cluster", threads, "--resume")
    refused.assert_refused("--resume needs the output directory of the run; add --output DIR")


def test_a_damaged_record_of_an_unfinished_run(reid_dist, stores, threads, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "unfinished.json").write_text("[1")
    done = reid_dist("evaluate", *stores, "--cluster", threads, "--output", tmp_path / "out", "--resume")
    done.assert_refused("unfinished.json is damaged")


def test_run_and_its_overrides(reid_dist, stores, threads, tmp_path: Path) -> None:
    pipeline = tmp_path / "job.yaml"
    pipeline.write_text(f"query: {stores[0]}\ngallery: {stores[1]}\nmax_rank: 7\n")
    done = reid_dist("run", pipeline, "--cluster", threads, "--json", "--set", "metrics=[MRR, CMC@3]")
    document = json.loads(done.out)
    assert list(document["metrics"]) == ["MRR", "CMC@3"]
    assert len(document["curves"]["CMC"]) == 7


def test_a_scheduler_that_is_not_there(reid_dist, stores, tmp_path: Path) -> None:
    (tmp_path / "none.yaml").write_text("kind: existing\n")
    reid_dist("evaluate", *stores, "--cluster", tmp_path / "none.yaml").assert_refused("one of the two")
    path = tmp_path / "cluster.yaml"
    path.write_text("kind: existing\naddress: tcp://127.0.0.1:9\ntimeout_s: 1\n")
    reid_dist("evaluate", *stores, "--cluster", path).assert_refused("cannot reach tcp://127.0.0.1:9", code=3)


def test_plan_reads_no_features(reid_dist, stores, tmp_path: Path) -> None:
    pipeline = tmp_path / "job.yaml"
    pipeline.write_text(f"query: {stores[0]}\ngallery: {stores[1]}\n")
    for chunk in (stores[1] / "features" / "c").rglob("*"):
        if chunk.is_file():
            chunk.unlink()
    done = reid_dist("plan", pipeline, "--threads", 4)
    assert done.code == 0
    assert "gallery    200 x 24" in done.out
    assert "tasks" in done.out
    reid_dist("plan", pipeline, "--memory-per-thread", 1e-6).assert_refused("one task needs", "chunk_rows")


def test_damage_is_found_by_check_and_by_evaluate(reid_dist, stores, threads, tmp_path: Path) -> None:
    query, gallery = stores
    whole = reid_dist("check", query, gallery)
    assert whole.code == 0
    assert "200 x 24" in whole.out
    assert query.parent == gallery.parent
    assert reid_dist("check", query.parent).out == whole.out
    chunk = next(path for path in (gallery / "features" / "c").rglob("*") if path.is_file())
    content = bytearray(chunk.read_bytes())
    content[100] ^= 1
    chunk.write_bytes(content)
    found = reid_dist("check", query, gallery)
    assert found.code == 2
    assert "features chunk 0" in found.out
    output = tmp_path / "out"
    reid_dist("evaluate", *stores, "--cluster", threads, "--output", output).assert_refused(
        "features chunk 0", "damaged"
    )
    assert not output.exists()


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system in which nobody can make a file")
def test_a_directory_without_the_right_to_write(reid_dist, stores, threads) -> None:
    reid_dist("ingest", stores[0], "--output", "/proc/store.zarr").assert_refused("/proc/store.zarr")
    reid_dist("evaluate", *stores, "--cluster", threads, "--output", "/proc/out").assert_refused("/proc/out")


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("words", [("--output", "{uri}"), ("--ground-truth", "{uri}"), ("--cluster", "{uri}")])
@pytest.mark.parametrize("password", ["hunter2", "hun/ter2"])
@pytest.mark.parametrize("events", [(), ("--log-json",)])
def test_passwords_in_uris_are_not_repeated(reid_dist, stores, words, password: str, events) -> None:
    uri = f"s3://key:{password}@bucket/name"
    done = reid_dist("evaluate", *stores, *(word.format(uri=uri) for word in words), *events)
    assert done.code == 2
    assert "bucket" in done.err
    assert "ter2" not in done.err
    missing = reid_dist("run", uri, *events)
    assert missing.code == 2
    assert "ter2" not in missing.err
