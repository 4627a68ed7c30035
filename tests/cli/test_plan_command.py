"""`reid-dist plan`: for a cluster, for a re-ranking, and against what runs then took; `reid-dist schema`."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate
from reid_dist.core.formatting import rough_duration
from reid_dist.engine.calibration import Rates, calibrate, calibrate_lists
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import _build
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import ExtraMemory, SetShape, make_plan
from reid_dist.engine.policy import Policy
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.verification.sampling import LevelBrackets
from reid_dist.errors import PlanError
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.stages.reranking.k_reciprocal import KReciprocal
from reid_dist.stages.reranking.rerankers import parse_rerank
from reid_dist.stages.stage_plan import plan_rerank

MIB = 2**20


def shape(n_rows: int, dim: int = 32) -> SetShape:
    return SetShape(n_rows, dim, 4, n_rows)


@pytest.fixture
def pipeline(stores, tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(f"query: {stores[0]}\ngallery: {stores[1]}\n")
    return path


def printed(text: str) -> dict[str, str]:
    return dict(re.match(r"(\S+)\s+(.*)", line).groups() for line in text.splitlines() if line)


def test_a_plan_has_the_workers_and_memory_of_a_cluster(reid_dist, pipeline: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("kind: local\nworkers: 3\nthreads_per_worker: 2\nmemory_limit: 6GiB\n")
    done = reid_dist("plan", pipeline, "--cluster", cluster)
    assert done.code == 0, done.err
    shown = printed(done.out)
    assert shown["cluster"].startswith("3 workers, 6 threads, 3.0 GiB a thread")
    assert shown["tasks"].endswith("on 6 threads")
    assert "about" in shown["time"]
    # Of tiny sets there is one task, and one worker that reads all.
    a_task, a_worker = (shown["memory"].split(part)[0].split(", ")[-1] for part in (" a task", " a worker"))
    assert float(a_worker.split()[0]) == pytest.approx(2 * float(a_task.split()[0]), rel=0.01)
    total, one = shown["read"].removesuffix(" a worker").split(", at most ")
    assert total == one


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("n_threads", [1, 7, 64])
@pytest.mark.parametrize("sizes", [(40, 200), (20_000, 3_000), (3_000, 400_000)])
def test_the_graph_has_the_tasks_and_the_size_of_its_plan(stores, n_threads: int, sizes: tuple[int, int]) -> None:
    query, gallery = (SetShape(n, 512, 4, min(n, 8192)) for n in sizes)
    near, far = (FeatureSet.open(store) for store in stores)
    scorer = FeatureScorer(near, far, DISTANCES.get("cosine"))
    for outputs in ((Ranks(),), (Ranks(), LevelBrackets(names=("EER",)))):
        extra = ExtraMemory(prepares=len(outputs) > 1)
        plan = make_plan(query, gallery, n_threads=n_threads, relevant_per_query=5.0, extra=extra)
        job = EvaluationJob(near, far, scorer, plan, outputs, protocol=PROTOCOLS.get("market1501"))
        graph = _build(job, None, None)
        assert len(graph.tasks) == plan.n_graph_tasks
        # What all tasks share is sent once, and weighs in a graph of few tasks alone.
        sent = len(pickle.dumps(graph.tasks)) - len(pickle.dumps(job))
        assert sent / 2 - 500 < plan.graph_bytes < 2 * sent + 500


def test_passes_of_a_plan(reid_dist, pipeline: Path) -> None:
    """Thresholds come with the ranks, those of the ROC as well; intervals of equal error rates take a pass more."""
    words = ("plan", pipeline, "--threads", 1, "--gflops", "1e-6", "--set", "metrics=[mAP,TAR@FAR=0.01,EER]")
    for given in (("roc=false", "confidence=null"), ("roc=true", "confidence=null"), ("roc=true", "confidence=0.9")):
        shown = printed(reid_dist(*words, *(word for text in given for word in ("--set", text))).out)
        has_intervals = "confidence=0.9" in given
        assert shown["passes"].startswith("2, or 3 if" if has_intervals else "1, or 2 if")
        assert int(shown["time"].split()[1]) == (14 if has_intervals else 7)
    assert "passes" not in printed(reid_dist("plan", pipeline).out)


@pytest.mark.slow
def test_given_rates_take_the_place_of_timed_ones(reid_dist, pipeline: Path) -> None:
    """40 x 200 x 24: 384,000 operations at 1 GFLOP/s are under a millisecond, at 1 kFLOP/s seven minutes."""
    slow = printed(reid_dist("plan", pipeline, "--threads", 1, "--gflops", "1e-6").out)
    assert slow["time"] == f"about {1.1 * 2 * 24 * 40 * 200 / 1e3 / 60:.0f} min on 1 thread of 1e-06 GFLOP/s"
    fast = printed(reid_dist("plan", pipeline, "--threads", 1, "--gflops", "1").out)
    assert fast["time"] == "about 2 s on 1 thread of 1 GFLOP/s"
    starved = printed(reid_dist("plan", pipeline, "--threads", 1, "--gflops", "1", "--read-rate", "1e-7").out)
    assert starved["time"].startswith("about ")
    assert " min on " in starved["time"]
    assert starved["time"].endswith("1e-07 GB/s from storage")
    assert reid_dist("plan", pipeline, "--gflops", "0").code == 2


def test_products_of_a_plan(reid_dist, pipeline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that are forced; what the extra would bring, for large jobs alone; and room for its integers."""
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("kind: threads\nscreen: float32\n")
    assert printed(reid_dist("plan", pipeline, "--cluster", cluster).out)["products"] == "float32, as is forced"
    with monkeypatch.context() as patch:
        # As where torch and a driver are installed; nothing of torch is imported.
        patch.setattr("reid_dist.engine.policy.may_have", lambda where: True)
        cluster.write_text("kind: threads\ndevice: cuda\n")
        there = printed(reid_dist("plan", pipeline, "--cluster", cluster).out)
        cluster.write_text(
            "kind: slurm\njobs: 5\ncores: 4\nprocesses: 2\ngpus: 2\nmemory: 8GiB\nwalltime: 01:00:00\ndevice: cuda\n"
        )
        jobs = printed(reid_dist("plan", pipeline, "--cluster", cluster).out)
    for shown, number in ((there, "1 GPU"), (jobs, "10 GPUs")):
        assert shown["products"].startswith("float32 and float64 on a GPU")
        assert re.match(rf"at most \d\S* GiB of memory, .* on {number} in products \(", shown["gpu"])
    monkeypatch.setattr(Policy, "may_use_integers", False)
    assert printed(reid_dist("plan", pipeline).out)["products"] == "float32"
    without = make_plan(shape(2000), shape(20_000), n_threads=1).task_bytes
    monkeypatch.setattr("reid_dist.cli.plan_command._LARGE_FLOP", 1)
    assert "pip install 'reid-dist[int8]'" in printed(reid_dist("plan", pipeline).out)["products"]
    monkeypatch.setattr(Policy, "may_use_integers", True)
    # Each row of both sides twice and its residual, and the queries of a tile once more.
    integers = 32 * (3 * (2000 + 1536) + 1024)
    assert make_plan(shape(2000), shape(20_000), n_threads=1).task_bytes == without + integers


