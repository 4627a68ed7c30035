"""Losses by a trend: exact p-values, and what is no loss."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from reid_dist.nightly.gating.gate_settings import TrendGate
from reid_dist.nightly.gating.trend import Night, gate_trend, night_weights, permutation_p_value
from reid_dist.nightly.history.history_values import Code, Finding
from reid_dist.nightly.wording import finding_text

PIDS = np.repeat(np.arange(100), 3)
TREND = TrendGate(false_alarm=0.01, n_resamples=1000)


def night(number: int, values: Any) -> Night:
    return Night(number, f"{number}", {"mAP": np.asarray(values, float)})


def trend_of(rows: Sequence[Any], pids: np.ndarray[Any, Any] = PIDS, gate: TrendGate = TREND) -> Finding:
    *past, tonight = (night(at, row) for at, row in enumerate(rows, start=1))
    return gate_trend(past, tonight, pids, n_earlier=len(past), gate=gate)


def test_the_trend_is_the_line_of_least_squares() -> None:
    rows = 0.5 + 0.1 * np.random.default_rng(0).standard_normal((9, len(PIDS)))
    means = rows.mean(axis=1)
    slope, _ = np.polyfit(np.arange(9), means, 1)
    (change,) = trend_of(rows).changes
    assert change.difference == pytest.approx(8 * slope)
    # The ends of the line are no values; first and last night are.
    assert [change.baseline, change.candidate] == pytest.approx([means[0], means[-1]])
    assert night_weights(9) @ means == pytest.approx(8 * slope)


def test_the_p_value_of_the_nights_is_that_of_all_their_orders() -> None:
    means = np.array([0.50, 0.47, 0.49, 0.46, 0.47, 0.43])
    place = np.arange(6) - 2.5
    slopes = [abs(place @ np.array(order)) for order in itertools.permutations(means)]
    expected = np.mean(np.array(slopes) >= abs(place @ means) - 1e-12)
    assert permutation_p_value(means, n_resamples=20_000, seed=0) == pytest.approx(expected, abs=0.004)
    falling = np.linspace(0.5, 0.4, 14)
    assert permutation_p_value(falling, n_resamples=999, seed=0) == 1 / 1000
    assert permutation_p_value(np.full(9, 0.3), n_resamples=99, seed=0) == 1


@pytest.mark.parametrize(("step", "verdict"), [(-0.004, "worse"), (0.004, "better")])
def test_small_steps_in_one_direction_are_a_trend(step: float, verdict: str) -> None:
    rng = np.random.default_rng(3)
    rows = [0.5 + step * at + 0.1 * rng.standard_normal(len(PIDS)) for at in range(14)]
    found = trend_of(rows)
    assert (found.verdict, found.is_regression) == (verdict, verdict == "worse")
    (change,) = found.changes
    assert found.code == Code.LINE
    assert change.difference is not None
    assert (change.difference < 0) == (verdict == "worse")
    assert change.low is not None
    # No drawn order of nights, nor any change of signs, is as extreme.
    assert change.p_value == pytest.approx(1 / 1001)


def test_two_models_whose_nights_differ_by_rounding_are_no_trend() -> None:
    rng = np.random.default_rng(0)
    first = 0.5 + 0.1 * rng.standard_normal(len(PIDS))
    second = first - 0.006 + 0.1 * rng.standard_normal(len(PIDS))
    second += first.mean() - 0.006 - second.mean()
    rows = [each + 1e-7 * rng.standard_normal(len(PIDS)) for each in [first] * 7 + [second] * 7]
    found = trend_of(rows)
    assert permutation_p_value(np.array([row.mean() for row in rows]), n_resamples=1000, seed=0) < 0.005
    assert found.verdict == "undecided"


@pytest.mark.slow
def test_nights_that_move_as_a_whole_are_no_trend() -> None:
    rng = np.random.default_rng(0)
    values = 0.5 + 0.1 * rng.standard_normal(len(PIDS))
    verdicts = [trend_of([values + 0.01 * shift for shift in rng.standard_normal(14)]).verdict for _ in range(40)]
    # The queries alone, which move together, are sure of every one of them.
    assert verdicts.count("worse") + verdicts.count("better") <= 3


def test_a_flat_trend_is_the_same_and_few_results_have_no_verdict() -> None:
    rng = np.random.default_rng(0)
    values = 0.5 + 0.1 * rng.standard_normal(len(PIDS))
    flat = [values + 0.005 * rng.standard_normal(len(PIDS)) for _ in range(14)]
    assert trend_of(flat).verdict == "same"
    found = trend_of(flat[:7])
    assert (found.verdict, found.code, found.facts) == (
        "incomparable",
        Code.WAITING,
        {"n": 7, "needed": 8, "unit": "result"},
    )
    # Nights with one result count once.
    again = [Night(at, f"{at % 3}", {"mAP": flat[at % 3]}) for at in range(14)]
    found = gate_trend(again[:-1], again[-1], PIDS, n_earlier=13, gate=TREND)
    assert (found.code, found.facts["n"], found.facts["needed"]) == (Code.WAITING, 3, 8)


def test_invalid_queries_are_left_out_of_the_trend() -> None:
    rng = np.random.default_rng(3)
    rows = [0.5 - 0.004 * at + 0.1 * rng.standard_normal(len(PIDS)) for at in range(10)]
    invalid = np.arange(len(PIDS)) % 4 == 0
    holes = [np.where(invalid, np.nan, row) for row in rows]
    assert finding_text(trend_of(holes)) == finding_text(trend_of([row[~invalid] for row in rows], PIDS[~invalid]))
