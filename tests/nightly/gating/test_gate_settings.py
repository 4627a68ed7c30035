"""Settings of the gates, and refused values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from reid_dist.nightly.gating.gate_settings import AccuracyGate, Gates, RatioGate, SpeedGate


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
        ({"accuracy": {"n_resamples": 4999}}, "n_resamples must be at least 5000 for 2 metrics at a rate of 0.004"),
        ({"trend": {"minimum_results": 15}}, "minimum_results is 15, more than 14 nights can have"),
        ({"trend": {"metrics": ["EER"]}}, "EER is no mean of values per query"),
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


def test_a_setting_leaves_the_others_as_they_are() -> None:
    chosen = Gates.model_validate({"speed": None, "memory": {"smallest_ratio": 2.0}})
    assert (chosen.speed, chosen.memory, chosen.accuracy) == (None, RatioGate(smallest_ratio=2.0), AccuracyGate())
    assert Gates.model_validate({"speed": {"window": 10}}).speed == SpeedGate(window=10)
    # A night may be slow for reasons of its own; memory has fewer of them.
    assert SpeedGate().smallest_ratio > RatioGate().smallest_ratio


def test_the_rates_of_all_gates_add_up_to_less_than_a_night_in_a_hundred() -> None:
    rates = [gate["false_alarm"] for gate in Gates().model_dump().values()]
    assert len(rates) == 4
    assert sum(rates) < 0.01


def test_resamples_need_only_reach_the_rate_of_the_gated_metrics() -> None:
    assert AccuracyGate(metrics=("mAP",), n_resamples=2500).n_resamples == 2500
    assert AccuracyGate(metrics=("mAP", "mAP"), n_resamples=2500).metrics == ("mAP",)
    assert AccuracyGate(metrics=("rank-1", "CMC@1"), n_resamples=2500).metrics == ("CMC@1",)
    assert AccuracyGate(false_alarm=0.05, n_resamples=1000).n_resamples == 1000
