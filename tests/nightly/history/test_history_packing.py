"""Reports as bytes: the same report is restored, or there is an error."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from history_entries import small_report

from reid_dist.core.findings import caution, info
from reid_dist.errors import StoreError
from reid_dist.nightly.history.history_file import pack, unpack


def test_all_kinds_of_values_come_back_to_the_bit() -> None:
    per_query = {
        "AP": np.array([0.1, np.nan, np.inf, 5e-324]),
        "n_relevant": np.array([1, 0, 2**40, -1]),
        "in time": np.array([True, False, True, True]),
        "reason": np.array(["", "none", "\u00fc\U0001f600", "a" * 70]),
        "file": np.array(["", "", "", ""]),
    }
    counts = small_report().counts | {"n_query": 4}
    report = small_report(
        per_query=per_query,
        counts=counts,
        curves={"CMC": np.array([0.5, np.inf, -np.inf, np.nan])},
        metrics={"EER": float("-inf"), "mAP": 0.1},
        confidence=None,
        verification={"n_genuine": 4, "n_impostor": 9, "thresholds": {"EER": float("inf")}},
        notes=[info("text", text="\u00fc"), caution("few_identities", n=2)],
    )
    found = unpack(*pack(report), "it")
    assert found.to_dict() == report.to_dict()
    assert found.result_digest == report.result_digest
    for name, values in report.per_query.items():
        assert found.per_query[name].tobytes() == values.tobytes()
        assert found.per_query[name].dtype == values.dtype


def test_equal_reports_have_equal_bytes() -> None:
    assert pack(small_report(1)) == pack(small_report(1))
    slower = small_report(1, timing={"open": 9.0})
    assert pack(slower)[1] == pack(small_report(1))[1]
    assert pack(slower)[0] != pack(small_report(1))[0]


def test_a_document_of_another_schema_is_refused() -> None:
    packed, per_query = pack(small_report())
    document = json.loads(zlib.decompress(packed)) | {"schema": 99}
    with pytest.raises(StoreError, match="it has schema 99, this version reads 1"):
        unpack(zlib.compress(json.dumps(document).encode()), per_query, "it")
