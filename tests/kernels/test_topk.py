"""The k nearest, against a full stable sort."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import FeatureBlock, KeepNearest
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms


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
@settings(max_examples=120, deadline=None)
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

    reduction = KeepNearest(k, distance)
    middle = int(cut * n_gallery)
    partials = [
        run_tiles(block(query), block(part, start), distance, TileShape(*tile), [reduction])[0]
        for start, part in ((middle, gallery[middle:]), (0, gallery[:middle]))
        if len(part)
    ]
    found = reduction.combine(partials)
    wanted = min(k, n_gallery)
    assert found.index[:, :wanted].tolist() == order.tolist()
    assert found.distance[:, :wanted].tobytes() == np.take_along_axis(exact, order, 1).tobytes()
    assert (found.index[:, wanted:] == -1).all()
    assert np.isposinf(found.distance[:, wanted:]).all()
