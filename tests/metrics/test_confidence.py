"""Intervals and p-values against full enumeration, plain loops, and their promises under simulation."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Mapping

import numpy as np
import pytest

from reid_dist.errors import InputError
from reid_dist.metrics import confidence
from reid_dist.metrics.confidence import bootstrap_intervals, sign_flip_p_values

NAN = float("nan")

# (pids, values, NaN as zero): ties, identities of unlike sizes, identities without a valid query.
TINY = {
    "ties": ([7, 7, 3, 5, 5, 5, 9], [0.0, 1.0, 1.0, 0.5, 0.5, 0.0, 1.0], False),
    "left out": ([1, 1, 2, 2, 3, 4, 8], [0.2, NAN, 0.9, 0.4, 0.7, 0.1, NAN], False),
    "as zero": ([1, 1, 2, 2, 3, 4], [0.2, NAN, 0.9, 0.4, NAN, 0.1], True),
    "five": ([0, -1, 4, 4, 2, 6, 6, 6], [0.25, 0.75, 1.0, 0.5, 0.0, 0.125, 0.25, 1.0], False),
}


def every_resample(
    pids: list[int], values: list[float], *, as_zero: bool, drawn: list[int] | None = None
) -> np.ndarray:
    """Means of all n^n ways of drawing identities, sorted; one loop within another."""
    pairs = [(pid, 0.0 if as_zero and value != value else value) for pid, value in zip(pids, values, strict=True)]
    pairs = [(pid, value) for pid, value in pairs if value == value]
    units = sorted({pid for pid, _ in pairs}) if drawn is None else drawn
    means = []
    for chosen in itertools.product(units, repeat=len(units)):
        total, number = 0.0, 0
        for identity in chosen:
            for pid, value in pairs:
                if pid == identity:
                    total += value
                    number += 1
        if number:
            means.append(total / number)
    return np.sort(means)


def assert_quantile(found: float, share: float, exact: np.ndarray, n_resamples: int) -> None:
    """`found` is a quantile of the exact distribution, up to four standard errors of a drawn share."""
    slack = 4 * (share * (1 - share) / n_resamples) ** 0.5
    assert np.mean(exact < found - 1e-12) <= share + slack
    assert np.mean(exact <= found + 1e-12) >= share - slack


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", TINY)
@pytest.mark.parametrize("level", [0.5, 0.9])
def test_intervals_are_quantiles_of_all_resamples(name: str, level: float) -> None:
    pids, values, as_zero = TINY[name]
    counted = np.nan_to_num(values, nan=0.0) if as_zero else np.array(values)
    found = bootstrap_intervals({"mAP": counted}, np.array(pids), level=level, n_resamples=20_000)
    exact = every_resample(pids, values, as_zero=as_zero)
    assert found.n_units**found.n_units == len(exact)
    assert_quantile(found.intervals["mAP"].low, (1 - level) / 2, exact, 20_000)
    assert_quantile(found.intervals["mAP"].high, (1 + level) / 2, exact, 20_000)


def test_metrics_may_count_different_queries() -> None:
    pids = [1, 1, 2, 3, 4]
    columns = {"a": [0.1, 0.4, 0.8, 0.2, 0.6], "b": [NAN, NAN, 0.3, NAN, 0.9]}
    found = bootstrap_intervals(
        {name: np.array(values) for name, values in columns.items()}, np.array(pids), level=0.5, n_resamples=20_000
    )
    for name, values in columns.items():
        # Drawn is from all four; a resample that holds no value of b has no mean of it.
        exact = every_resample(pids, values, as_zero=False, drawn=[1, 2, 3, 4])
        assert_quantile(found.intervals[name].low, 0.25, exact, 18_000)
        assert_quantile(found.intervals[name].high, 0.75, exact, 18_000)


def clustered(rng: np.random.Generator, n_identities: int) -> tuple[np.ndarray, np.ndarray]:
    """Queries whose values share a part with the others of their identity; the mean of all is 0.5."""
    sizes = rng.integers(2, 9, n_identities)
    shared = rng.normal(0.5, 0.2, n_identities)
    return np.repeat(np.arange(n_identities), sizes), np.repeat(shared, sizes) + rng.normal(0, 0.1, sizes.sum())


@pytest.mark.slow
def test_coverage_is_nominal_by_identity_and_far_below_by_query() -> None:
    rng = np.random.default_rng(2)
    covered = {"identity": 0, "query": 0}
    for trial in range(300):
        pids, values = clustered(rng, 60)
        for unit in covered:
            found = bootstrap_intervals({"x": values}, pids, unit=unit, n_resamples=200, seed=trial).intervals["x"]
            covered[unit] += found.low <= 0.5 <= found.high
    # Four standard errors of 300 trials are 0.05; the percentile interval of 60 identities is a little too narrow.
    assert 0.89 <= covered["identity"] / 300 <= 0.99
    assert covered["query"] / 300 < 0.8


@pytest.mark.slow
def test_false_alarms_are_nominal_by_identity_and_many_by_query() -> None:
    rng = np.random.default_rng(3)
    alarms = {"identity": 0, "query": 0}
    for trial in range(300):
        pids, values = clustered(rng, 60)
        for unit in alarms:
            p_value = sign_flip_p_values({"x": values - 0.5}, pids, unit=unit, n_resamples=199, seed=trial)["x"]
            alarms[unit] += p_value <= 0.05
    assert 0.015 <= alarms["identity"] / 300 <= 0.1
    assert alarms["query"] / 300 > 0.2


def every_sign(pids: list[int], differences: list[float]) -> float:
    """Share of all 2^n sign changes whose total is at least as far from zero as the observed one."""
    units = sorted(set(pids))
    observed = abs(sum(differences))
    as_far = 0
    for signs in itertools.product((1, -1), repeat=len(units)):
        sign = dict(zip(units, signs, strict=True))
        total = sum(sign[pid] * value for pid, value in zip(pids, differences, strict=True))
        as_far += abs(total) >= observed - 1e-12
    return as_far / 2 ** len(units)


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("steps", [1, 2, 10])
def test_p_values_are_those_of_all_sign_changes(seed: int, steps: int) -> None:
    rng = np.random.default_rng(seed)
    pids = rng.integers(0, 9, 25)
    differences = rng.integers(-steps, steps + 1, 25) / steps
    exact = every_sign(pids.tolist(), differences.tolist())
    n_all = 2 ** len(set(pids.tolist()))
    # All sign changes are taken where they are no more than the draws, whatever the seed.
    for n_resamples in (n_all, 8000):
        assert sign_flip_p_values({"x": differences}, pids, n_resamples=n_resamples, seed=seed)["x"] == exact
    drawn = sign_flip_p_values({"x": differences}, pids, n_resamples=n_all - 1, seed=seed)["x"]
    assert drawn == pytest.approx(exact, abs=4 * (exact * (1 - exact) / n_all) ** 0.5 + 1 / n_all)


def test_no_p_value_is_zero_and_no_change_is_one() -> None:
    pids = np.arange(40)
    found = sign_flip_p_values(
        {"up": np.full(40, 0.5), "none": np.zeros(40), "none_valid": np.full(40, NAN)}, pids, n_resamples=99
    )
    assert found["up"] == 1 / 100
    assert found["none"] == 1.0
    assert np.isnan(found["none_valid"])
    assert sign_flip_p_values({"x": np.array([0.3, 0.4])}, np.array([5, 5]), n_resamples=99) == {"x": 1.0}


def test_sums_that_are_equal_but_for_rounding_count_as_equal() -> None:
    # 0.1 + 0.2 - 0.3 is not 0.0 in floats; all eight sign changes are as far from zero as the observed total.
    found = sign_flip_p_values({"x": np.array([0.1, 0.2, -0.3])}, np.arange(3), n_resamples=500)
    assert found["x"] == 1.0


def test_one_identity_gives_no_interval() -> None:
    value = np.array([0.2, 0.8, 0.4, NAN])
    alone = bootstrap_intervals({"mAP": value, "none": np.full(4, NAN)}, np.array([3, 3, 3, 4]))
    assert alone.n_units == 1
    assert not alone.intervals["mAP"].is_known
    assert alone.describe() == {
        "level": 0.95, "unit": "identity", "n_units": 1, "n_resamples": 1000, "seed": 0,
        "intervals": {"mAP": [None, None], "none": [None, None]},
    }  # fmt: skip
    assert bootstrap_intervals({"mAP": value}, np.array([3, 3, 3, 4]), unit="query").intervals["mAP"].is_known
    at_zero = np.nan_to_num(value, nan=0.0)
    assert bootstrap_intervals({"mAP": at_zero}, np.array([3, 3, 3, 4])).intervals["mAP"].is_known
    # One metric may have enough values where another has not.
    mixed = bootstrap_intervals({"few": np.array([NAN, 0.5]), "both": np.array([0.1, 0.5])}, np.array([1, 2]))
    assert [interval.is_known for interval in mixed.intervals.values()] == [False, True]


def test_no_metric_and_no_query() -> None:
    assert bootstrap_intervals({}, np.arange(3)).describe()["intervals"] == {}
    assert not bootstrap_intervals({"x": np.empty(0)}, np.empty(0, np.int64)).intervals["x"].is_known


def test_an_interval_depends_on_its_own_values_and_the_seed_alone() -> None:
    rng = np.random.default_rng(0)
    pids, values = clustered(rng, 50)
    companions: Mapping[str, np.ndarray] = {f"m{i}": rng.random(len(pids)) for i in range(7)}
    alone = bootstrap_intervals({"x": values}, pids, seed=4)
    among = bootstrap_intervals({**companions, "x": values}, pids, seed=4)
    assert alone.intervals["x"] == among.intervals["x"]
    assert alone.intervals["x"] != bootstrap_intervals({"x": values}, pids, seed=5).intervals["x"]
    # Names of identities are names.
    assert bootstrap_intervals({"x": values}, pids * 1000 - 7, seed=4).intervals == alone.intervals
    order = rng.permutation(len(pids))
    shuffled = bootstrap_intervals({"x": values[order]}, pids[order], seed=4).intervals["x"]
    assert (shuffled.low, shuffled.high) == pytest.approx((alone.intervals["x"].low, alone.intervals["x"].high))
    p_value = sign_flip_p_values({"x": values - 0.48}, pids, seed=4, n_resamples=500)
    assert p_value == sign_flip_p_values({"x": values - 0.48}, pids, seed=4, n_resamples=500)
    assert p_value["x"] == sign_flip_p_values({**companions, "x": values - 0.48}, pids, seed=4, n_resamples=500)["x"]


def test_identities_of_one_query_are_queries() -> None:
    values = np.random.default_rng(1).random(30)
    by = [bootstrap_intervals({"x": values}, np.arange(30), unit=unit).intervals for unit in ("identity", "query")]
    assert by[0] == by[1]


@pytest.mark.slow
def test_memory_is_bounded_by_the_values_and_not_by_the_resamples() -> None:
    rng = np.random.default_rng(0)
    pids = rng.integers(0, 100_000, 200_000)
    values = {f"m{i}": rng.random(200_000) for i in range(6)}
    tracemalloc.start()
    try:
        bootstrap_intervals(values, pids, n_resamples=60)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Measured: 16 MB. All weights at once would be 48 MB for these 60 resamples alone.
    assert peak < 30e6


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"level": 0.0}, "level must lie between 0 and 1"),
        ({"level": 95}, "level must lie between 0 and 1"),
        ({"level": NAN}, "level must lie between 0 and 1"),
        ({"n_resamples": 0}, "n_resamples must be a whole number, at least 1"),
        ({"n_resamples": 10.0}, "n_resamples"),
        ({"n_resamples": True}, "n_resamples"),
        ({"n_resamples": 39}, "draw at least 40"),
        ({"n_resamples": 199, "level": 0.99}, "draw at least 200"),
        ({"n_resamples": 19, "level": 0.9}, "draw at least 20,"),
        ({"seed": -1}, "seed must be a whole number, at least 0"),
        ({"unit": "camera"}, "unit must be one of identity, query, found 'camera'"),
        ({"values": {"x": np.zeros(3)}}, "'x' must be numbers, one for each of 4 queries"),
        ({"values": {"x": np.array(["a"] * 4)}}, "'x' must be numbers"),
        ({"values": {"x": np.array([0, 1, np.inf, 0])}}, "row 2 is infinite"),
    ],
)
def test_what_cannot_be_drawn_is_refused(options: dict, part: str) -> None:
    usual = {"values": {"x": np.array([0.0, 1.0, 0.5, 0.5])}, "pids": np.arange(4)}
    with pytest.raises(InputError) as refused:
        bootstrap_intervals(**(usual | options))
    assert part in str(refused.value)


def test_the_fewest_resamples_are_enough() -> None:
    values = {"x": np.array([0.0, 1.0, 0.5, 0.5])}
    assert bootstrap_intervals(values, np.arange(4), n_resamples=40).intervals["x"].is_known
    assert bootstrap_intervals(values, np.arange(4), n_resamples=200, level=0.99).intervals["x"].is_known


@pytest.mark.parametrize("n_units", [2, 33, 200])
def test_the_size_of_a_block_of_resamples_has_no_effect(monkeypatch: pytest.MonkeyPatch, n_units: int) -> None:
    rng = np.random.default_rng(n_units)
    values = {name: rng.standard_normal(3 * n_units) for name in ("mAP", "mINP")}
    values["mINP"][::4] = np.nan
    pids = rng.integers(0, n_units, 3 * n_units)
    found = []
    for at_once in (1, 5 * n_units, 2**20):
        monkeypatch.setattr(confidence, "_WEIGHTS_AT_ONCE", at_once)
        found.append((bootstrap_intervals(values, pids).intervals, sign_flip_p_values(values, pids, n_resamples=500)))
    assert found[0] == found[1] == found[2]
