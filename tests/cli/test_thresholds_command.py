"""``reid-dist thresholds``: a finished run read again, its files and the section of its page, refusals."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from support.small_stores import save_stores

from reid_dist import FeatureSet, OperatingPoints, compose_protocol, evaluate, operating_points
from reid_dist.reports import Report

COMPOSED = """
query: {query}
gallery: {gallery}
protocol: {{name: own, base: market1501, junk: [[pid, camid], [camid]]}}
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return save_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture
def run(stores, tmp_path) -> Path:
    """A finished run with options of its own."""
    report = evaluate(*map(str, stores), expand="aqe(k=2)", confidence=0.8, seed=3)
    return report.save(tmp_path / "run")


def test_points_beside_the_run(reid_dist, stores, run) -> None:
    done = reid_dist("thresholds", run, "--far", "0.01", "--threshold", "0.5", "--prior", "0.123", "--output", run)
    assert done.code == 0, done.err
    assert max(len(line) for line in done.out.splitlines() if not line.startswith("written")) <= 80
    # No value is cut off to fit.
    assert "…" not in done.out
    found = OperatingPoints.load(run)
    options = {"expand": "aqe(k=2)", "confidence": 0.8, "seed": 3}
    expected = operating_points(*map(str, stores), far=["0.01"], thresholds=[0.5], prior=0.123, **options)
    assert found.result_digest == expected.result_digest
    assert found.confidence == expected.confidence
    assert found.spec == expected.spec
    assert "T=0.5" in done.out
    report = Report.load(run)
    assert found.evaluated == report.result_digest
    for page in ("report.html", "thresholds.html"):
        assert 'id="operating-points"' in (run / page).read_text()
    whole = (run / "thresholds.json").read_text()
    for damaged in (whole.replace("T=0.5", "T=0.6"), whole[:99]):
        (run / "thresholds.json").write_text(damaged)
        reid_dist("report", run).assert_refused("report of operating points in", "delete thresholds.json")
    older = {**json.loads(whole), "schema": 1}
    (run / "thresholds.json").write_text(json.dumps(older))
    reid_dist("report", run).assert_refused("has schema 1", "delete thresholds.json", "reid-dist thresholds")
    (run / "thresholds.json").write_text(whole)
    # Written again by `report`, with the section; a page of another run's points has none.
    (run / "report.html").unlink()
    assert reid_dist("report", run).code == 0
    assert 'id="operating-points"' in (run / "report.html").read_text()
    evaluate(*map(str, stores), distance="euclidean").save(run, overwrite=True)
    assert Report.load(run).operating_points is None


@pytest.mark.slow
def test_points_elsewhere(reid_dist, run, tmp_path, threads) -> None:
    before = (run / "report.html").read_bytes()
    done = reid_dist("thresholds", run, "--json")
    document = json.loads(done.out)
    assert document["table"]["point"]
    assert document["evaluated"] == Report.load(run).result_digest
    assert not (run / "thresholds.json").exists(), "without --output nothing is written"
    done = reid_dist("thresholds", run, "--output", tmp_path / "points", "--cluster", threads)
    assert done.code == 0
    assert (run / "report.html").read_bytes() == before
    assert OperatingPoints.load(tmp_path / "points").result_digest == document["result_digest"]
    again = reid_dist("thresholds", run, "--output", tmp_path / "points")
    again.assert_refused("is not empty", "RUN itself")


def test_parameters_of_many_digits(reid_dist, stores, tmp_path, threads) -> None:
    """The expansion of a run is made again with the very parameters; a run with others is another one."""
    expand = "alpha_qe(k=3,alpha=1.2345674)"
    evaluated = ("evaluate", *stores, "--output", tmp_path / "run", "--cluster", threads)
    assert reid_dist(*evaluated, "--expand", expand).code == 0
    done = reid_dist("thresholds", tmp_path / "run", "--output", tmp_path / "points", "--cluster", threads)
    assert done.code == 0, done.err
    expected = operating_points(*map(str, stores), expand=expand)
    assert OperatingPoints.load(tmp_path / "points").result_digest == expected.result_digest
    assert reid_dist(*evaluated, "--expand", expand, "--resume").code == 0
    other = reid_dist(*evaluated, "--expand", "alpha_qe(k=3,alpha=1.2345671)", "--resume")
    other.assert_refused("holds the report of another job (different expand)")


def test_options_of_a_run_that_points_do_not_depend_on(reid_dist, stores, tmp_path, threads) -> None:
    """Operating points of a run with all of them are those of a run without any; groups alone cannot be had."""
    evaluated = ("evaluate", *stores, "--cluster", threads, "--rerank", "gnn(k1=8,k2=4)", "--confidence", 0.8)
    more = ("--ties", "--roc", "--topk", 4, "--breakdown", "camera", "--max-rank", 9, "--collapse", "CMC:camid")
    more += ("--metric", "mAP,CMC@1", "--against-plain")
    digests = set()
    for name, words in (("plain", ()), ("more", more)):
        assert reid_dist(*evaluated, *words, "--output", tmp_path / name).code == 0
        done = reid_dist("thresholds", tmp_path / name, "--json")
        assert done.code == 0, done.err
        digests.add(json.loads(done.out)["result_digest"])
    assert len(digests) == 1
    groups = ("evaluate", *stores, "--cluster", threads, "--collapse", "camid", "--output", tmp_path / "groups")
    assert reid_dist(*groups).code == 0
    reid_dist("thresholds", tmp_path / "groups").assert_refused(
        "the run ranks groups of items by camid", "evaluate without collapse"
    )


