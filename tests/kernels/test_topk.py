"""The k nearest, against a full stable sort."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.surroundings import KeepNearest, merge_surroundings
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import PairRows, Rescoring, pair_distances, read_only, squared_norms


def block(rows: np.ndarray, start: int = 0) -> FeatureBlock:
    return FeatureBlock(np.arange(start, start + len(rows)), rows, squared_norms(rows))


@given(
    seed=st.integers(0, 2**32 - 1),
    n_gallery=st.integers(1, 900),
    dim=st.integers(1, 40),
    k=st.sampled_from([1, 2, 7, 33, 150]),
    values=st.sampled_from([1, 2, 3, 10**6]),
    name=st.sampled_from(DISTANCES.names()),
    tile=st.sampled_from([(512, 2048), (1, 100), (3, 37)]),
    cut=st.floats(0, 1),
)
@settings(max_examples=examples(120), deadline=None)
def test_lists_are_those_of_a_stable_sort(
    seed: int, n_gallery: int, dim: int, k: int, values: int, name: str, tile: tuple[int, int], cut: float
) -> None:
    rng = np.random.default_rng(seed)
    query = read_only(rng.integers(1, values + 1, (4, dim)).astype(np.float32))
    gallery = read_only(rng.integers(1, values + 1, (n_gallery, dim)).astype(np.float32))
    distance = DISTANCES.get(name)
    i, j = np.divmod(np.arange(4 * n_gallery), n_gallery)
    rows = PairRows(distance.kind, query, gallery, squared_norms(query), squared_norms(gallery))
    exact = pair_distances(rows, i, j).reshape(4, n_gallery)
    order = np.argsort(exact, axis=1, kind="stable")[:, :k]

    middle = int(cut * n_gallery)
    partials = [
        run_tiles(block(query), block(part, start), distance, TileShape(*tile), [KeepNearest(k)])[0]
        for start, part in ((middle, gallery[middle:]), (0, gallery[:middle]))
        if len(part)
    ]
    found = merge_surroundings(partials)
    wanted = min(k, n_gallery)
    assert found.index[:, :wanted].tolist() == order.tolist()
    assert found.distance[:, :wanted].tobytes() == np.take_along_axis(exact, order, 1).tobytes()
    assert (found.index[:, wanted:] == -1).all()
    assert np.isposinf(found.distance[:, wanted:]).all()


@given(
    seed=st.integers(0, 2**32 - 1),
    n_gallery=st.integers(1, 600),
    k=st.sampled_from([1, 3, 8]),
    values=st.sampled_from([2, 10**6]),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    squares=st.booleans(),
    mixed=st.booleans(),
    falling=st.booleans(),
    name=st.sampled_from(DISTANCES.names()),
    tile=st.sampled_from([(512, 2048), (3, 37)]),
    reach=st.sampled_from([None, "of the k-th", "of another"]),
)
@settings(max_examples=examples(120), deadline=None)
def test_lists_of_reranked_distances_within_a_reach(
    seed: int,
    n_gallery: int,
    k: int,
    values: int,
    weight: float,
    squares: bool,
    mixed: bool,
    falling: bool,
    name: str,
    tile: tuple[int, int],
    reach: str | None,
) -> None:
    rng = np.random.default_rng(seed)
    query = block(read_only(rng.integers(1, values + 1, (4, 6)).astype(np.float32)))
    gallery = block(read_only(rng.integers(1, values + 1, (n_gallery, 6)).astype(np.float32)))
    # Given values of a share of the pairs, few of which differ, all below that of the others.
    has_value = rng.random((4, n_gallery)) < rng.choice([0.1, 0.9])
    # Other layouts would be compiled for this test.
    row = np.ascontiguousarray(np.nonzero(has_value)[1])
    known = rng.integers(0, values + 1, len(row)) / (values + 1)
    # Then full lists of ties are followed by nearer rows.
    known = -np.sort(-known) if falling else known
    indptr = np.concatenate([[0], np.cumsum(has_value.sum(axis=1))])
    scale = rng.uniform(0.5, 2.0, 4) * np.square(np.linalg.norm(query.features, axis=1) + 1.0)
    # Graphs square squared distances, and mix given graph distances with those of cosine.
    squares &= name != "euclidean"
    mixed &= name == "cosine" and weight > 0.0 and not squares
    pairs = Rescoring(True, weight, squares, scale, indptr, row, known, 0, 1.0, mixed)
    query, distance = replace(query, reranked=pairs), DISTANCES.get(name)
    i, j = np.divmod(np.arange(4 * n_gallery), n_gallery)
    exact = pair_distances(pair_rows(distance, query, gallery), i, j).reshape(4, n_gallery)
    order = np.argsort(exact, axis=1, kind="stable")[:, :k]
    nearest = np.take_along_axis(exact, order, 1)
    bounds = None
    if reach is not None:
        wanted = rng.integers(0, n_gallery, 4) if reach == "of another" else np.full(4, min(k, n_gallery) - 1)
        bounds = np.sort(exact, axis=1)[np.arange(4), wanted]
    (found,) = run_tiles(query, gallery, distance, TileShape(*tile), [KeepNearest(k, reach=bounds)])
    for q in range(4):
        within = order[q] if bounds is None else order[q][nearest[q] <= bounds[q]]
        assert found.index[q, : len(within)].tolist() == within.tolist()
        assert found.distance[q, : len(within)].tobytes() == exact[q, within].tobytes()
