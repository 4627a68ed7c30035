"""How often all gates together call an unchanged job worse, and how soon they see a slide of small steps.

``python -m tests.benchmarks nights`` is longer, and takes models that were evaluated.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.benchmarks.gates import KINSHIPS, Wander, is_slow_or_big
from tests.benchmarks.nights import N_EARLIER, Models, first_losses, losses, make_models, make_slide, tally_nights

# Of nights per job; a test fails where the lower bound of what it counted is above it.
ALLOWED = 0.01
OTHERS = partial(is_slow_or_big, time=Wander(0.1, outliers=True), memory=Wander(0.03))


def made_up(n_models: int, *, step: float = 0.0, n_identities: int = 100, noise: float = 0.1) -> Models:
    """Models of independent noise, each worse than the one before by a step."""
    rng = np.random.default_rng(n_models)
    level = rng.uniform(0.3, 0.7, 4 * n_identities)
    ap = level + noise * rng.standard_normal((n_models, len(level))) - step * np.arange(n_models)[:, None]
    rows = np.split(np.arange(len(level)), n_identities)
    return Models({"mAP": ap, "CMC@1": (ap > 0.5).astype(float)}, rows)


@pytest.mark.slow
def test_unchanged_jobs_with_a_history_are_seldom_called_worse() -> None:
    tallies = tally_nights(made_up(N_EARLIER + 1), 250, others=OTHERS)
    assert tallies["any gate"].at_least <= ALLOWED
    assert tallies["trend"].n_worse <= 2


@pytest.mark.slow
def test_a_slide_of_a_third_of_a_point_a_night_is_seen_within_eleven() -> None:
    found = first_losses(made_up(14, step=0.0033, n_identities=250), 3)
    assert max(found) <= 11
    assert min(found) >= 2


@pytest.mark.slow
def test_nights_skipped_without_a_test_are_not_worse() -> None:
    models, rng = made_up(N_EARLIER + 1, n_identities=40), np.random.default_rng(3)
    for _ in range(3):
        history = models.history(rng, N_EARLIER + 1)
        assert losses(history).any == losses(history, gate_all=True).any


@pytest.mark.slow
@pytest.mark.parametrize("n_identities", [30, 400])
def test_all_gates_of_a_job_together_seldom_call_it_worse(n_identities: int) -> None:
    models = made_up(N_EARLIER + 1, n_identities=n_identities)
    tallies = tally_nights(models, 2500, others=OTHERS)
    assert tallies["any gate"].share <= ALLOWED
    assert tallies["accuracy"].at_least <= 0.005


@pytest.mark.slow
def test_evaluated_models_are_seldom_called_worse_and_their_slide_is_seen() -> None:
    kinship = KINSHIPS["relatives"]
    tallies = tally_nights(make_models(kinship, N_EARLIER + 1, scale=0.3), 500, others=OTHERS)
    assert tallies["any gate"].at_least <= ALLOWED
    assert max(first_losses(make_slide(kinship, scale=0.3), 5)) <= 14
