"""Functions that take the place of those of other codes: the results of a walk down every sorted list."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from oracles import single_shot
from oracles.rank_metrics import walk_average_precision, walk_first_match

from reid_dist.compat import eval_func, evaluate_rank
from reid_dist.errors import InputError

N_QUERY, N_GALLERY = 25, 60


@pytest.fixture
def problem():
    """Few distances, so that many are equal, and pids and cameras of which some queries have no match."""
    rng = np.random.default_rng(11)
    distances = rng.integers(0, 12, (N_QUERY, N_GALLERY)).astype(np.float32)
    labels = [rng.integers(0, high, n) for high in (20, 3) for n in (N_QUERY, N_GALLERY)]
    return distances, *labels


def walked(distances, q_pids, g_pids, q_camids, g_camids, max_rank):
    """Curve and mean AP, one sorted list after the other."""
    curves, precisions = [], []
    for row, values in enumerate(distances):
        order = np.argsort(values, kind="stable")
        kept = order[(g_pids[order] != q_pids[row]) | (g_camids[order] != q_camids[row])]
        hits = (g_pids[kept] == q_pids[row]).tolist()
        if any(hits):
            curves.append(walk_first_match(hits, max_rank))
            precisions.append(walk_average_precision(hits, sum(hits)))
    assert 0 < len(curves) < len(distances)
    return np.mean(curves, axis=0), np.mean(precisions)


@pytest.mark.parametrize("function", [evaluate_rank, eval_func])
@pytest.mark.parametrize("max_rank", [1, 7, 50])
def test_curve_and_map_are_those_of_a_walk(problem, function, max_rank):
    cmc, mean = function(*problem, max_rank)
    expected = walked(*problem, max_rank)
    assert cmc.shape == (max_rank,)
    np.testing.assert_allclose(cmc, expected[0], rtol=0, atol=1e-12)
    assert mean == pytest.approx(expected[1], abs=1e-12)
    assert isinstance(mean, float)


def test_a_curve_is_not_longer_than_the_gallery(problem):
    assert evaluate_rank(*problem)[0].shape == (50,)
    assert evaluate_rank(*problem, max_rank=100)[0].shape == (N_GALLERY,)


def test_single_gallery_shot_is_the_expectation(problem):
    distances, q_pids, g_pids, q_camids, g_camids = problem
    cmc, mean = evaluate_rank(*problem, max_rank=8, use_metric_cuhk03=True)
    curves = []
    for row, values in enumerate(distances):
        junk = (g_pids == q_pids[row]) & (g_camids == q_camids[row])
        relevant = (g_pids == q_pids[row]) & ~junk
        if relevant.any():
            curves.append(single_shot.expected_curve(values, relevant, junk, g_pids, 8))
    np.testing.assert_allclose(cmc, np.mean(np.array(curves, dtype=float), axis=0), rtol=0, atol=1e-12)
    assert mean == evaluate_rank(*problem)[1]


def test_similarities_are_ranked_from_the_largest(problem):
    distances, *labels = problem
    cmc, mean = evaluate_rank(100 - distances, *labels, similarity=True)
    expected = evaluate_rank(distances, *labels)
    assert (cmc.tolist(), mean) == (expected[0].tolist(), expected[1])


def test_it_is_called_as_the_codes_of_the_field_call_it(problem):
    names = ("distmat", "q_pids", "g_pids", "q_camids", "g_camids")
    expected = evaluate_rank(*problem)[0].tolist()
    by_name = dict(zip(names, problem, strict=True))
    assert evaluate_rank(**by_name, use_metric_cuhk03=False, use_cython=False)[0].tolist() == expected
    assert eval_func(**by_name, max_rank=50)[0].tolist() == expected
    lists = [each.tolist() for each in problem[1:]]
    assert evaluate_rank(problem[0], *lists)[0].tolist() == expected
    assert [*inspect.signature(evaluate_rank).parameters][:7] == [*names, "max_rank", "use_metric_cuhk03"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"distmat": np.zeros((N_QUERY, 3), np.float32)}, "25 x 3"),
        ({"distmat": np.full((N_QUERY, N_GALLERY), np.nan)}, "finite"),
        ({"distmat": np.zeros(3)}, "2-D"),
        ({"q_pids": np.full(N_QUERY, 99)}, "no query has a relevant gallery item"),
    ],
)
def test_mistakes_are_named(problem, change, message):
    names = ("distmat", "q_pids", "g_pids", "q_camids", "g_camids")
    with pytest.raises(InputError, match=message):
        evaluate_rank(**{**dict(zip(names, problem, strict=True)), **change})
