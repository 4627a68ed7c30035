"""A sweep is evaluations, point by point, of one set of neighbour lists."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from support.noted import codes, values_of
from support.passes import Count
from support.strategies import crowded_sets, scattered_sets

from reid_dist import FeatureSet, compare, evaluate, sweep_parameters
from reid_dist.errors import InputError, StoreExistsError, UnknownNameError
from reid_dist.evaluation import sweeps
from reid_dist.evaluation.evaluate import evaluate_once
from reid_dist.evaluation.sweeps import SweepReport
from reid_dist.stages.reranking.rerankers import RERANKERS

METRICS = ["mAP", "CMC@1", "mINP"]


def labelled(items):
    return FeatureSet.from_arrays(items.features, items.pids, camids=items.camids, item_ids=items.item_ids)


def sets(seed=41):
    return tuple(map(labelled, crowded_sets(24, 200, 10, seed=seed, n_distinct=90)))


def separate(query, gallery, row, metrics=METRICS, **options):
    """The evaluation of one point by itself."""
    name = {"rerank" if row["name"].split("(")[0] in RERANKERS else "expand": row["name"]}
    return evaluate(query, gallery, metrics=metrics, confidence=None, **name, **options)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_rows", [None, 33])
@pytest.mark.parametrize(
    ("expand", "axes"),
    [
        ("aqe", {"k": "0:6"}),
        ("alpha_qe", {"k": "0:6:2", "alpha": "0,1.5,3"}),
        ("dba", {"k": [0, 1, 5]}),
        ("dba(k=3)+aqe", {"k": "0:4"}),
        ("fastreid", {"k": "0:4", "alpha": (0, 2)}),
    ],
)
def test_every_point_of_an_expansion_is_its_evaluation(expand, axes, chunk_rows):
    query, gallery = sets()
    count = Count()
    report = sweep_parameters(query, gallery, expand=expand, progress=count, chunk_rows=chunk_rows, **axes)
    assert len(report.rows) == math.prod(len(values) for values in report.parameters.values())
    for row in report.rows:
        alone = separate(query, gallery, row)
        assert row["digest"] == alone.result_digest
        assert row["metrics"] == {name: alone.metrics[name] for name in METRICS}
    # One sweep for lists, however many points; and one more where a fixed step comes before.
    sweeps = (count.list_sweeps, count.neighbour_sweeps)
    expected = {"aqe": (1, 0), "alpha_qe": (1, 0), "dba": (0, 1), "dba(k=3)+aqe": (1, 1), "fastreid": (0, 1)}
    assert sweeps == expected[expand]
    assert count.rankings == len(report.rows)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("mode", ["transductive", "inductive"])
def test_every_point_of_a_re_ranking_is_its_evaluation(mode):
    query, gallery = sets()
    count = Count()
    report = sweep_parameters(
        query,
        gallery,
        rerank=f"k_reciprocal(mode={mode})",
        k1="4:8:4",
        k2="1,3",
        lambda_value="0,0.3",
        variant="zhong,zhong_d4",
        progress=count,
    )
    assert len(report.rows) == 16
    for row in report.rows:
        assert row["digest"] == separate(query, gallery, row).result_digest
    # The gallery's lists, and the queries' own where they are no part of the graph.
    assert count.neighbour_sweeps == (1 if mode == "transductive" else 2)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("rerank", "swept"),
    [
        ("gnn(k1=8)", {"k2": "2,4", "rounds": "1:2", "lambda_value": [0, 0.3]}),
        ("ecn(k=6)", {"t": "1,3", "q": "2", "variant": "sarfraz,plain_fallback"}),
        ("k_reciprocal(k1=6,k2=2,variant=paper)", {"weights": "gaussian,binary", "mode": "transductive,inductive"}),
        ("k_reciprocal(k1=6,k2=2)", {"inclusive": "true,false"}),
        ("ecn(k=6,q=2)", {"t": "1,2", "method": "rankdist,origdist"}),
    ],
)
def test_every_parameter_of_a_re_ranking_can_be_swept(rerank, swept):
    query, gallery = sets()
    report = sweep_parameters(query, gallery, rerank=rerank, **swept)
    assert set(report.parameters) == set(swept)
    for row in report.rows[:: max(1, len(report.rows) // 2)]:
        assert row["digest"] == separate(query, gallery, row).result_digest


def test_metrics_that_a_re_ranking_makes_worse_are_noted():
    """Lists of most items mix all identities; the change and its interval are those of `compare`."""
    rng = np.random.default_rng(3)
    centres = rng.normal(size=(40, 24))
    pids = np.repeat(np.arange(40), 4)
    rows = (centres[pids] + 0.6 * rng.normal(size=(160, 24))).astype(np.float32)
    query, gallery = (
        FeatureSet.from_arrays(rows[side::2], pids[side::2], np.full(80, side), np.arange(side, 160, 2))
        for side in range(2)
    )
    report = sweep_parameters(query, gallery, rerank="ecn(t=12,q=12)", k="3,120", metrics=["mAP"])
    plain = evaluate(query, gallery, metrics=["mAP"])
    found = compare(plain, evaluate(query, gallery, rerank="ecn(k=120,t=12,q=12)", metrics=["mAP"])).metrics[0]
    assert found.verdict == "worse"
    assert values_of(report, "reranking_is_worse") == {
        "metric": "mAP", "n_points": 2, "n_all": 2,
        "worst": "ecn(k=120,t=12,q=12,variant=sarfraz,method=rankdist)",
        "before": found.baseline, "after": found.candidate,
        "low": found.interval.low, "high": found.interval.high, "is_share": True,
    }  # fmt: skip
    mild = sweep_parameters(query, gallery, rerank="gnn", k1="2", k2="2", metrics=["mAP"])
    assert "reranking_is_worse" not in codes(mild)


def test_values_that_agree_in_six_digits_are_two_points(tmp_path):
    """Their expanded features differ; a sweep that goes on does not take one for the other."""
    query, gallery = sets()
    alphas = [1.2345671, 1.2345674]
    request = {"expand": "alpha_qe(k=3)", "metrics": "EER", "workspace": tmp_path}
    for n_values in (1, 2):
        report = sweep_parameters(query, gallery, alpha=alphas[:n_values], **request)
        names = [f"alpha_qe(k=3,alpha={alpha!r},include_self=false)" for alpha in alphas[:n_values]]
        assert [row["name"] for row in report.rows] == names
        assert [row[0] for row in report.summary().rows] == [repr(alpha) for alpha in alphas[:n_values]]
    stores = {FeatureSet.open(path).content_digest for path in tmp_path.glob("expanded-*.zarr")}
    assert len(stores) == 2
    for row in report.rows:
        assert row["digest"] == separate(query, gallery, row, metrics="EER").result_digest


def test_more_neighbours_than_there_are():
    """Lists hold what there is: all such points are one."""
    query, gallery = map(labelled, scattered_sets(8, 20, 6, seed=42))
    report = sweep_parameters(query, gallery, expand="aqe", k=[19, 20, 21, 400], protocol="no_cameras")
    digests = [row["digest"] for row in report.rows]
    assert digests[1] == digests[2] == digests[3] != digests[0]


def test_rows_are_in_the_order_of_the_grid_and_points_are_reported_in_that_of_the_work():
    query, gallery = sets()
    reported = []
    report = sweep_parameters(
        query,
        gallery,
        expand="aqe",
        k="1,5,3",
        on_point=lambda done, total, point, found: reported.append(
            (done, total, point.values["k"], found["metrics"]["mAP"])
        ),
    )
    assert [row["parameters"] for row in report.rows] == [{"k": 1}, {"k": 5}, {"k": 3}]
    assert [entry[:3] for entry in reported] == [(1, 3, 5), (2, 3, 3), (3, 3, 1)]
    assert reported[0][3] == report.rows[1]["metrics"]["mAP"]


def test_options_reach_every_point(tmp_path):
    query, gallery = sets()
    options = {"protocol": "no_cameras", "distance": "euclidean", "max_rank": 7, "metrics": ["P@3", "mAP"]}
    report = sweep_parameters(query, gallery, expand="fastreid", k="2:3", **options)
    assert report.metric_names == ["P@3", "mAP"]
    assert (report.protocol["name"], report.distance["name"]) == ("no_cameras", "euclidean")
    assert report.options["max_rank"] == 7
    for row in report.rows:
        assert row["digest"] == separate(query, gallery, row, **options).result_digest
    truth = [{"ok": [row, row + 30], "junk": [row + 60]} for row in range(24)]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    listed = sweep_parameters(
        query, gallery, expand="aqe", k="0:1", protocol="oxford", ground_truth=tmp_path / "truth.json"
    )
    alone = evaluate(query, gallery, protocol="oxford", ground_truth=truth, metrics=METRICS, confidence=None)
    assert listed.rows[0]["digest"] == alone.result_digest


# ------------------------------------------------------------------------------------------------- what is left over


def names_in(folder):
    return sorted({path.name.split("-")[0] for path in folder.iterdir()})


@pytest.mark.slow
def test_a_given_workspace_is_kept_and_reused(tmp_path):
    query, gallery = sets()
    first, second = Count(), Count()
    report = sweep_parameters(query, gallery, expand="aqe", k="0:5", workspace=tmp_path, progress=first)
    assert names_in(tmp_path) == ["expanded", "toplists"]
    assert len(list(tmp_path.glob("expanded-*"))) == 5
    again = sweep_parameters(query, gallery, expand="aqe", k="0:4", workspace=tmp_path, progress=second)
    assert [row["digest"] for row in again.rows] == [row["digest"] for row in report.rows[:5]]
    assert second.list_sweeps == 0
    assert "expansion" not in second.done


@pytest.mark.slow
def test_derived_stages_are_removed_point_by_point(tmp_path):
    query, gallery = sets()
    held = []

    def look(*_):
        (folder,) = tmp_path.glob("sweep-*")
        held.append([path.name.split("-")[0] for path in folder.iterdir()])

    sweep_parameters(query, gallery, expand="dba(k=2)+aqe", k="1:3", workspace=tmp_path, keep=False, on_point=look)
    # The gallery that all points share, and the lists.
    assert [sorted(names) for names in held] == [["expanded", "neighbours", "points", "toplists"]] * 3
    assert list(tmp_path.iterdir()) == []
    held.clear()
    grid = {"k1": "3,5", "k2": "1,2", "lambda_value": "0,0.3"}
    sweep_parameters(query, gallery, rerank="k_reciprocal", workspace=tmp_path, keep=False, on_point=look, **grid)
    assert [set(names) - {"neighbours", "points"} for names in held] == [
        *[{"weights"}] * 2, {"weights", "means"}, set(), *[{"weights"}] * 2, {"weights", "means"}, set(),
    ]  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_failure_before_anything_is_finished_leaves_nothing_behind(tmp_path, monkeypatch):
    query, gallery = sets()
    monkeypatch.setattr(sweeps, "evaluate_once", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        sweep_parameters(query, gallery, expand="aqe", k="1:3", workspace=tmp_path, keep=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_sweep_that_broke_goes_on_with_the_points_that_are_not_done(tmp_path, monkeypatch):
    query, gallery = sets()
    grid = {"expand": "alpha_qe", "k": "0:3", "alpha": "0,2", "workspace": tmp_path, "keep": False}
    expected = sweep_parameters(query, gallery, **{**grid, "workspace": None})
    evaluated = []

    def breaking(*args, **options):
        if len(evaluated) == 5:
            raise KeyboardInterrupt
        evaluated.append(options["expand"])
        return evaluate_once(*args, **options)

    monkeypatch.setattr(sweeps, "evaluate_once", breaking)
    with pytest.raises(KeyboardInterrupt):
        sweep_parameters(query, gallery, **grid)
    (left,) = tmp_path.iterdir()
    # Another grid, and other options, begin anew.
    monkeypatch.setattr(sweeps, "evaluate_once", evaluate_once)
    for other in ({"k": "0:1"}, {"max_rank": 9}):
        sweep_parameters(query, gallery, **{**grid, **other})
        assert list(tmp_path.iterdir()) == [left]
    more = []
    monkeypatch.setattr(sweeps, "evaluate_once", lambda *a, **o: more.append(o["expand"]) or evaluate_once(*a, **o))
    found = sweep_parameters(query, gallery, **grid)
    assert len(more) == len(expected.rows) - 5
    assert not set(more) & set(evaluated)
    assert found.result_digest == expected.result_digest
    drop = ("timing", "environment", "rows", "document_digest")
    assert {n: v for n, v in found.to_dict().items() if n not in drop} == {
        n: v for n, v in expected.to_dict().items() if n not in drop
    }
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topk": 3}, "topk is about one run"),
        ({"ties": True}, "ties is about one run"),
        ({"breakdowns": ["camera"]}, "breakdowns is about one run"),
        ({"confidence": 0.95}, "confidence is about one run"),
        ({"max_rank": 0}, "max_rank must be a whole number from 1"),
        ({"metricss": ["mAP"]}, "did you mean"),
        ({"metrics": ["mAPP"]}, "did you mean 'mAP'"),
        ({"distance": "cosin"}, "did you mean 'cosine'"),
        ({"include_self": True}, None),
    ],
)
def test_what_is_refused_before_any_work(options, words, tmp_path):
    query, gallery = sets()
    if words is None:
        query = FeatureSet.from_arrays(query.read(0, 24), query.pids, query.camids)
        words = "include_self finds queries in the gallery by item id"
    count = Count()
    with pytest.raises((InputError, UnknownNameError), match=words):
        sweep_parameters(
            query, gallery, expand="aqe", k="1:3", progress=count, workspace=tmp_path, keep=False, **options
        )
    assert count.passes == []
    assert list(tmp_path.iterdir()) == []


def test_thresholds_under_re_ranking_are_refused():
    query, gallery = sets()
    with pytest.raises(InputError, match="EER"):
        sweep_parameters(query, gallery, rerank="k_reciprocal", k1=[3, 4], k2=1, metrics=["EER"])


# ------------------------------------------------------------------------------------------------------- the report


def made(values, metric="mAP", **more):
    """A report of given values of a metric against k."""
    rows = [
        {"parameters": {"k": k}, "metrics": {metric: value}, "name": f"aqe(k={k})", "digest": "0" * 64, "seconds": 0.1}
        for k, value in enumerate(values)
    ]
    fields = {
        "kind": "expand", "method": {"name": "aqe", "fixed": {}}, "parameters": {"k": list(range(len(values)))},
        "protocol": {"name": "market1501"}, "distance": {"name": "cosine"}, "options": {}, "inputs": {},
        "counts": {"n_valid": 3, "n_query": 4, "n_gallery": 5},
    }  # fmt: skip
    return SweepReport(rows=rows, **{**fields, **more})


def test_of_equal_points_the_first_is_best_and_undefined_values_are_none(tmp_path):
    assert made([0.2, 0.5, 0.5]).best["mAP"]["row"] == 1
    assert made([math.nan, 0.1, 0.3]).best["mAP"]["row"] == 2
    assert made([0.3, math.nan, 0.1, 0.1, 0.2], "EER").best["EER"] == {"row": 2, "value": 0.1, "parameters": {"k": 2}}
    undefined = made([math.nan, math.nan])
    assert undefined.best == {}
    assert json.loads(undefined.to_json())["rows"][0]["metrics"]["mAP"] is None
    assert [cell.text for cell in undefined.tables()[0].column("mAP")] == ["-", "-"]
    undefined.save(tmp_path / "out")
    again = SweepReport.load(tmp_path / "out")
    assert again.to_dict() == undefined.to_dict()
    assert np.isnan(again.values("mAP")).all()


def test_a_report_is_made_of_rows_that_belong_together():
    with pytest.raises(InputError, match="at least one point"):
        made([])
    with pytest.raises(InputError, match="same parameters and metrics"):
        made([0.1], parameters={"alpha": [0]})


def test_the_digest_is_of_the_values():
    assert made([0.1, 0.2]).result_digest == made([0.1, 0.2], timing={"total": 9.0}).result_digest
    assert made([0.1, 0.2]).result_digest != made([0.1, np.nextafter(0.2, 1)]).result_digest


def test_the_document_is_complete(tmp_path):
    query, gallery = sets()
    report = sweep_parameters(query, gallery, expand="alpha_qe", k="0:2", alpha="0,3", max_rank=10)
    report.save(tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["sweep.html", "sweep.json"]
    document = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert document["schema"] == 1
    assert document["parameters"] == {"k": [0, 1, 2], "alpha": [0.0, 3.0]}
    assert [row["parameters"] for row in document["rows"]] == [row["parameters"] for row in report.rows]
    assert [row["metrics"] for row in document["rows"]] == [row["metrics"] for row in report.rows]
    assert [len(row["digest"]) for row in document["rows"]] == [64] * 6
    assert document["best"] == report.best
    assert document["inputs"]["gallery"]["content_digest"] == gallery.content_digest
    assert document["protocol"]["name"] == "market1501"
    assert document["distance"]["name"] == "cosine"
    assert document["method"]["name"] == "alpha_qe"
    assert "TPAMI 2019" in document["method"]["source"]
    assert document["options"]["max_rank"] == 10
    assert document["environment"]["numpy"] == np.__version__
    assert document["timing"]["total"] > 0
    assert document["result_digest"] == report.result_digest
    with pytest.raises(StoreExistsError):
        report.save(tmp_path / "out")


def test_a_grid_by_name_is_that_of_the_keywords():
    query, gallery = sets()
    expected = sweep_parameters(query, gallery, rerank="k_reciprocal(k2=2)", k1=[4, 5], lambda_value="0.3")
    found = sweep_parameters(
        query, gallery, rerank="k_reciprocal(k2=2)", grid={"k1": "4:5"}, lambda_value="0.3", metrics=None
    )
    assert found.result_digest == expected.result_digest
    assert found.spec == expected.spec
    with pytest.raises(InputError, match="k1: values are given twice, as a keyword and in grid"):
        sweep_parameters(query, gallery, rerank="k_reciprocal", k1=4, grid={"k1": 5})
    with pytest.raises(InputError, match="k3 is no parameter of k_reciprocal, which has k1, k2"):
        sweep_parameters(query, gallery, rerank="k_reciprocal", grid={"k3": 5})


def test_a_grid_takes_parameters_without_a_keyword():
    query, gallery = sets()
    found = sweep_parameters(query, gallery, expand="camera_norm", grid={"operation": ["whiten", "centre"]})
    for row in found.rows:
        report = evaluate(query, gallery, expand=f"camera_norm(operation={row['parameters']['operation']})")
        assert row["metrics"]["mAP"] == report.metrics["mAP"]
    assert len({row["digest"] for row in found.rows}) == 2
