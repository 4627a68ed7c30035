"""Benchmarks and listed splits on the command line and in pipelines, and what contradicts them there."""

from __future__ import annotations

import json
from pathlib import Path

from reid_dist import evaluate, evaluate_splits
from reid_dist.evaluation.splits import SplitReport
from reid_dist.nightly.suite import read_suite

LISTED = [{"gallery": [*range(40)]}, {"gallery": [*range(20, 60)], "query": [*range(10)]}]


def test_the_command_and_a_pipeline_take_a_list(reid_dist, stores, threads, tmp_path: Path) -> None:
    sides, path, other = stores, tmp_path / "splits.json", tmp_path / "other.json"
    path.write_text(json.dumps(LISTED))
    other.write_text(json.dumps(LISTED[:1]))
    expected = evaluate_splits(*sides, rows=LISTED, metrics=["mAP"])
    words = ("splits", *sides, "--rows", path, "--metric", "mAP", "--cluster", threads, "--output", tmp_path / "out")
    done = reid_dist(*words)
    assert done.code == 0, done.err
    assert f"2,rowsof{path}" in "".join(done.out.split())
    assert SplitReport.load(tmp_path / "out").result_digest == expected.result_digest
    again = reid_dist(*words, "--resume", "--json")
    assert json.loads(again.out)["result_digest"] == expected.result_digest
    reid_dist(*words, "--resume", "--rows", other).assert_refused("holds other splits (different draw)")
    (tmp_path / "job.yaml").write_text(
        f"query: {sides[0]}\ngallery: {sides[1]}\nmetrics: [mAP]\nsplits:\n  rows: {path}\n"
    )
    ran = reid_dist("run", tmp_path / "job.yaml", "--cluster", threads, "--json")
    assert json.loads(ran.out)["result_digest"] == expected.result_digest


def test_benchmarks_by_name(reid_dist, stores, threads, tmp_path: Path) -> None:
    sides = ("--cluster", threads)
    words = ("evaluate", *stores, *sides, "--benchmark", "market1501", "--output", tmp_path / "out")
    done = reid_dist(*words)
    assert done.code == 0, done.err
    expected = evaluate(*stores, benchmark="market1501")
    assert "market1501, as published by KaiyangZhou" in " ".join(done.out.split())
    again = reid_dist(*words, "--resume", "--json")
    assert json.loads(again.out)["result_digest"] == expected.result_digest
    assert json.loads(again.out)["benchmark"] == expected.benchmark
    reid_dist(*words[:-4], "--benchmark", "dukemtmc", *words[-2:], "--resume").assert_refused(
        "holds the report of another job (different benchmark)"
    )
    drawn = reid_dist("evaluate", *stores, *sides, "--benchmark", "llcm")
    assert drawn.code == 0, drawn.err
    splits = evaluate_splits(*stores, benchmark="llcm")
    assert splits.result_digest[:16] in drawn.out
    assert "llcm, as published by ZYK100/LLCM" in " ".join(drawn.out.split())
    assert "10, 1 of each identity and camera, seed 0" in drawn.out
    direct = reid_dist("splits", *stores, *sides, "--benchmark", "llcm", "--json")
    assert json.loads(direct.out)["result_digest"] == splits.result_digest


def test_what_contradicts_a_benchmark_is_refused_in_one_line(reid_dist, stores, threads, tmp_path: Path) -> None:
    sides = (*stores, "--cluster", threads)
    for words, message in (
        # The default of an option is a contradiction as well, if it is given.
        (("evaluate", *sides, "--benchmark", "llcm", "--protocol", "market1501"), "prescribes protocol 'llcm', and"),
        (("evaluate", *sides, "--benchmark", "market1501", "--collapse", "pid"), "prescribes collapse None"),
        (("evaluate", *sides, "--benchmark", "llcm", "--topk", 3, "--output", tmp_path / "x"), "topk: these are of"),
        (("evaluate", *sides, "--benchmark", "lcm"), "unknown benchmark 'lcm'; did you mean 'llcm'"),
        (("evaluate", *sides, "--benchmark", "ltcc_same"), "--layout ltcc --output DIR` reads the labels"),
        (("splits", *sides, "--benchmark", "llcm", "--per-identity", 2), "prescribes per_identity 1, and 2 was given"),
        (("splits", *sides, "--benchmark", "market1501"), "evaluates the whole gallery once"),
        (("sweep", *sides, "--expand", "aqe", "--k", "1", "--benchmark", "llcm"), "No such option"),
    ):
        reid_dist(*words).assert_refused(message)
    (tmp_path / "plan.yaml").write_text(
        f"query: {stores[0]}\ngallery: {stores[1]}\nbenchmark: market1501\nprotocol: {{name: own, base: market1501}}\n"
    )
    for command in ("plan", "run"):
        reid_dist(command, tmp_path / "plan.yaml").assert_refused(
            "benchmark: benchmark 'market1501' prescribes protocol"
        )
    suite = "suite: s\nmodels: {a: {}}\ndatasets: {d: {query: q, gallery: g}}\njobs: {j: {benchmark: llcm}}\n"
    (tmp_path / "suite.yaml").write_text(suite.replace("llcm", "veri776_matlab"))
    (planned,) = read_suite(tmp_path / "suite.yaml").planned()
    assert planned.pipeline.options()["protocol"].name == "market1501_matlab"
    (tmp_path / "suite.yaml").write_text(suite.replace("llcm", "market1501, collapse: pid"))
    reid_dist("nightly", tmp_path / "suite.yaml", "--history", tmp_path / "h.sqlite").assert_refused(
        "jobs.j.benchmark: on data set d: benchmark 'market1501' prescribes collapse None"
    )
