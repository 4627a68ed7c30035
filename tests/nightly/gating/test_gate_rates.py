"""Rates of false alarms over many nights, and losses that are found.

``python -m tests.benchmarks gates`` and ``nights`` are longer, and take models that were evaluated.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from reid_dist.nightly.gating.gate_settings import AccuracyGate
from tests.benchmarks.gates import (
    KINSHIPS,
    Pairs,
    Tally,
    Wander,
    is_slow_or_big,
    is_worse,
    make_pairs,
    may_be_worse,
    tally_drops,
    tally_memory,
    tally_speed,
    tally_unchanged,
)
from tests.benchmarks.nights import N_EARLIER, Models, first_losses, tally_nights

# Of nights per job and gate; a test fails where the lower bound of what it counted is above it.
ALLOWED = 0.01
OTHERS = partial(is_slow_or_big, time=Wander(0.1, outliers=True), memory=Wander(0.03))


@pytest.fixture(scope="module")
def relatives() -> Pairs:
    """Two models in the shape of Market-1501, evaluated: 3,368 queries of 750 identities."""
    return make_pairs(KINSHIPS["relatives"])


@pytest.mark.slow
@pytest.mark.parametrize("swapped", [True, False])
def test_a_job_that_did_not_change_is_seldom_called_worse(relatives: Pairs, swapped: bool) -> None:
    assert sum(map(len, relatives.rows)) == 3368
    assert tally_unchanged(relatives, 300, swapped=swapped).at_least <= ALLOWED


@pytest.mark.slow
def test_few_identities_do_not_raise_the_alarms(relatives: Pairs) -> None:
    for n_identities in (10, 40):
        assert tally_unchanged(relatives, 300, n_identities=n_identities, swapped=False).at_least <= ALLOWED


@pytest.mark.slow
def test_a_point_of_map_is_seen_where_the_models_are_alike() -> None:
    siblings = make_pairs(KINSHIPS["siblings"], drop=0.01)
    assert siblings.drop == pytest.approx(0.01, abs=0.001)
    assert tally_drops(siblings, 8).n_worse >= 7


@pytest.mark.slow
def test_no_worse_night_is_skipped_without_a_test(relatives: Pairs) -> None:
    # At twice the rate of the default, where there are more nights to miss.
    gate, rng = AccuracyGate(false_alarm=0.01, n_resamples=4000), np.random.default_rng(5)
    nights = [relatives.night(rng, 40, swapped=True) for _ in range(80)]
    left_out = [night for night in nights if not may_be_worse(*night, gate)]
    assert 0 < len(left_out) < len(nights)
    assert not any(is_worse(*night, gate) for night in left_out)


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1, 0.15])
def test_time_and_memory_that_did_not_change_are_seldom_called_worse(noise: float) -> None:
    for n_past in (7, 20):
        for wander in (Wander(noise), Wander(noise, outliers=True)):
            assert tally_speed(wander, 2000, n_past=n_past).at_most <= ALLOWED
        assert tally_memory(Wander(noise), 2000, n_past=n_past).at_most <= ALLOWED


@pytest.mark.slow
@pytest.mark.parametrize(("noise", "least"), [(0.02, 0.99), (0.05, 0.98), (0.1, 0.9)])
def test_twice_the_time_is_seen(noise: float, least: float) -> None:
    for wander in (Wander(noise), Wander(noise, outliers=True)):
        assert tally_speed(wander, 400, n_past=20, times=2).share >= least


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("noise", "least"), [(0.02, 0.99), (0.05, 0.8)])
def test_half_as_much_memory_again_is_seen(noise: float, least: float) -> None:
    assert tally_memory(Wander(noise), 400, n_past=20, times=1.5).share >= least


def test_the_bounds_of_a_tally_are_those_of_clopper_and_pearson() -> None:
    assert Tally(0, 300).at_most == pytest.approx(1 - 0.05 ** (1 / 300))
    assert Tally(300, 300).at_least == pytest.approx(0.05 ** (1 / 300))
    assert Tally(0, 5).at_least == 0
    assert Tally(5, 5).at_most == 1
    assert Tally(3, 1000).at_least < 0.003 < Tally(3, 1000).at_most


def made_up(n_models: int, *, step: float = 0.0, n_identities: int = 100, noise: float = 0.1) -> Models:
    """Models of independent noise, each worse than the one before by a step."""
    rng = np.random.default_rng(n_models)
    level = rng.uniform(0.3, 0.7, 4 * n_identities)
    ap = level + noise * rng.standard_normal((n_models, len(level))) - step * np.arange(n_models)[:, None]
    rows = np.split(np.arange(len(level)), n_identities)
    return Models({"mAP": ap, "CMC@1": (ap > 0.5).astype(float)}, rows)


@pytest.mark.slow
def test_a_slide_of_a_third_of_a_point_a_night_is_seen_within_eleven() -> None:
    found = first_losses(made_up(14, step=0.0033, n_identities=250), 3)
    assert max(found) <= 11
    assert min(found) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("n_identities", [30, 400])
def test_all_gates_of_a_job_together_seldom_call_it_worse(n_identities: int) -> None:
    models = made_up(N_EARLIER + 1, n_identities=n_identities)
    tallies = tally_nights(models, 2500, others=OTHERS)
    assert tallies["any gate"].share <= ALLOWED
    assert tallies["accuracy"].at_least <= 0.005
