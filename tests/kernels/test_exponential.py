"""The exponential function against decimal arithmetic of fifty digits."""

from __future__ import annotations

import math
from decimal import Context, Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from python_kernels import PythonKernels

from reid_dist.kernels.exponential import fixed_exp

PRECISE = Context(prec=50, Emin=-9999, Emax=9999)


def error(x: float) -> float:
    """Distance from the true value in units in the last place."""
    exact = PRECISE.exp(Decimal(x))
    unit = Decimal(math.ulp(float(exact)))
    return abs(float(PRECISE.divide(PRECISE.subtract(Decimal(fixed_exp(x)), exact), unit)))


def spread_arguments() -> list[float]:
    rng = np.random.default_rng(5)
    halves = (np.arange(-1070, 1020, 13) + 0.5) * math.log(2)
    return [
        *(rng.uniform(-1, 0, 2000)), *rng.uniform(-4, 4, 2000), *rng.uniform(-708, 709, 2000),
        *(-(10.0 ** rng.uniform(-20, 0, 500))), *halves, *np.nextafter(halves, 0), *np.nextafter(halves, 1000),
    ]  # fmt: skip


def test_error_is_as_documented() -> None:
    assert max(error(float(x)) for x in spread_arguments()) < 0.7


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


def all_bits() -> list[str]:
    ends = [0.0, 709.782712893384, 709.8, -745.1332191019411, -745.2, -800.0, math.inf, -math.inf]
    return [float(fixed_exp(float(x))).hex() for x in [*spread_arguments(), *ends]]


def test_without_a_compiler(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(all_bits) == all_bits()
