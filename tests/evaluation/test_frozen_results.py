"""Results of many small runs have the digests that were recorded; see `frozen_runs.py`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from frozen_runs import RUNS

RECORDED = json.loads(Path(__file__).with_name("frozen_results.json").read_text())


def test_every_run_is_recorded() -> None:
    assert set(RECORDED) == set(RUNS)


@pytest.mark.quick_cases(26)
@pytest.mark.parametrize("name", RUNS)
def test_digest_is_the_recorded_one(name: str, tmp_path: Path) -> None:
    assert RUNS[name](tmp_path) == RECORDED[name]
