"""Losses in small steps: found over many nights, though not between two."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist import Report
from reid_dist.nightly.gate_verdicts import apply_gates
from reid_dist.nightly.gating.gate_settings import AccuracyGate, Gates, TrendGate
from reid_dist.nightly.gating.trend import announced_once
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Code, Entry, Finding
from tests.benchmarks.gates import entry_of, report_of

# At larger rates, which need fewer draws.
GATES = Gates(
    accuracy=AccuracyGate(false_alarm=0.02, n_resamples=2500),
    trend=TrendGate(false_alarm=0.01, n_resamples=1000),
    speed=None,
    memory=None,
)
PIDS = np.repeat(np.arange(150), 4)
NAME = "m/d/j"


class Nights:
    """A history of synthetic reports, gated as in a night."""

    def __init__(self, history: History) -> None:
        self.history = history
        self.rng = np.random.default_rng(0)
        self.levels = self.rng.uniform(0.2, 0.8, len(PIDS))

    def add(self, shift: float, *, noise: float = 0.15, seed: int | None = None, gates: Gates = GATES) -> list[Finding]:
        rng = self.rng if seed is None else np.random.default_rng(seed)
        ap = self.levels + shift + noise * rng.standard_normal(len(PIDS))
        number = self.history.begin("small", "")
        entry, report = made(ap, number)
        findings = apply_gates(entry, report, self.history, suite="small", number=number, gates=gates)
        self.history.add(number, replace(entry, findings=findings), report)
        self.history.finish(number, 0)
        return list(findings)


def made(ap: np.ndarray[Any, Any], number: int) -> tuple[Entry, Report]:
    report = report_of({"mAP": ap, "CMC@1": (ap > 0.5).astype(float)}, PIDS)
    entry = entry_of(report).of_report(report)
    return replace(entry, input_digest=f"{number}", counts=report.counts, inputs=report.inputs), report


@pytest.fixture
def nights(tmp_path: Path) -> Any:
    with History.open(tmp_path / "nights.db") as history:
        yield Nights(history)


@pytest.mark.slow
def test_a_trend_is_found_between_levels_that_no_pair_of_nights_separates(nights: Nights) -> None:
    found = [nights.add(-0.0033 * number) for number in range(14)]
    trends = [each[1] for each in found]
    assert [trend.gate for trend in trends] == ["trend"] * 14
    assert trends[0].facts == {"n": 1, "needed": 8, "unit": "result"}
    assert {trend.verdict for trend in trends[:7]} == {"incomparable"}
    flagged = [
        number
        for number, (accuracy, trend) in enumerate(found, start=1)
        if "worse" in (accuracy.verdict, trend.verdict)
    ]
    assert flagged
    assert flagged[0] <= 12
    assert trends[-1].verdict == "worse"
    assert [change.verdict for change in trends[-1].changes if change.name == "mAP"] == ["worse"]
    assert (trends[-1].baseline, trends[-1].is_regression) == (1, True)
    # A night of a trend that falls is no baseline.
    good = nights.history.last_good("small", NAME, before=99)
    assert good is not None
    assert good.run < flagged[-1]


@pytest.mark.slow
def test_an_accepted_night_begins_the_trend_and_is_the_reference(nights: Nights) -> None:
    for _ in range(9):
        nights.add(0.08)
    accuracy, _ = nights.add(0.0)
    assert accuracy.verdict == "worse"
    nights.history.accept(10, NAME, "a smaller model")
    found = [nights.add(0.0) for _ in range(8)]
    # Against the nights before, all of these would be losses.
    assert [accuracy.verdict for accuracy, _ in found].count("undecided") >= 7
    assert found[0][1].facts["n"] == 2
    assert found[-1][1].baseline == 10


def found_trend(verdict: str, **facts: Any) -> Finding:
    return Finding(gate="trend", verdict=verdict, code=Code.LINE, facts={"n_results": 9, **facts}, baseline=1)


@pytest.mark.parametrize(
    ("past", "repeats", "verdict", "facts"),
    [
        ([], None, "better", {}),
        ([found_trend("undecided")], None, "better", {}),
        ([found_trend("better"), found_trend("same", as_in=1)], None, "same", {"as_in": 1}),
        # A verdict that comes and goes is one trend.
        ([found_trend("better"), found_trend("undecided")], None, "same", {"as_in": 1}),
        # Nothing is new tonight; it is news with the next features.
        ([found_trend("undecided"), found_trend("undecided")], 2, "same", {"repeats": 2}),
        ([found_trend("undecided"), found_trend("same", repeats=1)], None, "better", {}),
    ],
)
def test_a_rise_is_announced_when_it_begins(
    past: list[Finding], repeats: int | None, verdict: str, facts: dict[str, int]
) -> None:
    found = announced_once(found_trend("better"), [*enumerate(past, start=1)], repeats=repeats)
    assert (found.verdict, found.facts) == (verdict, {"n_results": 9, **facts})
    assert announced_once(found_trend("worse"), [*enumerate(past, start=1)], repeats=repeats).verdict == "worse"


def test_a_rise_is_news_once(nights: Nights) -> None:
    verdicts = [nights.add(0.004 * number, noise=0.04, seed=number)[1].verdict for number in range(14)]
    assert verdicts.count("better") == 1
    first = verdicts.index("better")
    assert set(verdicts[first + 1 :]) == {"same"}
    # The same features again, whose line rises as well.
    _, trend = nights.add(0.004 * 13, noise=0.04, seed=13)
    assert trend.verdict == "same"
    assert trend.facts["as_in"] == first + 1
    assert trend.changes[0].verdict == "better"


def test_a_gain_against_the_accepted_night_is_news_once(nights: Nights) -> None:
    for number in range(2):
        nights.add(0.0, noise=0.02, seed=number)
    nights.history.accept(1, NAME, "published")
    found = [nights.add(0.003 * number, noise=0.02, seed=10 + number)[0] for number in range(1, 7)]
    gains = [each for each in found if each.verdict == "better" and each.baseline == 1]
    assert len(gains) == 1
    assert gains[0].facts["role"] == "last accepted"
    # Between two nights there is no gain.
    assert {each.verdict for each in found if each is not gains[0]} <= {"same", "undecided"}


def test_nights_with_one_result_are_the_same(nights: Nights) -> None:
    nights.add(0.0, seed=5)
    for number in range(2, 5):
        accuracy, trend = nights.add(0.0, seed=5)
        assert (accuracy.verdict, trend.verdict) == ("same", "same")
        assert (trend.code, trend.facts) == (Code.EQUAL_NIGHTS, {"n_nights": number})


def test_a_gate_can_be_switched_off(nights: Nights) -> None:
    found = nights.add(0.0, gates=Gates(trend=None, speed=None, memory=None))
    assert [each.gate for each in found] == ["accuracy"]
    found = nights.add(0.0, gates=Gates(accuracy=None, speed=None, memory=None))
    assert [each.gate for each in found] == ["trend"]
