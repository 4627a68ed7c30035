"""What a report holds, and ``report.json``."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_runs import run

from reid_dist.core.findings import info
from reid_dist.errors import InputError
from reid_dist.reports import Report, TopK

BOUND = {
    "schema", "metrics", "curves", "counts", "protocol", "distance", "rerank", "expand", "inputs", "ties",
    "environment", "timing", "result_digest",
}  # fmt: skip


def refuse_constant(name: str) -> float:
    raise AssertionError(f"{name} is no JSON")


def test_document_has_the_bound_keys(report: Report) -> None:
    document = json.loads(report.to_json(), parse_constant=refuse_constant)
    assert set(document) >= BOUND
    assert document["schema"] == 1
    assert isinstance(document["schema"], int)
    assert set(document["counts"]) >= {"n_query", "n_valid", "n_gallery", "n_junk", "n_invalid_by_reason"}
    assert len(document["curves"]["CMC"]) == 50
    assert len(document["curves"]["precision_recall"]) == 101
    assert document["expand"] is None
    assert document["rerank"]["k1"] == 20
    assert document["result_digest"] == report.result_digest
    assert list(document["timing"]) == list(report.timing)
    assert list(document["metrics"]) == list(report.metrics)


small = partial(run, [0.5, np.nan], [1, 2])


def test_values_that_are_not_finite_are_null_and_restored(tmp_path: Path) -> None:
    inf = math.inf
    report = small(
        metrics={"mAP": math.nan, "up": inf, "down": -inf},
        curves={"thresholds": np.array([inf, 0.5, math.nan, -inf])},
        timing={"open": math.nan},
    )
    document = json.loads(report.to_json(), parse_constant=refuse_constant)
    assert document["metrics"] == {"mAP": None, "up": None, "down": None}
    assert document["curves"]["thresholds"] == [None, 0.5, None, None]
    assert document["timing"] == {"open": None}
    report.save(tmp_path / "out")
    loaded = Report.load(tmp_path / "out")
    assert loaded.metrics["up"] == inf
    assert loaded.metrics["down"] == -inf
    assert math.isnan(loaded.metrics["mAP"])
    np.testing.assert_array_equal(loaded.curves["thresholds"], report.curves["thresholds"])


def test_loggers_take_the_flat_dictionary() -> None:
    """Of names of MLflow, which allow the fewest characters."""
    report = small(metrics={"mAP": np.float32(0.5), "CMC@1": 0.25, "TAR@FAR=0.01": 0.125, "EER": math.nan})
    flat = report.to_dict("flat")
    assert flat == {"mAP": 0.5, "CMC_1": 0.25, "TAR_FAR_0.01": 0.125}
    assert {type(value) for value in flat.values()} == {float}
    assert report.to_dict("document") == report.to_dict()
    with pytest.raises(InputError, match="'document' or 'flat', found 'table'"):
        report.to_dict("table")


def test_the_result_digest_depends_on_the_result_only(make_report: Callable[..., Report]) -> None:
    one = make_report(n_query=30, n_invalid=2)
    same = dataclasses.replace(
        one,
        timing={"open": 99.0},
        environment={"host": "elsewhere"},
        notes=[info("text", text="slow disk")],
        topk=None,
        metrics=dict(reversed(one.metrics.items())),
    )
    assert same.result_digest == one.result_digest
    average = one.per_query["AP"].copy()
    at = int(np.flatnonzero(np.isfinite(average))[0])
    average[at] = np.nextafter(average[at], 0)
    other = dataclasses.replace(one, per_query={**one.per_query, "AP": average})
    assert other.result_digest != one.result_digest


def test_columns_have_one_dtype_per_kind() -> None:
    narrow = small(
        per_query={
            "AP": np.array([0.5, np.nan], dtype=np.float32),
            "n_relevant": np.array([1, 0], dtype=np.uint8),
            "reason": np.array(["", "lost"], dtype="<U30"),
        }
    )
    wide = small(
        per_query={"reason": np.array(["", "lost"]), "n_relevant": [1, 0], "AP": np.array([0.5, np.nan])},
    )
    assert narrow.per_query["AP"].dtype == np.float64
    assert narrow.per_query["n_relevant"].dtype == np.int64
    assert narrow.result_digest == wide.result_digest


def test_arrays_cannot_be_written_to(report: Report) -> None:
    with pytest.raises(ValueError, match="read-only"):
        report.per_query["AP"][0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        report.curves["CMC"][0] = 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"counts": {"n_query": 2}}, "n_valid"),
        ({"per_query": {"AP": np.zeros(3)}}, "'AP'.*2 queries"),
        ({"per_query": {"AP": np.zeros((2, 1))}}, "'AP'"),
        ({"per_query": {"AP": np.array([None, None])}}, "'AP'"),
        ({"curves": {"CMC": np.zeros((2, 2))}}, "curve 'CMC'"),
        ({"curves": {"CMC": np.array(["a"])}}, "curve 'CMC'"),
        ({"topk": TopK(index=np.zeros((3, 1), np.int64), distance=np.zeros((3, 1)))}, "3 lists for 2 queries"),
    ],
)
def test_inconsistent_fields_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        small(**changes)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("index", np.zeros(3, np.int64)),
        ("index", np.zeros((2, 3))),
        ("distance", np.zeros((2, 2))),
        ("distance", np.zeros((2, 3), np.int64)),
        ("junk", np.zeros((2, 3), np.int64)),
        ("relevant", np.zeros((3, 2), bool)),
    ],
)
def test_topk_of_another_shape_or_kind_is_refused(name: str, array: np.ndarray) -> None:
    good = {"index": np.zeros((2, 3), np.int64), "distance": np.zeros((2, 3))}
    assert TopK(**good).k == 3
    with pytest.raises(InputError, match="topk"):
        TopK(**(good | {name: array}))


def test_odd_values_become_plain_ones() -> None:
    report = small(
        environment={"path": Path("a/b"), "n": np.int64(3), "flag": np.bool_(True), "list": (1, np.float32(0.5))},
        counts={
            "n_query": np.int64(2),
            "n_valid": 1,
            "n_gallery": 3,
            "n_junk": np.int32(0),
            "n_invalid_by_reason": {np.str_("lost"): np.int64(1)},
        },
    )
    document = json.loads(report.to_json())
    assert document["environment"] == {"path": "a/b", "n": 3, "flag": True, "list": [1, 0.5]}
    assert document["counts"]["n_query"] == 2
    assert document["counts"]["n_invalid_by_reason"] == {"lost": 1}


def test_arrays_of_the_caller_stay_writable() -> None:
    mine = np.array([0.5, np.nan])
    small(per_query={"AP": mine})
    mine[0] = 0.25
