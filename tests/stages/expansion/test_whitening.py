"""Whitening: the formula up to the signs of axes, rows to learn from, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from expansion_runs import bare, expanded, features_of
from oracles import expansion as oracle

from reid_dist.errors import InputError
from reid_dist.kernels.normalising import eigenvectors_of
from reid_dist.stages.expansion.expansion_steps import make_step


def arrays(n_query=14, n_gallery=90, dim=10, seed=3):
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((dim, dim)) * np.geomspace(1, 0.05, dim)
    return tuple((rng.standard_normal((n, dim)) @ mixing + 0.3).astype(np.float32) for n in (n_query, n_gallery))


def assert_same_up_to_signs(found, expected):
    """Axes have a sign of their own, on which no distance depends."""
    assert [each.shape for each in found] == [each.shape for each in expected]
    sign = np.sign((found[1] * expected[1]).sum(axis=0))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one * sign, other, atol=1e-5)


@pytest.mark.parametrize("dim", [1, 4, 10])
def test_the_formula(dim, tmp_path):
    query, gallery = arrays()
    found = expanded(bare(query), bare(gallery), f"whiten(dim={dim})", tmp_path)
    assert_same_up_to_signs([*map(features_of, found)], oracle.whiten(query, gallery, dim))


def test_learned_from_another_store(tmp_path):
    query, gallery = arrays()
    learned = arrays(n_gallery=200, seed=8)[1]
    bare(learned).save(tmp_path / "learned.zarr")
    spec = f"whiten(dim=6,on={tmp_path / 'learned.zarr'})"
    found = expanded(bare(query), bare(gallery), spec, tmp_path / "workspace")
    assert_same_up_to_signs([*map(features_of, found)], oracle.whiten(query, gallery, 6, learned))


def test_whitened_rows_are_averaged_after_it(tmp_path):
    query, gallery = arrays()
    white = [features_of(each) for each in expanded(bare(query), bare(gallery), "whiten(dim=5)", tmp_path / "a")]
    after = expanded(bare(white[0]), bare(white[1]), "dba(k=2)+aqe(k=3)", tmp_path / "b")
    at_once = expanded(bare(query), bare(gallery), "whiten(dim=5)+dba(k=2)+aqe(k=3)", tmp_path / "c")
    assert [features_of(each).tobytes() for each in at_once] == [features_of(each).tobytes() for each in after]


def test_rows_that_vary_along_few_axes(tmp_path):
    query, gallery = arrays(n_gallery=6)
    with pytest.raises(InputError, match=r"the 6 rows .* vary only along 5; use whiten\(dim=5\) or less"):
        expanded(bare(query), bare(gallery), "whiten(dim=6)", tmp_path / "a")
    expanded(bare(query), bare(gallery), "whiten(dim=5)", tmp_path / "b")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("whiten(dim=11)", "projects on 11 axes, and rows have 10 features"),
        ("whiten(dim=few)", "dim of whiten must be a whole number from 1, or all, found 'few'"),
        ("whiten(on=5)", "on of whiten must be text, found 5"),
    ],
)
def test_refused(spec, words, tmp_path):
    with pytest.raises(InputError, match=words):
        expanded(*map(bare, arrays()), spec, tmp_path)


def test_a_store_of_another_width(tmp_path):
    bare(np.eye(3, dtype=np.float32)).save(tmp_path / "three.zarr")
    with pytest.raises(InputError, match="learns from rows of 3 features, and those of the gallery have 10"):
        expanded(*map(bare, arrays()), f"whiten(on={tmp_path / 'three.zarr'})", tmp_path)


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((3, 3)),
        np.eye(5),
        np.ones((6, 6)),
        np.diag([3.0, 1.0, 2.0, 2.0]),
        np.diag([1e-300, 1.0, 1e300]),
        np.array([[2.0]]),
        np.array([[1.0, 2.0], [2.0, 1.0]]),
        np.diag(np.arange(8.0)) + np.diag(np.full(7, 1e-9), 1) + np.diag(np.full(7, 1e-9), -1),
        np.cov(np.random.default_rng(0).standard_normal((40, 60))),
    ],
)
def test_eigenvectors(matrix):
    values, vectors = eigenvectors_of(matrix)
    largest = max(1e-300, np.abs(matrix).max())
    np.testing.assert_allclose(vectors @ vectors.T, np.eye(len(matrix)), atol=1e-13)
    np.testing.assert_allclose(values / largest, np.linalg.eigvalsh(matrix) / largest, atol=1e-13)
    np.testing.assert_allclose(vectors @ (matrix / largest) @ vectors.T, np.diag(values / largest), atol=1e-12)


def test_a_spec_says_all():
    assert str(make_step("whiten", {})) == "whiten(dim=all,on=gallery)"
