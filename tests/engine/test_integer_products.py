"""The choice of products in eight bits or in float32."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from exact_products import product_of
from reranking_runs import bare
from row_blocks import block_of

from reid_dist import nearest
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.distances import integers, quantised
from reid_dist.engine.distances.quantised import quantise
from reid_dist.engine.reductions import pair_rows, screen_pairs
from reid_dist.errors import InputError

pytest.importorskip("onnxruntime")


@pytest.fixture(autouse=True)
def forced(monkeypatch):
    """Integers are forced; what the process knows of them is forgotten before and after."""
    monkeypatch.setenv(integers.VARIABLE, "int8")
    integers._exact_product.cache_clear()
    yield
    integers._exact_product.cache_clear()


def test_products_of_integers_are_exact():
    """For integers of the range that was chosen on this machine, the largest among them."""
    product = integers.integer_product(512)
    most, rng = product.largest, np.random.default_rng(0)
    left, right = rng.integers(0, 2 * most + 1, (33, 700), np.uint8), rng.integers(-most, most + 1, (700, 45), np.int8)
    left[:5], right[:, :20], right[:, 20:30] = 2 * most, most, -most
    out = np.empty((33, 45), np.int32)
    product.multiply(left, right, out)
    np.testing.assert_array_equal(out, left.astype(np.int64) @ right.astype(np.int64))


def test_the_library_sends_no_events(tmp_path):
    """It would keep the identity of its session among the temporary files."""
    code = "from reid_dist.engine.distances.integers import IntegerProduct as P; print(P().largest)"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout == b"127\n"
    assert list(tmp_path.iterdir()) == []


def test_unknown_screens_are_refused(monkeypatch):
    monkeypatch.setenv(integers.VARIABLE, "int4")
    rows = bare(np.eye(5, dtype=np.float32))
    with pytest.raises(InputError, match="REID_DIST_SCREEN is 'int4'; it may be float32 or int8"):
        nearest(rows, rows, k=2)


def of_a_processor(monkeypatch, most):
    """Products of a processor that adds pairs of neighbouring terms with saturation, at `most` or its negative."""

    class Saturating(integers.IntegerProduct):
        def multiply(self, left, right, out):
            terms = left.astype(np.int64)[:, :, None] * right.astype(np.int64)
            terms = np.pad(terms, ((0, 0), (0, terms.shape[1] % 2), (0, 0)))
            out[:] = np.clip(terms[:, ::2] + terms[:, 1::2], -most - 1, most).sum(axis=1)

    monkeypatch.setattr(integers, "IntegerProduct", Saturating)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("most", "largest"), [((1 << 31) - 1, 127), ((1 << 15) - 1, 90)])
def test_the_largest_integers_whose_products_are_exact_are_used(most, largest, monkeypatch):
    of_a_processor(monkeypatch, most)
    assert integers.integer_product(512).largest == largest


def test_products_that_saturate_are_not_used(monkeypatch):
    """One less than the sum of two products of the smallest range."""
    of_a_processor(monkeypatch, 4 * 90 * 90 - 1)
    with pytest.raises(InputError, match="not exact on this machine"):
        integers.integer_product(512)
    monkeypatch.delenv(integers.VARIABLE)
    assert integers.integer_product(512) is None


def test_without_the_library_products_are_float32(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    monkeypatch.setattr(integers, "has_integers", lambda: False)
    with pytest.raises(InputError, match=r"onnxruntime is not installed: pip install 'reid-dist\[int8\]'"):
        integers.integer_product(512)
    monkeypatch.delenv(integers.VARIABLE)
    assert integers.integer_product(512) is None


def test_slower_products_are_not_used(monkeypatch):
    monkeypatch.delenv(integers.VARIABLE)
    monkeypatch.setattr(integers, "_saved", lambda product, dim: dim / 100)
    assert integers.integer_product(100, cost=1.0) is None
    assert integers.integer_product(101, cost=1.0) is not None
    assert integers.integer_product(101, cost=1.1) is None
    monkeypatch.setenv(integers.VARIABLE, "float32")
    assert integers.integer_product(1000) is None


def test_products_with_residuals_are_used_where_they_are_faster_or_forced(monkeypatch):
    product = integers.integer_product(512)
    exact = product.largest == 127
    assert integers.residuals_pay(512) == exact
    assert integers.residuals_pay(integers.LARGEST_DIM // 2) == exact
    # Products of twice the elements may exceed int32.
    assert not integers.residuals_pay(integers.LARGEST_DIM // 2 + 1)
    monkeypatch.delenv(integers.VARIABLE)
    for floats in (9.6, 9.4):
        monkeypatch.setattr(integers, "_measured", lambda product, dim, t=floats: integers._Times(t, 3.0, 5.0))
        assert integers.residuals_pay(512) == (exact and floats > 3.0 + 5.0 + integers.COST_OF_RESIDUALS)
    with monkeypatch.context() as patch:
        patch.setattr(integers, "_exact_product", lambda: product_of(90))
        assert not integers.residuals_pay(512)


def test_rows_too_long_for_32_bits_are_computed_in_float32():
    longest = integers.LARGEST_DIM
    assert longest * 127 * 254 < 2**31
    rows = block_of(np.ones((2, longest + 1), np.float32))
    assert (
        quantise(screen_pairs(REGISTERED.get("cosine"), pair_rows(REGISTERED.get("cosine"), rows, rows), np.float32))
        is None
    )


def test_blocks_are_left_to_float32_until_the_kernels_are_compiled(monkeypatch):
    monkeypatch.delenv(integers.VARIABLE)
    monkeypatch.setattr(integers, "_saved", lambda product, dim: 1e9)
    rows = block_of(np.random.default_rng(0).standard_normal((2048, 4)))
    plain = screen_pairs(REGISTERED.get("cosine"), pair_rows(REGISTERED.get("cosine"), rows, rows), np.float32)
    lacks = [True, True, False]
    monkeypatch.setattr(quantised, "lacks_integers", lambda: lacks.pop(0))
    monkeypatch.setattr(quantised._Screened, "n_products", 0.0)
    assert [quantise(plain) is None for _ in range(4)] == [True, True, False, False]
    # Three blocks in float32 would take as long as the compilation.
    monkeypatch.setattr(quantised, "lacks_integers", lambda: True)
    monkeypatch.setattr(quantised, "_MOST_UNCOMPILED", 2 * 2048 * 2048 * 4)
    monkeypatch.setattr(quantised._Screened, "n_products", 0.0)
    assert [quantise(plain) is None for _ in range(4)] == [True, True, False, False]
