"""The choice of products in eight bits or in float32."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from support.reranking_runs import bare
from support.row_blocks import block_of

from reid_dist import nearest
from reid_dist.core.environment import SCREEN_VARIABLE
from reid_dist.engine.calibration import seconds_saved
from reid_dist.engine.distances import DISTANCES as REGISTERED
from reid_dist.engine.distances import integers, quantised
from reid_dist.engine.distances.integers import PROVIDERS, Provider
from reid_dist.engine.distances.quantised import product_for
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.engine.reductions.base import pair_rows
from reid_dist.errors import InputError, UnknownNameError

pytest.importorskip("onnxruntime")

FORCED = Policy("int8")


def provided(name, make, *, is_installed=True):
    """Policies of a provider, with integers forced and not; it is known from then on."""
    if name not in PROVIDERS:
        PROVIDERS.register(Provider(name, "for a test", "", "spare", lambda: is_installed, make))
    return Policy("int8", name), Policy(None, name)


def test_products_of_integers_are_exact():
    """For the largest integers and random ones."""
    product, most, rng = FORCED.integer_product(), integers.LARGEST_INTEGER, np.random.default_rng(0)
    left, right = rng.integers(0, 2 * most + 1, (33, 700), np.uint8), rng.integers(-most, most + 1, (700, 45), np.int8)
    left[:5], right[:, :20], right[:, 20:30] = 2 * most, most, -most
    out = np.empty((33, 45), np.int32)
    product.multiply(left, right, out)
    np.testing.assert_array_equal(out, left.astype(np.int64) @ right.astype(np.int64))


def test_the_library_sends_no_events(tmp_path):
    """It would keep the identity of its session among the temporary files."""
    code = "from reid_dist.engine.policy import UNFORCED; print(UNFORCED.integer_product() is None)"
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    found = subprocess.run(
        [sys.executable, "-c", code], env={**environment, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, check=True
    )
    assert found.stdout in (b"False\n", b"True\n")
    assert list(tmp_path.iterdir()) == []


def test_unknown_products_and_providers_are_refused(monkeypatch):
    monkeypatch.setenv(SCREEN_VARIABLE, "int4")
    rows = bare(np.eye(5, dtype=np.float32))
    with pytest.raises(InputError, match="REID_DIST_SCREEN is 'int4'; it may be float32, int8 or cuda"):
        nearest(rows, rows, k=2)
    with pytest.raises(UnknownNameError, match="onnxruntime"):
        Policy(None, "onnx").integer_product()


class Saturating:
    """Products of a processor that adds pairs of neighbouring terms with saturation, at `most` or its negative."""

    def __init__(self, most):
        self.most = most

    def multiply(self, left, right, out):
        terms = left.astype(np.int64)[:, :, None] * right.astype(np.int64)
        terms = np.pad(terms, ((0, 0), (0, terms.shape[1] % 2), (0, 0)))
        out[:] = np.clip(terms[:, ::2] + terms[:, 1::2], -self.most - 1, self.most).sum(axis=1)


@pytest.mark.slow
def test_exact_products_are_used():
    """At most 2^31 - 1 in absolute value, as in 32 bits."""
    for policy in provided("exact", lambda: Saturating((1 << 31) - 1)):
        assert isinstance(policy.integer_product(), Saturating)


def test_products_that_saturate_are_not_used():
    """One less than the sum of two products of the largest integers."""
    forced, unforced = provided("saturating", lambda: Saturating(4 * 127 * 127 - 1))
    with pytest.raises(InputError, match=r"int8 are forced \(REID_DIST_SCREEN, .*not exact on this machine"):
        forced.integer_product()
    assert unforced.integer_product() is None
    assert seconds_saved(512, unforced) == 0.0


def test_without_the_library_products_are_float32():
    def missing():
        raise ImportError

    def broken():
        raise ImportError("no libgomp")

    forced, unforced = provided("missing", missing, is_installed=False)
    with pytest.raises(InputError, match=r"missing is not installed: pip install 'reid-dist\[spare\]'"):
        forced.integer_product()
    assert unforced.integer_product() is None
    assert not forced.may_use_integers
    with pytest.raises(InputError, match=r"broken cannot be imported \(no libgomp\): pip install"):
        provided("broken", broken)[0].integer_product()
    assert product_for(screen_of(block_of(np.ones((1024, 4)))), unforced) is None


def screen_of(rows):
    """Screen in float32 of rows among themselves."""
    cosine = REGISTERED.get("cosine")
    return cosine.screen_pairs(pair_rows(cosine, rows, rows), np.float32)


def test_small_blocks_are_computed_in_float32_unless_integers_are_forced(monkeypatch):
    rows = block_of(np.random.default_rng(0).standard_normal((1023, 4)))
    assert product_for(screen_of(rows), FORCED) is not None
    monkeypatch.setattr(quantised, "lacks_integers", lambda: False)
    assert product_for(screen_of(rows), UNFORCED) is None
    assert product_for(screen_of(block_of(np.ones((1024, 4)))), UNFORCED) is not None
    assert product_for(screen_of(block_of(np.ones((1024, 4)))), Policy("float32")) is None


def test_rows_too_long_for_32_bits_are_computed_in_float32():
    longest = integers.LARGEST_DIM
    assert longest * 127 * 254 < 2**31
    rows = block_of(np.ones((2, longest + 1), np.float32))
    assert product_for(screen_of(rows), FORCED) is None
    assert product_for(screen_of(block_of(np.ones((2, longest), np.float32))), FORCED) is not None


def test_blocks_are_left_to_float32_until_the_kernels_are_compiled(monkeypatch):
    rows = block_of(np.random.default_rng(0).standard_normal((1024, 4)))
    plain = screen_of(rows)
    lacks = [True, True, False, False]
    monkeypatch.setattr(quantised, "lacks_integers", lambda: lacks.pop(0))
    assert [product_for(plain, UNFORCED) is None for _ in range(4)] == [True, True, False, False]
