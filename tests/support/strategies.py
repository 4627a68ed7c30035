"""Hypothesis strategies for query and gallery sets in which ties are the rule.

Small integers and few distinct rows make equal distances everywhere, and float64 sums that are exact in any order,
so that the oracle of `reference.py` may decide every tie.  The kinds with random features hold exact duplicates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from support.reference import ItemSet

DIMS = (1, 2, 3, 5, 7, 8, 9, 13, 15, 16, 17, 23, 31, 32, 33, 47, 63, 64, 65, 70)
KINDS = ("palette", "few_valued", "scaled", "constant", "random", "half")


@dataclass(frozen=True)
class Problem:
    """A query set, a gallery set, and how their features were made."""

    query: ItemSet
    gallery: ItemSet
    kind: str


def seeds():
    """Seeds of NumPy generators."""
    return st.integers(0, 2**32 - 1)


def whole_numbers(shape, low, high):
    """Integers from `low` to `high`; each one is drawn, where Hypothesis would repeat one value for the most part."""
    return hnp.arrays(np.int64, shape, elements=st.integers(low, high), fill=st.nothing())


@st.composite
def palettes(draw, dim, max_rows=6):
    """A few rows of small integers, (rows, dim) float32."""
    shape = (draw(st.integers(1, max_rows)), dim)
    return draw(whole_numbers(shape, -3, 3)).astype(np.float32)


@st.composite
def features(draw, n_rows, dim, kind):
    """Features (n_rows, dim) of a kind, float16 for ``half`` and float32 for the others."""
    if kind in ("palette", "scaled"):
        palette = draw(palettes(dim))
        rows = draw(whole_numbers(n_rows, 0, len(palette) - 1))
        # A multiple of a row has the direction of the row, yet its cosines need not have the same last bit.
        largest = 7 if kind == "scaled" else 1
        factors = draw(whole_numbers(n_rows, 1, largest))
        return palette[rows] * factors[:, None].astype(np.float32)
    rng = np.random.default_rng(draw(seeds()))
    if kind == "few_valued":
        return rng.integers(-1, 3, (n_rows, dim)).astype(np.float32)
    if kind == "constant":
        return np.full((n_rows, dim), draw(st.sampled_from([1.0, -2.0, 0.5, 3.0])), dtype=np.float32)
    distinct = rng.normal(size=(max(1, n_rows // draw(st.integers(1, 4))), dim))
    rows = rng.integers(0, len(distinct), n_rows)
    return distinct[rows].astype(np.float16 if kind == "half" else np.float32)


@st.composite
def problems(draw, kinds=KINDS, max_query=8, max_gallery=32, junk=True):
    """Sets with cameras, unknown ones (-1) among them: junk (pid -1), pid 0, queries without positives, one item."""
    kind = draw(st.sampled_from(kinds))
    n_query = draw(st.integers(1, max_query))
    n_gallery = draw(st.integers(1, max_gallery))
    dim = draw(st.sampled_from(DIMS))
    n_pids = draw(st.integers(0, 4))
    n_cameras = draw(st.sampled_from([2, 3, 4, 1]))
    camera = draw(st.sampled_from([0, 0, -1]))
    together = draw(features(n_query + n_gallery, dim, kind))
    query = ItemSet(
        together[:n_query],
        draw(whole_numbers(n_query, -1 if junk else 0, n_pids)),
        draw(whole_numbers(n_query, camera, n_cameras - 1)),
        np.arange(10_000, 10_000 + n_query),
    )
    gallery = ItemSet(
        together[n_query:],
        draw(whole_numbers(n_gallery, -1 if junk else 0, n_pids)),
        draw(whole_numbers(n_gallery, camera, n_cameras - 1)),
        np.arange(n_gallery),
    )
    return Problem(query, gallery, kind)


@st.composite
def same_set_problems(draw, kinds=KINDS, max_items=32):
    """A gallery with item ids in any order, and some of its items, in any order, as queries."""
    problem = draw(problems(kinds=kinds, max_query=1, max_gallery=max_items))
    n_items = len(problem.gallery)
    names = np.array(draw(st.permutations(range(n_items))), dtype=np.int64) * 3 + 5
    items = ItemSet(problem.gallery.features, problem.gallery.pids, problem.gallery.camids, names)
    chosen = draw(st.permutations(range(n_items)))[: draw(st.integers(1, n_items))]
    return Problem(items.take(chosen), items, problem.kind)


@dataclass(frozen=True)
class RerankingProblem:
    """Features of queries and gallery, how they were made, and the parameters of a re-ranking."""

    query: np.ndarray
    gallery: np.ndarray
    kind: str
    k1: int
    k2: int
    lambda_value: float

    @property
    def options(self):
        """The parameters as keyword arguments."""
        return {"k1": self.k1, "k2": self.k2, "lambda_value": self.lambda_value}


@st.composite
def reranking_problems(draw, kinds=KINDS, max_items=40):
    """Few items for the most part, many of them alike, and lists from one neighbour to more than there are items."""
    kind = draw(st.sampled_from(kinds))
    n_items = draw(st.integers(2, min(12, max_items)) | st.integers(2, max_items))
    n_query = draw(st.integers(1, n_items - 1))
    together = draw(features(n_items, draw(st.sampled_from(DIMS)), kind))
    k1 = draw(st.integers(1, n_items + 3))
    k2 = draw(st.integers(1, k1 + 1))
    lambda_value = draw(st.sampled_from([0.3, 0.0, 1.0]) | st.floats(0, 1))
    return RerankingProblem(together[:n_query], together[n_query:], kind, k1, k2, lambda_value)


def problems_for(protocol, **options):
    """Problems that a protocol accepts."""
    if protocol == "same_set":
        return same_set_problems(**options)
    return problems(**options)


def crowded_sets(n_query, n_gallery, dim, seed, n_distinct=40, n_pids=12, n_cameras=3, dtype=np.float32):
    """A gallery of `n_gallery` items with only `n_distinct` different feature rows, given out without regard to pid.

    So each positive has negatives at exactly its distance, in many gallery rows; most queries are copies of gallery
    rows.  Not a strategy: for sets of thousands.
    """
    rng = np.random.default_rng(seed)
    distinct = rng.normal(size=(n_distinct, dim)).astype(dtype)
    gallery = ItemSet(
        distinct[rng.integers(0, n_distinct, n_gallery)],
        rng.integers(-1, n_pids, n_gallery),
        rng.integers(0, n_cameras, n_gallery),
        np.arange(n_gallery),
    )
    fresh = rng.normal(size=(n_query, dim)).astype(dtype)
    copies = distinct[rng.integers(0, n_distinct, n_query)]
    query = ItemSet(
        np.where(rng.random(n_query)[:, None] < 0.7, copies, fresh),
        rng.integers(0, n_pids, n_query),
        rng.integers(0, n_cameras, n_query),
        np.arange(n_gallery, n_gallery + n_query),
    )
    return query, gallery


def scattered_sets(n_query, n_gallery, dim, seed, n_pids=12, n_cameras=3, spread=1.0):
    """Random features around one centre per identity, without any tie.  Not a strategy: for whole sets at once."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(n_pids, dim))

    def items(n, first_id):
        pids = rng.integers(0, n_pids, n)
        around = (centres[pids] + spread * rng.normal(size=(n, dim))).astype(np.float32)
        return ItemSet(around, pids, rng.integers(0, n_cameras, n), np.arange(first_id, first_id + n))

    return items(n_query, n_gallery), items(n_gallery, 0)