def test_a_run_whose_stores_changed(reid_dist, stores, tmp_path) -> None:
    query = FeatureSet.open(str(stores[0]))
    query.save(tmp_path / "q.zarr")
    evaluate(str(tmp_path / "q.zarr"), str(stores[1])).save(tmp_path / "run")
    features = np.array(query.read(0, query.n_rows))
    features[0] += 1
    FeatureSet.from_arrays(features, query.pids, query.camids).save(tmp_path / "q.zarr", overwrite=True)
    reid_dist("thresholds", tmp_path / "run").assert_refused("query", "has changed since the run", "evaluate again")
    reid_dist("thresholds", tmp_path / "none").assert_refused("no report in")
    reid_dist("thresholds", tmp_path / "run", "--prior", "2").assert_refused("between 0 and 1")


def test_points_of_a_composed_protocol(reid_dist, stores, tmp_path, threads) -> None:
    """The report holds its parts; a report of an earlier version does not."""
    pipeline = tmp_path / "own.yaml"
    pipeline.write_text(COMPOSED.format(query=stores[0], gallery=stores[1]))
    assert reid_dist("run", pipeline, "--output", tmp_path / "run", "--cluster", threads).code == 0
    done = reid_dist("thresholds", tmp_path / "run", "--json")
    assert done.code == 0, done.err
    own = compose_protocol("own", base="market1501", junk=[["pid", "camid"], ["camid"]])
    expected = operating_points(*map(str, stores), protocol=own)
    assert json.loads(done.out)["result_digest"] == expected.result_digest
    assert expected.result_digest != operating_points(*map(str, stores)).result_digest
    report = Report.load(tmp_path / "run")
    dataclasses.replace(report, spec={}).save(tmp_path / "older")
    reid_dist("thresholds", tmp_path / "older").assert_refused("of an earlier version", "evaluate again")


def test_a_file_with_both_sides_is_read_again(reid_dist, stores, tmp_path) -> None:
    sides = dict(zip(("query", "gallery"), map(FeatureSet.open, stores), strict=True))
    held = {
        f"{role}_{name}": values
        for role, side in sides.items()
        for name, values in (("features", side.read(0, side.n_rows)), ("pids", side.pids), ("camids", side.camids))
    }
    np.savez(tmp_path / "both.npz", **held)
    evaluate(tmp_path / "both.npz", tmp_path / "both.npz").save(tmp_path / "run")
    done = reid_dist("thresholds", tmp_path / "run", "--far", "0.01", "--json")
    assert done.code == 0, done.err
    expected = operating_points(*map(str, stores), far=["0.01"])
    assert json.loads(done.out)["table"] == json.loads(expected.to_json())["table"]
    held["query_features"][0] += 1
    np.savez(tmp_path / "both.npz", **held)
    reid_dist("thresholds", tmp_path / "run").assert_refused("query", "has changed since the run")


def test_arrays_in_memory_are_not_read_again(reid_dist, stores, tmp_path) -> None:
    query = FeatureSet.open(stores[0])
    held = FeatureSet.from_arrays(query.read(0, query.n_rows), query.pids, query.camids)
    evaluate(held, str(stores[1])).save(tmp_path / "run")
    reid_dist("thresholds", tmp_path / "run").assert_refused(
        "the query of the run was in memory", "reid_dist.operating_points", "FeatureSet.save"
    )


@pytest.mark.slow
def test_re_ranked_and_benchmark_runs(reid_dist, stores, tmp_path) -> None:
    rerank = "top(k_reciprocal(k1=5,k2=2,variant=paper),m=20)"
    for name, options in (
        ("paper", {"rerank": "k_reciprocal(k1=5,k2=2,variant=paper)"}),
        ("benchmark", {"benchmark": "market1501"}),
    ):
        report = evaluate(*map(str, stores), **options)
        report.save(tmp_path / name)
        done = reid_dist("thresholds", tmp_path / name, "--json")
        assert done.code == 0, done.err
        counts = json.loads(done.out)["counts"]
        assert counts["n_genuine"] == report.counts["n_relevant"]
    evaluate(*map(str, stores), rerank=rerank).save(tmp_path / "top")
    reid_dist("thresholds", tmp_path / "top").assert_refused("one threshold")


def test_fused_models_come_from_the_pipeline(reid_dist, stores, tmp_path, threads) -> None:
    pipeline = tmp_path / "fused.yaml"
    pipeline.write_text(f"query: {stores[0]}\ngallery: {stores[1]}\nfuse: ['{stores[0]},{stores[1]}:0.4']\n")
    assert reid_dist("run", pipeline, "--output", tmp_path / "run", "--cluster", threads).code == 0
    reid_dist("thresholds", tmp_path / "run").assert_refused("fused models", "--pipeline")
    assert reid_dist("thresholds", tmp_path / "run", "--pipeline", pipeline).code == 0
