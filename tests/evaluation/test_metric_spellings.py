"""Usual names of rank-K: they mean the hit rate CMC@K, whereas R@K is recall, with a note."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from support.noted import noted

from reid_dist import FeatureSet, Report, compare, evaluate, evaluate_lists, evaluate_splits, sweep_parameters
from reid_dist.core.findings import info
from reid_dist.errors import InputError
from reid_dist.evaluation.pipelines import read_job
from reid_dist.metrics.metric import notes_on_metrics, parse_metric, parse_metrics

SPELLINGS = ("rank-5", "rank5", "Rank-5", "RANK5", "rank 5", "rank@5", "R5", "r5", "r-5", "top-5", "top5", "Top-5")
HITS = ("hit@5", "Hit@5", "hit5", "hit-5", "top@5")
RECALL = "recall_is_a_share"


@pytest.fixture
def pair() -> tuple[FeatureSet, FeatureSet]:
    """Ten queries with two to four relevant items each: recall and hit rate differ."""
    rng = np.random.default_rng(3)
    pids = np.repeat(np.arange(5), 2)
    far = np.repeat(np.arange(5), 4)
    return (
        FeatureSet.from_arrays(rng.standard_normal((10, 6)), pids, np.zeros(10, int)),
        FeatureSet.from_arrays(rng.standard_normal((20, 6)), far, np.tile([0, 1, 2, 3], 5)),
    )


@pytest.mark.parametrize("spelling", SPELLINGS + HITS)
def test_rank_k_is_the_hit_rate(spelling: str) -> None:
    assert parse_metric(spelling).name == "CMC@5"


@pytest.mark.parametrize("text", ["R@5", "Rprec", "MRR", "P@5", "mAP@5"])
def test_other_names_keep_their_meaning(text: str) -> None:
    assert parse_metric(text).name == text


@pytest.mark.parametrize("text", ["MAP@R", "mAP@R", "map@r", "mAP_R"])
def test_map_at_r_is_cut_at_the_number_of_relevant_items(text: str) -> None:
    assert parse_metric(text).name == "mAP_R"


@pytest.mark.parametrize(
    "text",
    ["HR@5", "hr@5", "HR5", "hits@5", "hit_rate@5", "Recall@5", "recall@5", "recall_at_5", "acc@5", "accuracy@5"],
)
def test_names_of_the_hit_rate_and_of_recall_are_the_hit_rate_with_a_line(text: str, pair) -> None:
    metric = parse_metric(text)
    assert (metric.name, metric.spelled) == ("CMC@5", text)
    assert metric == parse_metric("CMC@5")
    (note,) = notes_on_metrics([metric])
    assert note == info("hit_rate_named_recall", spelled=text, metric="CMC@5", k=5)
    report = evaluate(*pair, metrics=[text, "mAP"])
    assert report.metrics == {
        name: evaluate(*pair, metrics=["CMC@5", "mAP"]).metrics[name] for name in ("CMC@5", "mAP")
    }
    assert note in report.notes
    assert report.metrics[text] == report.metrics["CMC@5"]


@pytest.mark.parametrize("text", ["Recall@K", "recall", "hr@k", "HR", "recall@", "hit rate"])
def test_names_of_the_hit_rate_without_a_rank_lead_to_it(text: str) -> None:
    with pytest.raises(InputError, match="needs a rank: Recall@10, for example, which is CMC@10") as refused:
        parse_metric(text)
    assert "R@" not in str(refused.value)


RANK = r"must be a positive integer, at most 2\*\*31 - 1, found"
FAMILIES = ("CMC", "CMC_allshots", "CMC_single_shot", "mAP_found", "P_clipped", "mAP", "P", "R")
WRONG = [
    *((text, RANK) for text in ("rank-0", "R0", "top-99999999999", "CMC@000", "P_clipped@2147483648")),
    pytest.param("R@" + "9" * 5000, RANK, id="many digits"),
    *((f"{family}@{k}", RANK) for family in FAMILIES for k in ("0", "-1", "1.5", "x")),
    *((family, f"metric '{family}' needs a rank: {family}@10") for family in FAMILIES[1:5]),
    *((f"{kind}@FAR={rate}", "must be a number from 0 to 1, found") for kind in ("TAR", "DIR")
      for rate in ("2", "-0.1", "1.0001", "nan", "inf", "x", "")),
    *((text, "takes a false accept rate: (TAR|DIR)@FAR=") for text in ("TAR@0.1", "TAR@FRA=0.1", "DIR@FAR", "TAR@FAR")),
    ("TAR", "needs a false accept rate: TAR@FAR="),
    ("BAKS", "needs a distance: BAKS@T=0.4, for example"),
    ("BAKS@3", "takes a distance: BAKS@T=0.4, for example"),
    ("BAKS@FAR=0.1", "takes a distance: BAKS@T=0.4, for example"),
    ("BAKS@T=far", "the distance must be a number from 0, found 'far'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_wrong_parameters_are_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parse_metric(text)


def test_commas_and_a_single_text() -> None:
    for given in ("mAP,CMC@1", "mAP, rank-1", ["mAP,R1"], ["mAP", "CMC@1", "rank1"]):
        assert [metric.name for metric in parse_metrics(given)] == ["mAP", "CMC@1"]


def test_values_are_found_under_every_spelling(pair: tuple[FeatureSet, FeatureSet], tmp_path: Path) -> None:
    """Under the name that was asked, as under that of the report; keys, comparisons and files have the latter alone."""
    report = evaluate(*pair, metrics=["MAP@R", "rank-1", "macro_R5"])
    names = ["mAP_R", "CMC@1", "macro_CMC@5"]
    assert list(report.metrics) == names == list(json.loads(report.to_json())["metrics"])
    assert report.metrics == {name: report.metrics[name] for name in names}
    loaded = Report.load(report.save(tmp_path / "run"))
    for each in (report, loaded, pickle.loads(pickle.dumps(report))):
        for spelled, name in (("MAP@R", "mAP_R"), ("rank-1", "CMC@1"), ("R1", "CMC@1"), ("macro_rank-5", names[2])):
            assert each.metrics[spelled] == each.metrics[name] == each.metrics.get(spelled)
            assert spelled in each.metrics
        for missing in ("mAP", "CMC@2", "R@1", "rank-", 5):
            assert missing not in each.metrics
            assert each.metrics.get(missing, 0.5) == 0.5
            with pytest.raises(KeyError, match=str(missing)):
                each.metrics[missing]
    swept = sweep_parameters(*pair, expand="aqe", k="0:1", metrics="rank-1")
    assert swept.rows[0]["metrics"]["rank-1"] == swept.values("R1")[0] == report.metrics["CMC@1"]
    assert swept.best["rank-1"] == swept.best["CMC@1"]
    drawn = evaluate_splits(*pair, repeats=2, metrics=["rank-1"], protocol="no_cameras")
    assert drawn.metrics["rank-1"] == drawn.metrics["CMC@1"] == drawn.per_split["R1"].mean()
    listed = evaluate_lists(np.tile(np.arange(3), (10, 1)), *pair, metrics=["MAP@R"])
    assert listed.bounds["MAP@R"] == listed.bounds["mAP_R"]


def test_recall_comes_with_one_note(pair: tuple[FeatureSet, FeatureSet]) -> None:
    report = evaluate(*pair, metrics=["R@2", "CMC@2"])
    assert noted(report, RECALL) == [info(RECALL, names=["R@2"], hit_rates=["CMC@2"])]
    # What the note is about: for these queries the two are different numbers.
    assert report.metrics["R@2"] < report.metrics["CMC@2"]
    swept = sweep_parameters(*pair, expand="aqe", k="0:1", metrics="R@2")
    drawn = evaluate_splits(*pair, repeats=2, metrics=["R@2"], protocol="no_cameras")
    listed = evaluate_lists(np.tile(np.arange(20), (10, 1)), *pair, metrics=["R@2"])
    for other in (swept, drawn, listed):
        assert len(noted(other, RECALL)) == 1


def test_comparisons_take_the_same_names(pair: tuple[FeatureSet, FeatureSet]) -> None:
    report = evaluate(*pair)
    found = compare(report, report, metrics=["rank-1"], n_resamples=50)
    assert [metric.name for metric in found.metrics] == ["CMC@1"]


def test_the_command(reid_dist, pair: tuple[FeatureSet, FeatureSet], tmp_path: Path) -> None:
    for name, side in zip(("q", "g"), pair, strict=True):
        side.save(tmp_path / f"{name}.zarr")
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    job = ("evaluate", tmp_path / "q.zarr", tmp_path / "g.zarr", "--cluster", tmp_path / "threads.yaml")
    done = reid_dist(*job, "--metric", "mAP,rank-1", "--metric", "R@2", "--output", tmp_path / "out")
    assert done.code == 0, done.err
    assert "CMC@1" in done.out
    assert "note R@2: recall" in " ".join(done.out.split())
    assert list(json.loads((tmp_path / "out" / "report.json").read_text())["metrics"]) == ["mAP", "CMC@1", "R@2"]
    # Another spelling of the same job finds its report.
    assert reid_dist(*job, "--metric", "mAP,R1,R@2", "--resume", "--output", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("text", "names"),
    [("mAP", ("mAP",)), ("mAP, rank-1", ("mAP", "rank-1")), ("[mAP, 'CMC@1,CMC@5']", ("mAP", "CMC@1", "CMC@5"))],
)
def test_a_pipeline_takes_a_single_text(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    (tmp_path / "job.yaml").write_text(f"query: q.zarr\ngallery: g.zarr\nmetrics: {text}\n")
    assert read_job(tmp_path / "job.yaml").metrics == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("5", "must be text, or a list of names, or None, found 5"),
        ("mAPP", "did you mean 'mAP'"),
        ("'mAP,'", "is empty"),
    ],
)
def test_wrong_metrics_of_a_pipeline(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "job.yaml").write_text(f"query: q.zarr\ngallery: g.zarr\nmetrics: {text}\n")
    with pytest.raises(InputError, match=message) as caught:
        read_job(tmp_path / "job.yaml")
    assert "tuple" not in str(caught.value)
    assert "line 3, metrics: " in str(caught.value)
