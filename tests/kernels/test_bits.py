"""Bits of numbers against the bytes that Python packs."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples

from reid_dist.kernels import bits as library
from reid_dist.kernels.settings import kernel


@kernel
def to_bits_and_back(number: float) -> Any:
    """Bits of a number, and the number of these bits."""
    bits = library.bits_of(number)
    return bits, library.from_bits(bits)


@kernel
def elements(values: Any) -> Any:
    """All elements of a row of float64 that is given as float32."""
    found = np.empty(len(values) // 2, np.float64)
    for place in range(len(found)):
        found[place] = library.float64_at(values, place)
    return found


@given(number=st.floats(allow_subnormal=True))
@settings(max_examples=examples(50), deadline=None)
def test_bits_are_those_of_packed_bytes(number: float) -> None:
    twin = library.bits_of.py_func(number)  # type: ignore[attr-defined]
    for bits, again in (to_bits_and_back(number), (twin, library.from_bits.py_func(twin))):  # type: ignore[attr-defined]
        assert struct.pack("<q", bits) == struct.pack("<d", number)
        assert again == number or (math.isnan(again) and math.isnan(number))
        assert math.copysign(1.0, again) == math.copysign(1.0, number)


@pytest.mark.parametrize("begin", [0, 1, 3])
def test_elements_of_a_row_in_float32(begin: int) -> None:
    """Also of rows that begin in the middle of eight bytes."""
    expected = np.array([0.1, -np.inf, 5e-324, 3.0])
    values = np.zeros(16, np.float32)
    values[begin : begin + 8] = np.frombuffer(expected.tobytes(), np.float32)
    row = values[begin : begin + 8]
    assert elements(row).tolist() == expected.tolist()
    twin = library.float64_at.py_func  # type: ignore[attr-defined]
    assert [twin(row, place) for place in range(4)] == expected.tolist()