def test_time_with_products_of_integers(reid_dist, pipeline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that they save at the most is shown, for the machine that was timed."""
    monkeypatch.delenv("REID_DIST_SCREEN", raising=False)
    monkeypatch.setattr("reid_dist.engine.calibration.calibrate", lambda *_: Rates(1.0, 1.0, 0.0))
    saved = "reid_dist.engine.calibration.seconds_saved"
    monkeypatch.setattr(saved, lambda _, policy: 0.0 if policy.forced == "float32" else 0.75)
    words = ("plan", pipeline, "--threads", 1)
    whole = rough_duration(1.1 * 40 * 200 + 2.0)
    shown = printed(reid_dist(*words).out)["time"]
    assert shown.startswith(f"{whole} on ")
    assert shown.endswith(f"; {rough_duration(0.25 * 1.1 * 40 * 200 + 2.0)} where int8 decides nearly all pairs")
    assert "int8" not in printed(reid_dist(*words, "--gflops", "1").out)["time"]
    monkeypatch.setenv("REID_DIST_SCREEN", "float32")
    assert "int8" not in printed(reid_dist(*words).out)["time"]


def planned_seconds(shown: dict[str, str]) -> float:
    value, unit = re.match(r"about ([0-9.]+) (s|min|h) on ", shown["time"]).groups()
    return float(value) * {"s": 1, "min": 60, "h": 3600}[unit]


@pytest.mark.slow
def test_lists_of_the_nearest_take_their_time(reid_dist, pipeline: Path) -> None:
    words = ("plan", pipeline, "--threads", 1, "--gflops", "1e-6")
    without, short, long = (
        planned_seconds(printed(reid_dist(*words, *more).out))
        for more in ((), ("--set", "topk=5"), ("--set", "topk=150"))
    )
    assert without < short < long


def test_a_cluster_that_cannot_be_planned_for_is_refused(reid_dist, pipeline: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    cluster.write_text("kind: local\nmemory_limit: plenty\n")
    for words, message in (
        (("--cluster", cluster), "memory_limit 'plenty'"),
        (("--cluster", cluster, "--threads", 2), "one or the other"),
        (("--cluster", tmp_path / "none.yaml"), "no cluster file"),
    ):
        reid_dist("plan", pipeline, *words).assert_refused(message)


def test_a_plan_of_a_reranking_names_its_stages_and_workspace(reid_dist, pipeline: Path) -> None:
    done = reid_dist("plan", pipeline, "--set", "rerank=k_reciprocal(k1=5)", "--threads", 2)
    assert done.code == 0, done.err
    shown = printed(done.out.split("re-ranking\n")[1])
    assert set(shown) == {"items", "tasks", "memory", "workspace", "rows", "read", "arithmetic", "time"}
    assert "lists of 6" in shown["items"]
    reid_dist("plan", pipeline, "--set", "rerank=k_reciprocal(k1=0)").assert_refused("k1")


@pytest.mark.slow
def test_a_plan_of_heads_and_of_new_features(reid_dist, pipeline: Path) -> None:
    """The nearest rows of each query are a graph each; rows of means have twice the features and two more."""
    shown = printed(
        reid_dist("plan", pipeline, "--set", "rerank=top(gnn(k1=4,k2=2),m=50)").out.split("re-ranking\n")[1]
    )
    assert shown["items"] == "40 queries, each in a graph of 51, lists of 4"
    assert shown["rows"] == "heads: about 50 entries, at most 50"
    assert "for rows of the heads" in shown["tasks"]
    more = printed(
        reid_dist("plan", pipeline, "--set", "rerank=top(gnn(k1=4,k2=2),m=9999)").out.split("re-ranking\n")[1]
    )
    assert more["items"] == "40 queries, each in a graph of 201, lists of 4"
    warned = printed(reid_dist("plan", pipeline, "--set", "rerank=top(gnn,m=30)").out.split("re-ranking\n")[1])
    assert warned["warning"].startswith("lists of 26 hold most of the 31 items")
    plain, means = (
        float(
            printed(reid_dist("plan", pipeline, "--set", f"rerank={spec}").out.split("\nbefore")[0])[
                "arithmetic"
            ].split()[0]
        )
        for spec in ("ecn", "ecn(method=origdist)")
    )
    assert means == pytest.approx(plain * (2 * 24 + 2) / 24, rel=0.01)


def test_the_cost_of_heads_is_linear_in_the_gallery() -> None:
    spec, limits = parse_rerank("top(gnn,m=1000)"), {"n_threads": 2, "memory_per_thread": 2 * 2**30}
    small, large = (plan_rerank(shape(1000), shape(n), spec, **limits) for n in (10**6, 10**8))
    assert large.cost.flop <= 101 * small.cost.flop
    assert large.cost.task_bytes == small.cost.task_bytes
    assert small.cost.kept - small.lists.kept == 1000 * (12 * 1000 + 8)


@pytest.mark.slow
def test_a_plan_of_propagation_shows_the_rows_of_each_round(reid_dist, pipeline: Path) -> None:
    shown = printed(reid_dist("plan", pipeline, "--set", "rerank=gnn(k1=4,k2=2)").out.split("re-ranking\n")[1])
    assert [text.split(":")[0] for text in shown["rows"].split("; ")] == [
        f"{when} round {number}" for number in (1, 2) for when in ("before", "after")
    ]
    assert "at most 8;" in shown["rows"]
    assert "warning" not in shown


def test_a_plan_of_expansions_names_each_step(reid_dist, pipeline: Path) -> None:
    """Stages are printed in reverse order of execution."""
    words = ("--set", "expand=dba(k=3)+aqe(k=2)", "--set", "rerank=k_reciprocal(k1=5)", "--threads", 2)
    done = reid_dist("plan", pipeline, *words)
    assert done.code == 0, done.err
    headings = [line for line in done.out.splitlines() if line.startswith("before that")]
    assert headings == [
        "before that, re-ranking",
        "before that, expansion, step 2 of 2: aqe(k=2,include_self=false)",
        "before that, expansion, step 1 of 2: dba(k=3,alpha=0)",
    ]
    shown = printed(done.out.split("dba(k=3,alpha=0)\n")[1])
    assert set(shown) == {"items", "tasks", "memory", "workspace", "arithmetic", "time"}
    assert "lists of 4" in shown["items"]
    assert "each pair once" in shown["arithmetic"]
    reid_dist("plan", pipeline, "--set", "expand=aqe(k=-1)").assert_refused("k of aqe")


def test_a_plan_of_a_sweep_is_for_its_longest_lists(reid_dist, pipeline: Path) -> None:
    words = ("--set", "expand=dba(k=2)+aqe", "--set", "sweep.k=0:7", "--threads", 2)
    done = reid_dist("plan", pipeline, *words)
    assert done.code == 0, done.err
    assert printed(done.out)["sweep"].startswith("8 points")
    assert "expansion, step 2 of 2: aqe(k=7,include_self=false)" in done.out
    reid_dist("plan", pipeline, "--set", "sweep.k=3").assert_refused("give either an expansion")


def test_a_plan_warns_of_lists_that_hold_most_items() -> None:
    limits = {"n_threads": 2, "memory_per_thread": 2**30}
    for spec, longest in (("k_reciprocal(k1={})", 54), ("gnn(k1={})", 55), ("ecn(k={},t=1,q=1)", 55)):
        for k, warned in ((longest, 0), (longest + 1, 1)):
            plan = plan_rerank(shape(10, 8), shape(100, 8), parse_rerank(spec.format(k)), **limits)
            assert len(plan.warnings) == warned


def test_a_reranking_that_cannot_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="more memory per thread"):
        plan_rerank(shape(10, 2048), shape(10**6, 2048), KReciprocal(), n_threads=2, memory_per_thread=MIB)


def test_arithmetic_of_a_reranking() -> None:
    plan = plan_rerank(shape(1000), shape(9000), KReciprocal(), n_threads=2, memory_per_thread=2**30)
    search = plan.search
    assert search.n_blocks * search.block_rows >= 10_000 > (search.n_blocks - 1) * search.block_rows
    assert plan.n_tasks == search.n_blocks * (search.n_blocks + 1) // 2
    # Two per pair and feature, each pair once, the diagonal included.
    assert plan.cost.flop == 2 * 32 * 10_000 * 10_001 // 2
    assert plan.lists.kept == 10_000 * (21 * 12 + 8)
    many = plan_rerank(shape(1000), shape(90_000), KReciprocal(), n_threads=32, memory_per_thread=2**30)
    assert many.n_tasks >= 2 * 32


def test_queries_that_are_put_in_one_by_one_are_no_part_of_the_graph() -> None:
    sizes = (shape(1000), shape(9000))
    alone = plan_rerank(*sizes, KReciprocal(mode="inductive"), n_threads=2, memory_per_thread=2**30)
    assert alone.search.n_items == 9000
    # The gallery among itself, and every query against it.
    assert alone.cost.flop == 32 * 9000 * 9001 + 2 * 32 * 1000 * 9000
    assert alone.lists.kept == 10_000 * (21 * 12 + 8)


@pytest.mark.parametrize("noise", [0.5, 3.0])
@pytest.mark.slow
def test_the_workspace_is_as_large_as_planned(tmp_path: Path, noise: float) -> None:
    rng = np.random.default_rng(0)
    pids = rng.integers(0, 100, 2300)
    centres = rng.standard_normal((100, 32))
    features = (centres[pids] + noise * rng.standard_normal((2300, 32))).astype(np.float32)
    query = FeatureSet.from_arrays(features[:300], pids[:300])
    gallery = FeatureSet.from_arrays(features[300:], pids[300:])
    evaluate(query, gallery, protocol="no_cameras", rerank="k_reciprocal", workspace=tmp_path, confidence=None)
    held = {
        kind: sum(file.stat().st_size for file in tmp_path.glob(f"{kind}-*/*.npz"))
        for kind in ("neighbours", "weights", "means")
    }
    plan = plan_rerank(shape(300), shape(2000), KReciprocal(), n_threads=2, memory_per_thread=2**30)
    # Files have headers of some hundred bytes an array.
    assert held["neighbours"] == pytest.approx(plan.lists.kept, rel=0.05)
    row_bytes = plan.cost.kept - plan.lists.kept
    assert 0.2 * row_bytes < held["weights"] + held["means"] <= row_bytes
    assert sum(held.values()) <= plan.cost.workspace_bytes


def test_rates_are_those_of_a_machine() -> None:
    rates = calibrate(64, DISTANCES.get("cosine"), 21)
    # A pair of 64 features takes between a tenth of a nanosecond and some microseconds anywhere.
    assert 1e-10 < rates.product < 1e-5
    assert rates.product <= rates.both_ways < 1e-4
    assert 0 <= rates.settling < 1e-2


def test_rates_of_lists_are_those_of_a_machine() -> None:
    distance = DISTANCES.get("cosine")
    short, long = (calibrate_lists(64, distance, k, 2000, 1e-12) for k in (1, 500))
    for rates in (short, long):
        assert 1e-7 < rates.keeping < 1.0
        assert 1e-10 < rates.merging < 1e-3
    assert long.keeping > short.keeping
    # A product that takes longer than all leaves nothing.
    assert calibrate_lists(64, distance, 1, 100, 1.0).keeping == 0


@pytest.mark.parametrize("kind", ["pipeline", "cluster"])
def test_schemas_refuse_unknown_keys_and_know_all_others(reid_dist, kind: str) -> None:
    done = reid_dist("schema", kind)
    assert done.code == 0
    schema: dict[str, Any] = json.loads(done.out)
    if kind == "pipeline":
        assert schema["additionalProperties"] is False
        assert set(schema["properties"]) == set(PipelineJob.model_fields)
        assert set(schema["required"]) == {"query", "gallery"}
    else:
        kinds = {each["properties"]["kind"]["const"]: each for each in schema["$defs"].values()}
        assert {"threads", "local", "existing"} <= set(kinds)
        assert all(each["additionalProperties"] is False for each in kinds.values())


@pytest.mark.slow
def test_a_plan_of_splits_is_that_of_the_largest_times_their_number(reid_dist, stores, pipeline: Path) -> None:
    sides = [FeatureSet.open(path) for path in stores]
    sizes = np.unique(sides[1].pids[sides[1].pids != -1], return_counts=True)[1]
    rates = ("--gflops", 1e-6, "--threads", 2)
    for given, n_splits, n_rows in (
        ("splits={repeats: 3, per_identity: 2}", 3, int(np.minimum(sizes, 2).sum())),
        ("splits={rows: ROWS}", 2, 9),
    ):
        rows = pipeline.parent / "rows.json"
        rows.write_text(json.dumps([[*range(4)], [*range(9)]]))
        shown = printed(reid_dist("plan", pipeline, *rates, "--set", given.replace("ROWS", str(rows))).out)
        assert shown["splits"] == f"{n_splits}, one after the other, each at most as below"
        assert shown["gallery"].startswith(f"{n_rows} x ")
        assert shown["query"].startswith(f"{sides[0].n_rows} x ")
        assert " for all splits on 2 threads" in shown["time"]
    done = reid_dist("plan", pipeline, *rates, "--set", "benchmark=llcm", "--set", "rerank=k_reciprocal(k1=4,k2=2)")
    assert printed(done.out.split("\n\n")[0])["splits"].startswith("10, one")
    assert "before that, in every split, re-ranking" in done.out
