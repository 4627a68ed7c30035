"""Checksums of rows, against sums of Python's integers, which do not overflow."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st
from support.python_kernels import PythonKernels

from reid_dist.errors import DamagedStoreError
from reid_dist.kernels.checksums import weighted_sums
from reid_dist.stores.digests import RowChecks, is_owned, row_checksums

DTYPES = ["<f2", "<f4", "<f8"]


def expected(rows: np.ndarray) -> list[int]:
    words = rows.view(f"<u{min(4, rows.dtype.itemsize)}").tolist()
    text = blake3(b"reid_dist row checksums").digest(length=8 * len(words[0]))
    factors = [int.from_bytes(text[place : place + 8], "little") | 1 for place in range(0, len(text), 8)]
    return [sum(word * factor for word, factor in zip(row, factors, strict=True)) % 2**64 for row in words]


def random_rows(dtype: str, n: int = 9, dim: int = 37) -> np.ndarray:
    """Any bit patterns: those of infinities, of NaN and of both zeros as well."""
    n_bytes = n * dim * np.dtype(dtype).itemsize
    return np.random.default_rng(dim).integers(0, 256, n_bytes, np.uint8).view(dtype).reshape(n, dim)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [1, 7, 128])
def test_checksums_are_sums_modulo_two_to_the_64(dtype: str, dim: int) -> None:
    rows = random_rows(dtype, dim=dim)
    assert row_checksums(rows).tolist() == expected(rows)
    assert row_checksums(rows[:0]).shape == (0,)


def sums_of_large_words() -> list[str]:
    return [str(each) for each in row_checksums(random_rows("<f8"))]


def test_without_compilation_they_are_the_same_and_nothing_warns(python_kernels: PythonKernels) -> None:
    assert python_kernels.call(sums_of_large_words) == sums_of_large_words()
    assert weighted_sums.py_func is not weighted_sums


@given(st.data())
def test_any_change_of_one_number_changes_the_checksum(data: Any) -> None:
    dtype = data.draw(st.sampled_from(DTYPES))
    rows = random_rows(dtype, n=1)
    words = rows.copy().view(f"<u{rows.dtype.itemsize}")
    column = data.draw(st.integers(0, rows.shape[1] - 1))
    words[0, column] ^= words.dtype.type(data.draw(st.integers(1, 2 ** (8 * rows.dtype.itemsize) - 1)))
    assert row_checksums(words.view(dtype))[0] != row_checksums(rows)[0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_exchanged_numbers_and_signs_change_the_checksum(dtype: str) -> None:
    row = random_rows(dtype, n=1)
    sign = row.view(f"<u{row.dtype.itemsize}").dtype.type(1 << (8 * row.dtype.itemsize - 1))
    negated = (row.view(sign.dtype) ^ sign).view(dtype)
    changed = [row, negated, row[:, ::-1]]
    for one in range(row.shape[1]):
        for other in range(one):
            exchanged, turned = row.copy(), row.copy()
            exchanged[0, [one, other]] = row[0, [other, one]]
            turned[0, [one, other]] = negated[0, [one, other]]
            changed += [exchanged, turned]
    checksums = row_checksums(np.concatenate(changed))
    assert len(set(checksums.tolist())) == len(changed)


def test_a_chunk_is_verified_once_and_its_checksums_stay() -> None:
    """A thread that comes late must not put those of bytes that were damaged since."""
    checks = RowChecks(6, 2)
    right = np.array([1, 2, 3], np.uint64)

    def verified() -> str:
        assert not checks.knows(1)
        assert checks.verify(1, unreachable) is None
        checks.put(3, right)
        return "rows"

    def unreachable() -> str:
        raise AssertionError("the chunk is being verified, or has been")

    def damaged() -> str:
        checks.put(0, right + np.uint64(1))
        raise DamagedStoreError("chunk 0")

    assert checks.verify(1, verified) == "rows"
    checks.wait(1)
    assert checks.knows(1)
    assert checks.verify(1, unreachable) is None
    assert checks.agree(np.array([3, 5]), right[[0, 2]])
    assert not checks.agree(np.array([3, 5]), right[[0, 1]])
    with pytest.raises(DamagedStoreError):
        checks.verify(0, damaged)
    checks.wait(0)
    assert not checks.knows(0)
    assert checks.verify(0, lambda: "again") == "again"


def test_arrays_that_this_process_owns(tmp_path: Path) -> None:
    own = np.arange(12.0).reshape(3, 4)
    np.save(tmp_path / "a.npy", own)
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    strides = np.lib.stride_tricks.as_strided
    for owned in (own, own[1:], own.T[::2], np.frombuffer(own.tobytes()), strides(own, (2, 2), (8, 8))):
        assert is_owned(owned)
    raw = mmap.mmap(-1, 96)
    for other in (mapped, mapped[1:], np.asarray(mapped), strides(mapped, (2, 2), (8, 8)), np.frombuffer(raw)):
        assert not is_owned(other)
