"""Sums of rows against loops over their elements, in Python's numbers and in exact ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.compiled import from_python
from support.python_kernels import PythonKernels
from support.sampling import examples

from reid_dist.kernels.compiled import kernel
from reid_dist.kernels.vectors import LANES, dot, single_dot, squared_difference

Rows = np.ndarray


@kernel
def sums(x: Any, y: Any) -> Any:
    """Every sum of float32 rows."""
    return dot(x, y), single_dot(x, y), squared_difference(x, y)


def in_order(x: Rows, y: Rows, term: Callable[[Any, Any], Any], number: type[np.floating]) -> float:
    """Sum of terms: element ``i`` in lane ``i mod 32``, and lanes in halves."""
    lanes = [number(0)] * LANES
    for place, (a, b) in enumerate(zip(x, y, strict=True)):
        lanes[place % LANES] = lanes[place % LANES] + term(number(a), number(b))
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    return float(lanes[0])


def expected(x: Rows, y: Rows) -> list[float]:
    return [
        in_order(x, y, lambda a, b: a * b, np.float64),
        in_order(x, y, lambda a, b: a * b, np.float32),
        in_order(x, y, lambda a, b: (a - b) * (a - b), np.float64),
    ]


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(0, 200), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e15]))
@settings(max_examples=examples(60), deadline=None)
def test_sums_are_in_the_documented_order_bit_for_bit(seed: int, dim: int, scale: float) -> None:
    rows = np.random.default_rng(seed).standard_normal((2, dim)).astype(np.float32) * np.float32(scale)
    with np.errstate(over="ignore", under="ignore"):
        assert [*sums(*rows)] == expected(*rows)


def sums_of_random_rows() -> list[list[float]]:
    """Sums of rows with whole turns of the loop and a rest, with one of them, and with neither."""
    rows = (np.random.default_rng(dim).standard_normal((2, dim)).astype(np.float32) for dim in (0, 5, 32, 64, 75, 130))
    return [[*sums(*pair)] for pair in rows]


def test_without_compilation_they_are_the_same(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(sums_of_random_rows) == sums_of_random_rows()


@pytest.mark.parametrize("first", [0, 1, 3])
def test_rows_may_begin_anywhere_in_memory(first: int) -> None:
    memory = np.random.default_rng(1).standard_normal(2 * 70 + 8).astype(np.float32)
    rows = memory[first : first + 140].reshape(2, 70)
    assert [*sums(*rows)] == expected(*rows)


@pytest.mark.parametrize(("kernel", "number"), [(dot, "double"), (single_dot, "float"), (squared_difference, "double")])
def test_lanes_stay_in_vector_registers_and_no_references_are_counted(kernel: Any, number: str) -> None:
    """Otherwise a search for neighbours takes a fifth longer."""
    call: Any = from_python(kernel)
    call(*np.ones((2, 512), np.float32))
    code = "".join(call.inspect_llvm().values())
    assert re.search(rf"phi <\d+ x {number}>", code)
    assert "NRT_incref" not in code


def test_numbers_that_are_not_finite_stay_so() -> None:
    rows = np.ones((2, 75), np.float32)
    for place, number, found in ((74, np.nan, np.isnan), (3, np.inf, np.isposinf)):
        rows[1] = 1.0
        rows[1, place] = number
        assert found(sums(*rows)).all()


def test_rows_that_are_not_together_in_memory_are_refused() -> None:
    every_second = np.ones((2, 8), np.float32)[:, ::2]
    with pytest.raises(TypeError, match="C order"):
        sums(*every_second)
