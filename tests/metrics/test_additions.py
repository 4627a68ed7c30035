"""A metric that is defined in one place is on the console, on pages, in lists, sweeps, splits and bounds."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from support.strategies import crowded_sets

from reid_dist import FeatureSet, evaluate, evaluate_splits, sweep_parameters
from reid_dist.cli.list_command import command as list_command
from reid_dist.core.model import RankedQueries
from reid_dist.metrics.metric import METRICS, rank_metric
from reid_dist.nightly.delivery import benchmark_accuracy, benchmark_cost
from reid_dist.nightly.history.history_values import Entry, Estimate, Run
from reid_dist.reports.console import print_report

SUMMARY = "[r_1 > k]: no match among the first k"


@pytest.fixture(autouse=True)
def _miss_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error rate: the share of queries without a match among the first k."""
    monkeypatch.setattr(METRICS, "_made", dict(METRICS._made))

    @rank_metric("miss@k", "miss@k", SUMMARY, "this test", lower_is_better=True)
    def _misses(ranked: RankedQueries, k: int) -> np.ndarray:
        return (ranked.first_rank > k).astype(np.float64)


@pytest.fixture(scope="module")
def sets() -> tuple[FeatureSet, FeatureSet]:
    query, gallery = (
        FeatureSet.from_arrays(each.features, each.pids, each.camids, each.item_ids)
        for each in crowded_sets(12, 60, 6, seed=41, n_distinct=30)
    )
    return query, gallery


def test_reports_and_pages_name_and_explain_it(sets: tuple[FeatureSet, FeatureSet]) -> None:
    report = evaluate(*sets, metrics=["miss@1", "CMC@1"])
    assert report.metrics["miss@1"] == pytest.approx(1 - report.metrics["CMC@1"])
    console = io.StringIO()
    print_report(report, console)
    for text in (console.getvalue(), report.to_html().replace("&gt;", ">")):
        assert "miss@1" in text
        assert SUMMARY in " ".join(text.split())


def test_the_list_command_has_it() -> None:
    listed = CliRunner().invoke(list_command, ["metrics"], env={"COLUMNS": "200"})
    assert listed.exit_code == 0
    assert any(line.split()[:1] == ["miss@k"] and "this test" in line for line in listed.stdout.splitlines())


def test_the_best_point_of_a_sweep_has_the_lowest_error(sets: tuple[FeatureSet, FeatureSet]) -> None:
    sweep = sweep_parameters(*sets, expand="aqe", k="0:3", metrics=["miss@10"])
    rows = [{**row, "metrics": {"miss@10": value}} for row, value in zip(sweep.rows, (0.5, 0.2, 0.7, 0.2), strict=True)]
    best = replace(sweep, rows=rows).best["miss@10"]
    assert (best["row"], best["value"]) == (1, 0.2)
    assert "miss@10" in sweep.to_html()


def test_splits_have_it(sets: tuple[FeatureSet, FeatureSet]) -> None:
    splits = evaluate_splits(*sets, repeats=2, metrics=["miss@2"], protocol="no_cameras")
    assert splits.per_split["miss@2"].shape == (2,)
    assert json.loads(splits.to_json())["definitions"] == {"miss@2": SUMMARY}
    assert "miss@2" in splits.to_html()


def test_a_dashboard_has_it_among_the_smaller_the_better() -> None:
    metrics = {"miss@1": Estimate(0.25), "mAP": Estimate(0.5)}
    entry = Entry(model="model", dataset="data", job="job", metrics=metrics)
    night = Run(number=1, suite="suite", suite_digest="", started="2026-01-05T02:00:00Z", entries=(entry,))
    assert not [each for each in benchmark_accuracy(night) if "miss@1" in each["name"]]
    (figure,) = [each for each in benchmark_cost(night) if "miss@1" in each["name"]]
    assert figure["value"] == 25
