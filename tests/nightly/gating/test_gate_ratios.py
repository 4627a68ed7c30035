"""The gates of speed and memory: what is slow, what is noise and how sure that is, what does not compare."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from reid_dist.nightly.gating.gate_settings import RatioGate, SpeedGate
from reid_dist.nightly.gating.ratios import degrees_of_freedom, gate_memory, gate_speed, noise_floor, spread
from reid_dist.nightly.history.history_values import Code, Entry, Finding

GATE = RatioGate()
PLAIN = Entry(
    model="m",
    dataset="d",
    job="j",
    job_digest="job",
    machine={"cpu": "x", "cores": 4},
    conventions={"rerank": None},
    inputs={"query": {"shape": [10, 8], "dtype": "float32", "uri": "a"}, "gallery": {"shape": [20, 8]}},
)


def took(seconds: float | None, **changes: Any) -> Entry:
    memory = None if seconds is None else round(1e8 * seconds)
    return replace(PLAIN, seconds=seconds, peak_bytes=memory, **changes)


def nights(n: int, noise: float = 0.02, seed: int = 0) -> list[Entry]:
    return [took(float(each)) for each in 60 * np.exp(noise * np.random.default_rng(seed).standard_normal(n))]


def waiting(found: Finding) -> tuple[int, int]:
    """How many runs a gate without a verdict has, and how many it needs."""
    assert (found.verdict, found.code, found.facts["unit"]) == ("incomparable", Code.WAITING, "run")
    return found.facts["n"], found.facts["needed"]


def test_zeros_of_imported_histories_are_unknown() -> None:
    assert gate_speed(took(0.0), nights(20), GATE).code == Code.UNKNOWN
    known, mixed = nights(20), [*nights(20), took(0.0)]
    assert gate_speed(took(60.0), mixed, GATE) == gate_speed(took(60.0), known, GATE)


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.5, "worse"), (1.3, "same"), (1, "same"), (0.8, "same"), (0.6, "better")]
)
def test_a_ratio_and_its_verdict_with_figures(factor: float, verdict: str) -> None:
    past, tonight = nights(20), took(60 * factor)
    speed, memory = gate_speed(tonight, past, GATE), gate_memory(tonight, past, GATE)
    median = float(np.median([each.seconds for each in past if each.seconds is not None]))
    assert (speed.gate, memory.gate) == ("speed", "memory")
    assert speed.verdict == memory.verdict == verdict
    assert speed.alarm == ""
    assert speed.baseline is None
    (change,) = speed.changes
    assert (change.name, change.candidate, change.verdict) == ("seconds", 60 * factor, verdict)
    assert change.baseline == pytest.approx(median, rel=1e-3)
    assert change.difference == pytest.approx(60 * factor / median, rel=1e-3)
    assert (change.low, change.high) == (pytest.approx(1 / 1.4), 1.4)
    assert (speed.code, speed.facts, change.n_units) == (Code.RATIO, {"bound": "effect"}, 20)
    assert memory.changes[0].name == "peak_bytes"


def test_a_noisy_machine_has_a_wide_floor() -> None:
    past = nights(20, noise=0.25)
    found = gate_speed(took(90), past, GATE)
    assert found.verdict == "same"
    assert found.facts == {"bound": "noise"}
    # Without its floor the smallest ratio decides.
    assert gate_speed(took(90), past, RatioGate(false_alarm=0.5)).verdict == "worse"


def test_only_the_window_counts() -> None:
    past = [*nights(50), *(took(120.0) for _ in range(20))]
    assert gate_speed(took(120), past, GATE).verdict == "same"
    assert gate_speed(took(60), past, GATE).verdict == "better"
    assert gate_speed(took(120), past, RatioGate(window=70)).verdict == "worse"


def test_a_slow_run_stays_slow_the_night_after() -> None:
    past = nights(20)
    for _ in range(7):
        assert gate_speed(took(100), past, GATE).verdict == "worse"
        past.append(took(100))


def test_an_accepted_slow_run_begins_a_new_baseline() -> None:
    past = nights(20)
    slow = took(100)
    past.append(replace(slow, findings=(gate_speed(slow, past, GATE),), accepted="another scheduler"))
    assert waiting(gate_speed(took(100), past, GATE)) == (1, 7)
    past += [took(100 + at) for at in range(6)]
    assert gate_speed(took(100), past, GATE).verdict == "same"
    assert gate_speed(took(180), past, GATE).verdict == "worse"
    # The acceptance of another loss does not concern the time.
    assert gate_speed(took(100), [*nights(20), replace(took(60), accepted="smaller model")], GATE).verdict == "worse"


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        ({"machine": {"cpu": "x", "cores": 8}}, {"what": "machine", "differences": [["cores", "4", "8"]]}),
        ({"reused": ("neighbours",)}, {"what": "reused", "stages": [[], ["neighbours"]]}),
        (
            {"job_digest": "2", "conventions": {"rerank": {"k1": 20}}},
            {"what": "job", "differences": [["rerank", "none", "absent"], ["rerank.k1", "absent", "20"]]},
        ),
        (
            {"inputs": PLAIN.inputs | {"gallery": {"shape": [40]}}},
            {"what": "shape", "differences": [["gallery.shape", "20, 8", "40"]]},
        ),
    ],
)
def test_entries_that_do_not_compare_are_named_with_the_reason(
    changes: dict[str, Any], obstacle: dict[str, Any]
) -> None:
    past = nights(12)
    found = gate_speed(took(600, **changes), past, GATE)
    assert (found.verdict, found.is_regression) == ("incomparable", False)
    assert waiting(found) == (0, 7)
    assert (found.facts["n_others"], found.facts["newest"]) == (12, [obstacle])
    # Those that do compare are found among those that do not.
    mixed = [
        each for pair in zip(past, nights(12, seed=1), strict=True) for each in (pair[0], replace(pair[1], **changes))
    ]
    assert gate_speed(took(600, **changes), mixed, GATE).verdict == "worse"


def test_too_few_runs() -> None:
    assert waiting(gate_speed(took(60), [], GATE)) == (0, 7)
    past = nights(7)
    assert waiting(gate_speed(took(600), past[1:], GATE)) == (6, 7)
    assert gate_speed(took(600), past, GATE).verdict == "worse"
    assert gate_speed(took(600), past[:2], RatioGate(minimum_runs=2, false_alarm=0.5)).verdict == "worse"


@pytest.mark.parametrize("times", [(0.091, 0.305, 0.12), (0.2, 0.091, 0.305, 0.15, 0.26, 0.11, 0.3)])
def test_useless_bounds_are_left_out(times: tuple[float, ...]) -> None:
    gate = SpeedGate(minimum_runs=3)
    found = gate_speed(took(0.25), [took(each) for each in times], gate)
    assert (found.verdict, found.is_regression) == ("undecided", False)
    assert (found.code, found.facts["n"]) == (Code.NOISY, len(times))
    assert len(times) < found.facts["needed"] <= gate.window
    assert (found.changes[0].low, found.changes[0].high) == (None, None)
    # After a window of runs there is a verdict, however much they differ.
    more = [took(times[at % len(times)]) for at in range(gate.window)]
    assert gate_speed(took(0.25), more, gate).code == Code.RATIO
    # A time beyond even those bounds is slow all the same.
    assert gate_speed(took(1e200), [took(each) for each in times], gate).verdict == "worse"


def test_runs_without_a_value_are_passed_over() -> None:
    past = nights(7)
    holes = [took(None)] * 3
    with_holes, without = gate_speed(took(80), [*holes, *past, *holes], GATE), gate_speed(took(80), past, GATE)
    assert with_holes == without
    assert gate_speed(took(None), past, GATE).code == gate_memory(took(None), past, GATE).code == Code.UNKNOWN


def test_stored_entries_compare_with_new_ones() -> None:
    past = [replace(each, machine={"gpus": ["a", "b"]}) for each in nights(9)]
    shapes = {"query": {"shape": (10, 8), "dtype": "float32"}, "gallery": {"shape": (20, 8)}}
    tonight = took(60, machine={"gpus": ("a", "b")}, inputs=shapes)
    assert gate_speed(tonight, past, GATE).verdict == "same"


def test_speed_allows_more_than_memory() -> None:
    past = nights(20)
    # A third more is what another tenant costs; memory has no such neighbour.
    assert gate_speed(took(60 * 1.45), past, SpeedGate()).verdict == "same"
    assert gate_memory(took(60 * 1.45), past, RatioGate()).verdict == "worse"
    assert gate_speed(took(60 * 1.6), past, SpeedGate()).verdict == "worse"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 40])
def test_spread_of_normal_values_is_their_standard_deviation(n: int) -> None:
    values = np.random.default_rng(n).standard_normal((6000, n))
    found = np.array([spread(row) for row in values])
    assert found.mean() == pytest.approx(1, abs=0.06 if n > 3 else 0.35)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n", [7, 10, 15, 20, 30, 60])
def test_degrees_of_freedom_match_the_variance_of_the_spread(n: int) -> None:
    values = np.random.default_rng(n).standard_normal((6000, n))
    found = np.array([spread(row) for row in values])
    known = 1 / (2 * np.var(found / found.mean()))
    assert degrees_of_freedom(n) <= 1.1 * known
    assert degrees_of_freedom(n) >= 0.6 * known


def test_spread_is_that_of_most_when_a_third_are_odd() -> None:
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((500, 21))
    odd = plain.copy()
    odd[:, :7] += 1000
    ratios = [spread(with_odd) / spread(without) for with_odd, without in zip(odd, plain, strict=True)]
    assert np.median(ratios) < 3


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 12, 20])
@pytest.mark.parametrize("rate", [0.005, 0.05])
def test_noise_exceeds_its_floor_at_the_given_rate(n: int, rate: float) -> None:
    from scipy import stats

    rng = np.random.default_rng(n)
    n_nights = 8000
    past, tonight = 5 + 0.1 * rng.standard_normal((n_nights, n)), 5 + 0.1 * rng.standard_normal(n_nights)
    beyond = sum(new - np.median(logs) > noise_floor(logs, rate) for logs, new in zip(past, tonight, strict=True))
    assert stats.binomtest(int(beyond), n_nights, 1.3 * rate, alternative="greater").pvalue > 0.001


def test_equal_runs_have_no_noise_and_few_runs_a_wide_floor() -> None:
    assert noise_floor(np.full(9, 3.0), 0.01) == 0
    few, many = (noise_floor(np.linspace(0, 1, n), 0.01) for n in (5, 40))
    assert few > 3 * many > 0
    assert noise_floor(np.array([0.0, 0.1, 0.2]), 0.5) == pytest.approx(0, abs=1e-12)
    assert math.isfinite(noise_floor(np.array([0.0, 0.1]), 1e-9))
