"""Intervals, bounds, breakdowns and counts of verification: what a report takes, keeps and refuses."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_report import breakdowns, confidence, verification
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.errors import InputError
from reid_dist.reports import Report
from reid_dist.reports.entry_checks import checked_breakdowns, checked_confidence, checked_verification

PLAIN = {"n_query": 5, "n_invalid": 0, "k": None}


def test_arrays_and_nan_become_plain_values(full_report: Report) -> None:
    table = full_report.breakdowns["camera_pair"]
    assert table["query_camid"] == [1, 2, 3, 4, 5, 6]
    assert [table["mAP"][camera][camera] for camera in range(6)] == [None] * 6
    assert all(type(value) is int for row in table["n_valid"] for value in row)
    assert full_report.breakdowns["camera"]["mAP"][4] is None
    json.dumps(full_report.breakdowns, allow_nan=False)


def test_none_of_it_is_in_the_digest(full_report: Report) -> None:
    bare = dataclasses.replace(full_report, confidence=None, bounds={}, breakdowns={}, verification=None, pictures=None)
    assert bare.result_digest == full_report.result_digest


def test_an_infinite_threshold_is_not_lost(full_report: Report, tmp_path: Path) -> None:
    def refuse(name: str) -> float:
        raise AssertionError(f"{name} is no JSON")

    document = json.loads(full_report.to_json(), parse_constant=refuse)
    assert document["verification"]["thresholds"]["DIR@FAR=0.01"] is None
    loaded = Report.load(full_report.save(tmp_path / "out"))
    assert loaded.verification is not None
    assert loaded.verification["thresholds"] == {"TAR@FAR=0.001": 0.31251234, "EER": 0.4321, "DIR@FAR=0.01": math.inf}
    assert checked_verification({"thresholds": {"EER": math.nan}}) == {"thresholds": {"EER": None}}


groups = st.integers(0, 12).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "value": st.lists(st.integers(-5, 5), min_size=n, max_size=n),
            "n_query": st.lists(st.integers(0, 9), min_size=n, max_size=n),
            "n_valid": st.lists(st.integers(0, 9), min_size=n, max_size=n),
            "mAP": st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=n, max_size=n),
        }
    )
)


@given(groups)
def test_tables_read_back_to_the_bit(table: dict[str, Any]) -> None:
    as_arrays = {
        name: np.array([math.nan if value is None else value for value in column], dtype=float)
        if name == "mAP"
        else np.array(column, dtype=np.int64)
        for name, column in table.items()
    }
    assert checked_breakdowns({"clothes": as_arrays}) == {"clothes": table}
    assert json.loads(json.dumps(checked_breakdowns({"clothes": table}))) == {"clothes": table}


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
        ("camera", "mAP", [0.5], "'mAP' has 1 values for 6 entries of 'camid'"),
        ("camera", "mAP", 0.5, "'mAP' must be a list, found float"),
        ("camera", "mAP", ["high"] * 6, "'mAP' must hold numbers or None, found 'high'"),
        ("camera", "n_valid", [0.5] * 6, "n_valid must be a count, found 0.5"),
        ("camera_pair", "mAP", [[0.5] * 6], "'mAP' must hold 6 rows .query cameras. of 6 values"),
        ("camera_pair", "CMC@1", [[0.5] * 5] * 6, "'CMC@1' must hold 6 rows"),
        ("camera_pair", "n_valid", None, "'n_valid' must hold 6 rows"),
        ("gallery_size", "order", "sorted", "stored, random, found 'sorted'"),
        ("gallery_size", "n_rows", [5, 4, 3, 2, 1], "n_rows must ascend"),
        ("gallery_size", "mAP", [0.5], "'mAP' has 1 values for 5 entries of 'n_rows'"),
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
