"""What the gates can be told, and what they refuse."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reid_dist.gating import AccuracyGate, Gates, RatioGate


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accuracy": {"metrics": ["mAPP"]}}, "did you mean 'mAP'"),
        ({"accuracy": {"metrics": ["CMC"]}}, "CMC@10"),
        ({"accuracy": {"metrics": ["mAP", "EER"]}}, "EER is no mean of values per query"),
        ({"accuracy": {"metrics": []}}, "at least 1 item"),
        ({"accuracy": {"false_alarm": 0}}, "greater than 0"),
        ({"accuracy": {"false_alarm": 0.6}}, "less than 0.5"),
        ({"accuracy": {"minimum_effect": 5}}, "less than 1"),
        ({"accuracy": {"n_resamples": 3999}}, "n_resamples must be at least 4000 for 2 metrics at a rate of 0.005"),
        ({"accuracy": {"smallest_ratio": 2}}, "Extra inputs"),
        ({"speed": {"false_alarm": 0.6}}, "less than or equal to 0.5"),
        ({"speed": {"window": 6}}, "minimum_runs is 7, more than the window of 6"),
        ({"speed": {"smallest_ratio": 1}}, "greater than 1"),
        ({"speed": {"minimum_runs": 1}}, "greater than or equal to 2"),
        ({"power": {}}, "Extra inputs"),
    ],
)
def test_refuses(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Gates.model_validate(settings)


def test_a_gate_can_be_switched_off_and_the_others_stay() -> None:
    chosen = Gates.model_validate({"speed": None, "memory": {"smallest_ratio": 2.0}})
    assert chosen.speed is None
    assert chosen.memory == RatioGate(smallest_ratio=2.0)
    assert chosen.accuracy == AccuracyGate()


def test_resamples_need_only_reach_the_rate_of_the_gated_metrics() -> None:
    assert AccuracyGate(metrics=("mAP",), n_resamples=2000).n_resamples == 2000
    assert AccuracyGate(metrics=("mAP", "mAP"), n_resamples=2000).metrics == ("mAP",)
    assert AccuracyGate(false_alarm=0.05, n_resamples=400).n_resamples == 400


def test_settings_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        AccuracyGate().minimum_effect = 0.5
