"""Exponential, logarithm, power and weights against decimal arithmetic of fifty digits."""

from __future__ import annotations

import math
from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.kernels.exponential import exponentials, logarithms, powers, similarity_weights

PRECISE = Context(prec=50, Emin=-9999, Emax=9999)


def fixed_exp(x: float) -> float:
    return float(exponentials(np.array([x]))[0])


def fixed_log(x: float) -> float:
    return float(logarithms(np.array([x]))[0])


def fixed_power(x: float, exponent: float) -> float:
    return float(powers(np.array([x]), exponent)[0])


def units_off(found: float, exact: Decimal) -> float:
    """Distance from the true value in units in the last place."""
    unit = Decimal(math.ulp(float(exact)))
    return abs(float(PRECISE.divide(PRECISE.subtract(Decimal(found), exact), unit)))


def error(x: float) -> float:
    return units_off(fixed_exp(x), PRECISE.exp(Decimal(x)))


def log_error(x: float) -> float:
    return units_off(fixed_log(x), PRECISE.ln(Decimal(x)))


def power_error(x: float, exponent: float) -> float:
    """Distance from the true value, as a share of it."""
    exact = PRECISE.power(Decimal(x), Decimal(exponent))
    return abs(float(PRECISE.divide(PRECISE.subtract(Decimal(fixed_power(x, exponent)), exact), exact)))


def exp_arguments() -> list[float]:
    rng = np.random.default_rng(5)
    halves = (np.arange(-1070, 1020, 13) + 0.5) * math.log(2)
    return [
        *(rng.uniform(-1, 0, 2000)), *rng.uniform(-4, 4, 2000), *rng.uniform(-708, 709, 2000),
        *(-(10.0 ** rng.uniform(-20, 0, 500))), *halves, *np.nextafter(halves, 0), *np.nextafter(halves, 1000),
    ]  # fmt: skip


def test_error_is_as_documented() -> None:
    assert max(error(float(x)) for x in exp_arguments()) < 0.7


@given(x=st.floats(-745.2, 709.7827))
def test_error_is_as_documented_anywhere(x: float) -> None:
    assert error(x) < 0.7


@pytest.mark.parametrize("x", [0.0, -0.0, 1e-300, -5e-324, 1e-17, -1e-17])
def test_is_exactly_one_at_zero(x: float) -> None:
    assert fixed_exp(x) == 1.0


def test_the_ends_of_the_range() -> None:
    largest = 709.782712893384
    assert math.isfinite(fixed_exp(largest))
    assert error(largest) < 0.7
    assert fixed_exp(math.nextafter(largest, 710)) == math.inf
    assert fixed_exp(1e308) == fixed_exp(math.inf) == math.inf
    assert fixed_exp(-745.1332191019411) == 5e-324
    assert fixed_exp(-745.2) == fixed_exp(-746.5) == fixed_exp(-1e308) == fixed_exp(-math.inf) == 0.0
    assert math.isnan(fixed_exp(math.nan))


@given(x=st.floats(-745.2, 709.7), step=st.floats(1e-15, 1e-3))
def test_never_falls_by_more_than_a_rounding(x: float, step: float) -> None:
    assert fixed_exp(x) <= math.nextafter(fixed_exp(x + step), math.inf)


def log_arguments() -> list[float]:
    rng = np.random.default_rng(6)
    around = 1 + rng.choice([-1, 1], 1000) * 10.0 ** rng.uniform(-16, -1, 1000)
    roots = np.array([math.sqrt(0.5), 1.0, math.sqrt(2)])
    return [
        *rng.uniform(0, 1, 3000), *rng.uniform(0.5, 2, 3000), *(10.0 ** rng.uniform(-307, 308, 1000)), *around,
        *np.nextafter(roots, 0), *np.nextafter(roots, 9), *(2.0 ** np.arange(-1074, 1024, 7)),
    ]  # fmt: skip


def test_the_error_of_the_logarithm_is_as_documented() -> None:
    assert max(log_error(float(x)) for x in log_arguments() if x != 1) < 2


@given(x=st.floats(5e-324, 1.7e308))
def test_the_error_of_the_logarithm_is_as_documented_anywhere(x: float) -> None:
    assert x == 1 or log_error(x) < 2


def test_special_values_of_the_logarithm() -> None:
    assert fixed_log(1.0) == 0.0
    assert fixed_log(0.0) == fixed_log(-0.0) == -math.inf
    assert fixed_log(math.inf) == math.inf
    assert math.isnan(fixed_log(math.nan))
    assert fixed_log(5e-324) == pytest.approx(-744.4400719213812, abs=1e-12)
    assert [fixed_log(2.0**k) / math.log(2) for k in (-1, 1, 10)] == pytest.approx([-1, 1, 10], rel=1e-15)


@given(x=st.floats(1e-6, 1), exponent=st.floats(0.01, 20))
def test_the_error_of_a_power(x: float, exponent: float) -> None:
    """An error of the logarithm grows with the logarithm of the result, which is 280 at the most here."""
    assert power_error(x, exponent) < 1e-15 * (1 + 2 * abs(exponent * math.log(x)))


@pytest.mark.parametrize("exponent", [0.01, 0.5, 1.0, 2.0, 3.0, 100.0])
def test_special_values_of_a_power(exponent: float) -> None:
    assert fixed_power(0.0, exponent) == 0.0
    assert fixed_power(1.0, exponent) == 1.0
    assert math.isnan(fixed_power(math.nan, exponent))
    assert fixed_power(1e-300, exponent) >= 0.0


@given(x=st.floats(0, 1), step=st.floats(1e-12, 1e-3), exponent=st.floats(0.1, 8))
def test_a_power_never_falls_by_more_than_roundings(x: float, step: float, exponent: float) -> None:
    above = fixed_power(x + step, exponent)
    assert fixed_power(x, exponent) <= above * (1 + 1e-13)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 2.5, 3.0])
def test_weights_of_similarities(alpha: float) -> None:
    distance = np.array([[0.0, 0.25, 1.0, 1.5, 2.0], [-1e-16, 0.999, 1.0 + 1e-16, np.inf, 0.5]])
    weights = similarity_weights(distance, alpha)
    assert np.isfinite(weights).all()
    if alpha == 0:
        assert (weights == 1).all()
        return
    expected = np.maximum(1 - distance, 0) ** alpha
    np.testing.assert_allclose(weights, expected, rtol=1e-13, atol=0)
    assert (weights[distance >= 1] == 0).all()
    assert weights[0, 0] == 1


def test_no_weight_is_above_one() -> None:
    """Rows in one direction may have a cosine of a little more than 1, and any power of that must stay bounded."""
    distance = np.array([[-2.3e-16, -1e-12, 0.0, 1e-16, 0.3]])
    for alpha in (0.1, 3.0, 1e18, 1e300):
        weights = similarity_weights(distance, alpha)
        assert weights[0, :3].tolist() == [1.0, 1.0, 1.0]
        assert ((weights >= 0) & (weights <= 1)).all()


def test_bits_depend_on_the_argument_alone() -> None:
    """Not on the shape of an array, nor on the place of a number in it."""
    arguments = np.array([*exp_arguments(), -np.inf, np.inf, np.nan])
    alone = np.array([fixed_exp(float(x)) for x in arguments])
    many = np.tile(arguments, 3)
    assert exponentials(many).tobytes() == np.tile(alone, 3).tobytes()
    assert exponentials(many[: 2 * len(arguments)].reshape(2, -1).T).T.tobytes() == np.tile(alone, 2).tobytes()
