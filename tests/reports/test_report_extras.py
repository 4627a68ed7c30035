"""Intervals, bounds, breakdowns and counts of verification: what a report takes, keeps and refuses."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_report import breakdowns, confidence, verification

from reid_dist.errors import InputError
from reid_dist.reports import Report
from reid_dist.reports.breakdown_tables import checked_breakdowns
from reid_dist.reports.entry_checks import checked_confidence, checked_verification

PLAIN = {"n_query": 5, "n_invalid": 0, "k": None}


def test_an_infinite_threshold_is_not_lost(full_report: Report, tmp_path: Path) -> None:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    document = json.loads(full_report.to_json(), parse_constant=refuse)
    assert document["verification"]["thresholds"]["DIR@FAR=0.01"] is None
    loaded = Report.load(full_report.save(tmp_path / "out"))
    assert loaded.verification is not None
    assert loaded.verification["thresholds"] == {"TAR@FAR=0.001": 0.31251234, "EER": 0.4321, "DIR@FAR=0.01": math.inf}
    assert checked_verification({"thresholds": {"EER": math.nan}}) == {"thresholds": {"EER": None}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"confidence": {"level": 0.95}}, "lacks unit, n_resamples, seed, intervals"),
        ({"confidence": confidence(["mAP"]) | {"level": 95}}, "level must lie between 0 and 1, found 95"),
        ({"confidence": confidence(["mAP"]) | {"unit": "camera"}}, "identity, query, found 'camera'"),
        ({"confidence": confidence(["mAP"]) | {"n_resamples": -1}}, "n_resamples must be a count"),
        ({"confidence": confidence(["mAP"]) | {"intervals": {"mAP": [0.5, 0.4]}}}, "lower one first"),
        ({"confidence": confidence(["mAP"]) | {"intervals": {"mAP": [0.5, math.nan]}}}, "two finite numbers"),
        ({"confidence": confidence(["mAQ"])}, "'mAQ', which is none of the metrics"),
        ({"confidence": [0.4, 0.5]}, "confidence must be a mapping, found list"),
        ({"bounds": {"mINP": [0.5]}}, "'mINP' must be two finite numbers"),
        ({"bounds": {"mINP": [0.0, math.inf]}}, "'mINP' must be two finite numbers"),
        ({"verification": {"n_genuine": 1.5}}, "n_genuine must be a count, found 1.5"),
        ({"verification": {"n_genuine": True}}, "n_genuine must be a count"),
        ({"verification": {"thresholds": {"EER": "low"}}}, "threshold of 'EER' must be a number, found 'low'"),
        ({"verification": {"thresholds": [1.0]}}, "thresholds must be a mapping, found list"),
        ({"breakdowns": {"camera": {"pid": [1]}}}, "'camera' lacks camid, n_query, n_valid"),
        ({"breakdowns": {"identity": {"camid": [1]}}}, "'identity' lacks pid"),
        ({"breakdowns": {"clothes": {"clothes": [1]}}}, "'clothes' lacks value"),
        ({"breakdowns": {"camera": 3}}, "'camera' must be a mapping, found int"),
    ],
)
def test_entries_of_another_kind_are_refused(
    make_report: Callable[..., Report], changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        make_report(**PLAIN, **changes)


@pytest.mark.parametrize(
    ("name", "column", "value", "words"),
    [
        ("camera", "camid", 6, "'camid' must be a list, found int"),
        ("camera", "mAP", [0.5], "'mAP' must hold 6 values, one for each camid"),
        ("camera", "mAP", 0.5, "'mAP' must hold 6 values"),
        ("camera", "mAP", ["high"] * 6, "'mAP' must hold numbers or None, found 'high'"),
        ("camera", "n_valid", [0.5] * 6, "n_valid must be a count, found 0.5"),
        ("camera", "mean_of_groups", {"mAQ": 0.5}, "'mAQ', which is none of its metrics"),
        ("camera", "mean_of_groups", {"mAP": "high"}, "'mean_of_groups' must hold numbers or None, found 'high'"),
        ("camera", "intervals", {"mAP": [[0.1, 0.2]]}, "'mAP' must hold 6 values"),
        ("camera", "intervals", {"mAP": [[0.2, 0.1]] * 6}, "lower one first"),
        ("camera_pair", "mAP", [[0.5] * 6], "'mAP' must hold 6 x 6 values, one for each query_camid and gallery_camid"),
        ("camera_pair", "CMC@1", [[0.5] * 5] * 6, "'CMC@1' must hold 6 x 6 values"),
        ("camera_pair", "n_valid", None, "'n_valid' must hold 6 x 6 values"),
        ("gallery_size", "order", "sorted", "stored, random, found 'sorted'"),
        ("gallery_size", "n_rows", [5, 4, 3, 2, 1], "n_rows must ascend"),
        ("gallery_size", "mAP", [0.5], "'mAP' must hold 5 values, one for each n_rows"),
    ],
)
def test_a_table_of_another_shape_is_refused(name: str, column: str, value: object, words: str) -> None:
    table = breakdowns()[name]
    checked_breakdowns({name: table})
    with pytest.raises(InputError, match=words):
        checked_breakdowns({name: {**table, column: value}})


def test_an_unknown_interval_is_a_pair_of_nones() -> None:
    given_ = confidence([]) | {"intervals": {"EER": [None, None], "mAP": np.array([0.25, 0.5])}}
    checked = checked_confidence(given_, {"EER", "mAP"})
    assert checked is not None
    assert checked["intervals"] == {"EER": [None, None], "mAP": [0.25, 0.5]}
    assert checked_verification(None) is None
    counted = checked_verification(verification() | {"n_genuine": np.int64(3)})
    assert counted is not None
    assert counted["n_genuine"] == 3
