"""Results of many small runs have the digests that were recorded; see `frozen_runs.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from frozen_runs import RUNS
from support.exact_products import begin_with_integers

RECORDED = json.loads(Path(__file__).with_name("frozen_results.json").read_text())


def test_every_run_is_recorded() -> None:
    assert set(RECORDED) == set(RUNS)


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("screen", ["float32", "int8"])
@pytest.mark.parametrize("name", RUNS)
def test_digest_is_the_recorded_one(name: str, screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By products in float32, and by those of integers where there are any."""
    if screen == "float32":
        monkeypatch.setenv("REID_DIST_SCREEN", screen)
    else:
        pytest.importorskip("onnxruntime")
        begin_with_integers(monkeypatch)
    assert RUNS[name](tmp_path) == RECORDED[name]
