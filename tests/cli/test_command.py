"""The command as users and schedulers call it: output, exit codes, one clear line for a mistake."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from help_texts import examples

from reid_dist import FeatureSet, Report, evaluate
from reid_dist._version import __version__
from reid_dist.engine import graph
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import RunFailedError
from reid_dist.evaluation.benchmarks import BENCHMARKS
from reid_dist.metrics.metric import METRICS
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stages.pooling_job import POOLINGS
from reid_dist.stores import FORMATS
from reid_dist.stores.importers.name_layouts import LAYOUTS

COMMANDS = (
    *("demo", "ingest", "check", "evaluate", "run", "plan", "compare", "pool", "splits", "sweep", "report", "list"),
    *("average", "compile", "pairs", "schema", "table"),
)


def test_help_is_quick_and_lists_every_command(reid_dist) -> None:
    outcome = reid_dist("--help")
    assert outcome.code == 0
    for name in COMMANDS:
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


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_every_command_has_an_example(reid_dist, name: str) -> None:
    outcome = reid_dist(name, "--help")
    assert outcome.code == 0
    assert f"reid-dist {name}" in outcome.out.split("Example")[1]


@pytest.fixture
def workplace(stores, threads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory in which the examples of the help run: pipelines, and small sets where these expect theirs."""
    for name in ("pipelines", "cluster_configs"):
        (tmp_path / name).symlink_to(Path(__file__).parents[2] / name)
    rng = np.random.default_rng(1)
    for store, role in zip(stores, ("query", "gallery"), strict=True):
        plain = FeatureSet.open(store)
        labels = {"pids": plain.pids, "camids": plain.camids, "item_ids": np.arange(plain.n_rows)}
        clothes = {"clothes": rng.integers(0, 2, plain.n_rows)}
        features = rng.standard_normal((plain.n_rows, 8)).astype(np.float32)
        for name in ("market1501", "clothes"):
            FeatureSet.from_arrays(features, **labels, columns=clothes).save(tmp_path / "data" / name / f"{role}.zarr")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_examples_of_overrides_run(reid_dist, workplace: Path) -> None:
    """Every example with --set in the help of run and plan, and each override is in the report."""
    ran = 0
    for name in ("run", "plan"):
        for line in examples(reid_dist(name, "--help").out, name):
            words = shlex.split(line)[1:]
            overrides = dict(word.split("=", 1) for word in words if "=" in word)
            if not overrides:
                continue
            if name == "run":
                words += ["--json", *([] if "--cluster" in words else ["--cluster", "cluster_configs/threads.yaml"])]
            done = reid_dist(*words)
            assert done.code == 0, (line, done.err)
            if name == "run":
                assert_says(json.loads(done.out), overrides)
            ran += 1
    assert ran >= 4


def assert_says(report: dict[str, Any], overrides: dict[str, str]) -> None:
    """A report names what replaced the values of the pipeline."""
    for key, text in overrides.items():
        value = yaml.safe_load(text)
        if key == "max_rank":
            assert len(report["curves"]["CMC"]) == value
        elif key == "metrics":
            assert list(report["metrics"]) == value
        elif key in ("protocol", "protocol.name"):
            assert report["protocol"]["name"] == value
        elif key == "protocol.base":
            assert report["protocol"]["cmc_family"] == PROTOCOLS.get(value).cmc_family != "CMC"
        else:
            raise AssertionError(f"no test of an example that sets {key}")


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
    assert f"{100 * expected.metrics['mAP']:.2f} %" in done.out
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


def test_resume_of_what_another_job_has_begun(reid_dist, stores, threads, tmp_path: Path, monkeypatch) -> None:
    """A run that was killed leaves its parts and what it was for; the same words go on, others are refused."""
    output = tmp_path / "out"
    words = ("evaluate", *stores, "--cluster", threads, "--output", output, "--json")

    def stop_short(*_: object) -> None:
        raise RunFailedError("stopped short")

    with monkeypatch.context() as patch:
        patch.setattr(graph, "finish_task", stop_short)
        failed = reid_dist(*words)
        failed.assert_refused("goes on from there", code=3)
    reid_dist(*words, "--resume", "--distance", "euclidean").assert_refused("unfinished run of another job", "distance")
    reid_dist(*words, "--resume", "--metric", "CMC@2").assert_refused(
        "unfinished run of another job", "(metrics differ)"
    )
    reid_dist(*words, "--resume", "--ties").assert_refused(
        "repeat the command of that run with --resume, or choose another"
    )
    done = reid_dist(*words, "--resume", "--chunk-rows", 17)
    assert done.code == 0, done.err
    assert json.loads(done.out)["result_digest"] == evaluate(*map(FeatureSet.open, stores)).result_digest
    assert not (output / "unfinished.json").exists()


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


def test_run_names_wrong_names_and_types_at_once(reid_dist, tmp_path: Path) -> None:
    pipeline = tmp_path / "job.yaml"
    pipeline.write_text(
        "query: a\ngallery: b\nprotocol: markt1501\ndistance: cosin\nmetrics: [mAPP, CMC@0]\nmax_rank: true\n"
    )
    refused = reid_dist("run", pipeline)
    refused.assert_refused("5 problems", "did you mean 'market1501'", "did you mean 'cosine'", "did you mean 'mAP'")
    refused.assert_refused("metrics: ", "'CMC@0'", "max_rank: must be a whole number from 1 to 2**31 - 1, found True")
    pipeline.write_text("description: " + "[" * 5000 + "]" * 5000)
    reid_dist("run", pipeline).assert_refused("nested too deeply")


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


def test_report_writes_the_page_again(reid_dist, stores, threads, tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert reid_dist("evaluate", *stores, "--cluster", threads, "--output", output).code == 0
    before = (output / "report.json").read_bytes()
    (output / "report.html").unlink()
    assert reid_dist("report", output).code == 0
    assert (output / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert (output / "report.json").read_bytes() == before
    assert Report.load(output).metrics["mAP"] > 0


@pytest.mark.parametrize(
    ("kind", "registry"),
    [
        *(("metrics", METRICS), ("protocols", PROTOCOLS), ("distances", DISTANCES), ("poolings", POOLINGS)),
        *(("formats", FORMATS), ("layouts", LAYOUTS), ("benchmarks", BENCHMARKS)),
    ],
)
def test_list_prints_every_entry(reid_dist, kind: str, registry) -> None:
    lines = reid_dist("list", kind).out.splitlines()
    for entry in registry:
        (line,) = (line for line in lines if line.split(" ")[0] == entry.name)
        assert entry.summary in line
        assert entry.source in line
        assert len(entry.source) > 3


def test_an_unknown_command(reid_dist) -> None:
    reid_dist("evalute").assert_refused("Did you mean 'evaluate'?")


def test_damage_is_found_by_check_and_by_evaluate(reid_dist, stores, threads, tmp_path: Path) -> None:
    query, gallery = stores
    whole = reid_dist("check", query, gallery)
    assert whole.code == 0
    assert "200 x 24" in whole.out
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
