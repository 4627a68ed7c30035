"""Blocks of given distances of few values, and their evaluation."""

from __future__ import annotations

from functools import cache

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from support.reference import ItemSet
from support.strategies import crowded_sets, whole_numbers

from reid_dist import DistanceBlock, LabelledRows, evaluate_distances

METRICS = (
    *("mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec", "CMC@1", "CMC@3", "CMC_allshots@2", "mAP@3", "mAP_found@3"),
    *("P@2", "R@2", "P_clipped@5", "P_min@4", "mAP_min@3", "mAP_R"),
)
EXACT = 1e-12
# Few values, so that ties are the rule; both zeros are one distance; the ends of the range of each type are there.
VALUES = {
    np.float16: (-65504.0, -2.0, -1.0, -0.0, 0.0, 2.0**-24, 0.5, 1.0, 65504.0),
    np.float32: (-3.4e38, -2.0, -1.0, -0.0, 0.0, 1e-45, 0.5, 1.0, 1.0 + 2.0**-23, 3.4e38),
    np.float64: (-1.7e308, -2.0, -1.0, -0.0, 0.0, 5e-324, 0.5, 1.0, 1.0 + 2.0**-52, 1.7e308),
}
DTYPES = tuple(VALUES)


def numbered(pids, camids, item_ids):
    return ItemSet(np.arange(len(pids))[:, None], np.asarray(pids), np.asarray(camids), np.asarray(item_ids))


def labels_of(items, **more):
    return LabelledRows(items.pids, items.camids, items.item_ids, **more)


def evaluate_block(block, query, gallery, protocol="market1501", metrics=METRICS, **options):
    given = block if isinstance(block, DistanceBlock) else DistanceBlock.from_array(block)
    options = {"confidence": None, **options}
    return evaluate_distances(
        given, labels_of(query), labels_of(gallery), protocol=protocol, metrics=list(metrics), **options
    )


def blocks(n_query, n_gallery):
    """Arrays of few values, of every type."""
    return st.sampled_from(DTYPES).flatmap(
        lambda dtype: hnp.arrays(
            dtype, (n_query, n_gallery), elements=st.sampled_from([dtype(value) for value in VALUES[dtype]]),
            fill=st.nothing(),
        )
    )  # fmt: skip


@st.composite
def problems(draw, max_query=6, max_gallery=20):
    n_query, n_gallery = draw(st.integers(1, max_query)), draw(st.integers(1, max_gallery))
    n_pids, n_cameras = draw(st.integers(0, 3)), draw(st.integers(1, 3))
    query = numbered(
        draw(whole_numbers(n_query, -1, n_pids)),
        draw(whole_numbers(n_query, 0, n_cameras - 1)),
        # Some of the queries are gallery rows.
        np.arange(n_query) * 3,
    )
    gallery = numbered(
        draw(whole_numbers(n_gallery, -1, n_pids)),
        draw(whole_numbers(n_gallery, 0, n_cameras - 1)),
        np.arange(n_gallery),
    )
    return draw(blocks(n_query, n_gallery)), query, gallery


@cache
def crowded(dtype=np.float32):
    """40 x 300 distances of ten values around zero, some queries without relevant items."""
    query, gallery = crowded_sets(40, 300, 3, seed=41)
    rng = np.random.default_rng(42)
    strange = np.where(np.arange(40) % 9 == 8, query.pids + 500, query.pids)
    block = rng.integers(-4, 6, (40, 300)).astype(dtype) / dtype(4)
    return block, numbered(strange, query.camids, np.arange(1000, 1040)), numbered(
        gallery.pids, gallery.camids, np.arange(300)
    )  # fmt: skip
