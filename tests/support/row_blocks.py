"""Blocks of rows, their canonical distances, and rows that are hard to screen in eight bits."""

from __future__ import annotations

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from reid_dist.engine.distances.quantised import IntegerRows
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.kernels.canonical import pair_distances, squared_norms
from reid_dist.kernels.quantising import LARGEST_INTEGER
from support.strategies import KINDS, features, seeds

DIMS = (1, 7, 31, 64, 512, 2048, 4099)
HARD = ("one_giant", "heavy_tails", "denormal", "norms", "offset")


def block_of(rows, first=0):
    """Feature rows as a block whose numbers start somewhere."""
    rows = np.ascontiguousarray(rows, np.float32)
    return FeatureBlock(np.arange(first, first + len(rows)), rows, squared_norms(rows))


def canonical_matrix(near, far, distance):
    """All canonical distances of the package itself, pair by pair."""
    i, j = (each.ravel() for each in np.indices((len(near), len(far))))
    found = pair_distances(pair_rows(distance, near, far), i, j)
    return found.reshape(len(near), len(far))


@st.composite
def hard_rows(draw, n_rows, dim, name):
    """Rows (n_rows, dim), float32, of a kind that is hard to quantise or full of ties, for a distance."""
    kind = draw(st.sampled_from((*KINDS, *HARD)))
    if kind in KINDS:
        return draw(features(n_rows, dim, kind)).astype(np.float32)
    rng = np.random.default_rng(draw(seeds()))
    rows = rng.normal(size=(n_rows, dim))
    if kind == "one_giant":
        rows[np.arange(n_rows), rng.integers(0, dim, n_rows)] *= 1e4
    elif kind == "heavy_tails":
        rows = np.sign(rows) * np.abs(rows) ** 7
    elif kind == "denormal":
        rows *= 1e-42 if name == "cosine" else 1e-30
    elif kind == "norms":
        rows *= 10.0 ** rng.uniform(-15, 15, (n_rows, 1))
    else:
        rows += 30.0
    rows = rows.astype(np.float32)
    # Exact duplicates.
    rows[rng.integers(0, n_rows, n_rows // 3)] = rows[rng.integers(0, n_rows)]
    return rows


@st.composite
def hard_blocks(draw, name, dims=DIMS):
    """Rows of two blocks."""
    n, m = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    rows = draw(hard_rows(n + m, draw(st.sampled_from(dims)), name))
    return rows[:n], rows[n:]


def rows_at_the_edge(dim, sign):
    """A query, and a row whose product with it is off by nearly all of its bound, in the direction of `sign`.

    All elements of the query are equal, so that its integers are exact; every element of the other row lies half a step
    beside an integer, on the same side.
    """
    rng = np.random.default_rng(dim)
    row = rng.integers(-LARGEST_INTEGER // 2, 3 * LARGEST_INTEGER // 4, dim) + sign * 0.499
    row[0] = LARGEST_INTEGER
    return np.ones((1, dim), np.float32), row[None].astype(np.float32)


def halve_bounds(monkeypatch):
    """Halve the bounds of products of eight-bit integers, refined or not."""
    for name in ("error", "refined_error"):
        whole = getattr(IntegerRows, name)
        monkeypatch.setattr(IntegerRows, name, lambda *given, whole=whole: whole(*given) * np.float32(0.5))


def labelled_hard_rows(data, name):
    """Some of these rows in float32 or float16, with identities and cameras; one query at least has a relevant item."""
    n = data.draw(st.integers(40, 160))
    rows = data.draw(hard_rows(n, data.draw(st.sampled_from((1, 7, 64, 512))), name))
    rng = np.random.default_rng(data.draw(seeds()))
    if data.draw(st.booleans()):
        rows = np.clip(rows, -6e4, 6e4).astype(np.float16)
    if name == "cosine":
        rows = rows[np.abs(rows).max(axis=1) > 0]
    assume(len(rows) > 20)
    pids, camids = rng.integers(-1, 5, len(rows)), rng.integers(0, 3, len(rows))
    pids[:2], camids[:2] = 1, (4, 5)
    return rows, pids, camids
