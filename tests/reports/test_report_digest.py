"""The digest changes with every bit of the answer and with nothing else."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from reid_dist.reports import result_digest

names = st.text(min_size=1, max_size=6)
floats = hnp.arrays(np.float64, st.integers(0, 6), elements=st.floats(allow_nan=True))
integers = hnp.arrays(np.int64, st.integers(0, 6))
strings = st.lists(st.text(alphabet="abé ", max_size=4), max_size=6).map(lambda items: np.array(items, dtype="<U5"))
columns = st.dictionaries(names, floats | integers | strings, max_size=4)
metrics = st.dictionaries(names, st.floats(allow_nan=True), max_size=4)
curves = st.dictionaries(names, floats, max_size=3)


def test_layout_is_the_documented_one() -> None:
    """Written out by hand from the grammar at the head of the module."""

    def text(value: bytes) -> bytes:
        return struct.pack("<Q", len(value)) + value

    def count(value: int) -> bytes:
        return struct.pack("<Q", value)

    answer = b"reid-dist result 1"
    answer += text(b"metrics") + count(1)
    answer += text(b"mAP") + text(b"<f8") + count(0) + struct.pack("<d", 0.25)
    answer += text(b"curves") + count(1)
    answer += text(b"CMC") + text(b"<f8") + count(1) + count(2) + struct.pack("<2d", 0.5, 1.0)
    answer += text(b"per_query") + count(3)
    answer += text(b"AP") + text(b"<f8") + count(1) + count(2) + struct.pack("<d", 0.25) + b"\0" * 6 + b"\xf8\x7f"
    answer += text(b"n_relevant") + text(b"<i8") + count(1) + count(2) + struct.pack("<2q", 3, 0)
    answer += text(b"reason") + text(b"text") + count(1) + count(2) + text(b"") + text("né".encode())
    found = result_digest(
        {"mAP": 0.25},
        {"CMC": np.array([0.5, 1.0])},
        {
            "reason": np.array(["", "né"]),
            "n_relevant": np.array([3, 0]),
            "AP": np.array([0.25, np.nan]),
        },
    )
    assert found == hashlib.sha256(answer).hexdigest()


@pytest.mark.slow
@given(metrics, curves, columns)
def test_order_of_names_and_storage_do_not_matter(
    metrics: dict[str, float], curves: dict[str, Any], columns: dict[str, Any]
) -> None:
    def turned(mapping: dict[str, Any]) -> dict[str, Any]:
        return dict(reversed(mapping.items()))

    stored = {}
    for name, array in columns.items():
        strided = np.repeat(array, 2)[::2]
        stored[name] = strided.astype("<U40" if array.dtype.kind == "U" else array.dtype.newbyteorder(">"))
    assert result_digest(turned(metrics), turned(curves), turned(stored)) == result_digest(metrics, curves, columns)


@given(floats.filter(len), st.integers(0, 63), st.data())
def test_any_changed_bit_of_a_number_changes_it(values: np.ndarray, bit: int, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    changed = values.copy()
    changed.view(np.uint64)[at] ^= np.uint64(1) << np.uint64(bit)
    same = bool(np.isnan(values[at]) and np.isnan(changed[at]))
    before, after = (result_digest({}, {"CMC": array}, {"AP": array}) for array in (values, changed))
    assert (before == after) is same
    scalars = (result_digest({"mAP": float(array[at])}, {}, {}) for array in (values, changed))
    assert (len(set(scalars)) == 1) is same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.array(["ab", "c"]), np.array(["a", "bc"])),
        (np.array(["ab"]), np.array(["ab", ""])),
        (np.array([0.0]), np.array([-0.0])),
        (np.array([1.0], dtype=np.float32), np.array([1.0])),
        (np.array([1]), np.array([1.0])),
        (np.array([1, 0]), np.array([True, False])),
        (np.zeros((2, 3)), np.zeros((3, 2))),
        (np.array(["1"]), np.array([1])),
    ],
    ids=["moved letter", "extra empty", "signed zero", "float32", "integer", "boolean", "shape", "string"],
)
def test_different_arrays_differ(one: np.ndarray, other: np.ndarray) -> None:
    assert result_digest({}, {}, {"x": one}) != result_digest({}, {}, {"x": other})


def test_names_and_sections_count() -> None:
    values = np.array([0.5])
    digests = [
        result_digest({"mAP": 0.5}, {}, {}),
        result_digest({"mINP": 0.5}, {}, {}),
        result_digest({}, {"mAP": values}, {}),
        result_digest({}, {}, {"mAP": values}),
        result_digest({}, {}, {}),
    ]
    assert len(set(digests)) == len(digests)


def test_every_nan_is_the_same() -> None:
    bits = [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF0000000000001, 0x7FFFFFFFFFFFFFFF]
    digests = {result_digest({}, {}, {"AP": np.array([word], dtype=np.uint64).view(np.float64)}) for word in bits}
    assert len(digests) == 1


def test_a_lone_surrogate_is_no_error() -> None:
    assert len(result_digest({}, {}, {"reason": np.array(["\udcff"])})) == 64


@pytest.mark.parametrize("values", [np.array([object()]), np.array([1j]), np.array([b"x"])])
def test_values_without_canonical_bytes_are_refused(values: np.ndarray) -> None:
    with pytest.raises(TypeError, match="no canonical bytes"):
        result_digest({}, {}, {"x": values})
