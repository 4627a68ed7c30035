"""Compilation of all kernels before the first run: small jobs of every kind, over sets in memory and stored ones.

Numba compiles a kernel for the types that it is called with, and for read-only arrays (those of a store, which are
mapped) apart from writable ones.  Jobs reach the kernels with the types of real runs, which a list of signatures would
have to repeat.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from reid_dist.distances import DISTANCES
from reid_dist.evaluation import evaluate, evaluate_distances
from reid_dist.kernels.settings import compiled_spans
from reid_dist.search import k_reciprocal_graph, nearest, reranked_distances
from reid_dist.stores import DistanceBlock, FeatureSet
from reid_dist.task_graph import Progress

__all__ = ["compile_all"]

_DIM: Final = 8
_TILE: Final = 64
_RERANKINGS: Final = (
    "k_reciprocal(k1=4,k2=2)",
    "k_reciprocal(k1=4,k2=1)",
    "k_reciprocal(k1=4,k2=2,lambda_value=0)",
    "k_reciprocal(k1=4,k2=2,lambda_value=1)",
    "k_reciprocal(k1=4,k2=2,variant=faiss_k1)",
    "k_reciprocal(k1=4,k2=2,variant=zhong_d4)",
    "k_reciprocal(k1=4,k2=2,variant=paper)",
    "k_reciprocal(k1=4,k2=2,variant=paper,weights=binary)",
    "k_reciprocal(k1=4,k2=2,mode=inductive)",
    "k_reciprocal(k1=4,k2=2,mode=inductive,variant=faiss_k1)",
)
_EXPANSIONS: Final = (
    "aqe(k=2)",
    "alpha_qe(k=2,alpha=3)",
    "dba(k=2)+aqe(k=2)",
    "fastreid(k=2,alpha=3,times=2)",
)
_EVERY_RANK: Final = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC_allshots@1", "mAP@5", "mAP_found@5", "MRR", "P@5")
_PAIRS: Final = ("mAP", "TAR@FAR=0.1", "EER", "DIR@FAR=0.1")


def compile_all(progress: Progress) -> int:
    """Compile every kernel that evaluation, search, re-ranking and expansion call, unless the cache holds it.

    Parameters
    ----------
    progress
        Told of finished jobs, as the stage ``compile``.

    Returns
    -------
    Number of kernels that had to be compiled, those that only others call aside.
    """
    before = len(compiled_spans())
    with tempfile.TemporaryDirectory(prefix="reid-dist-") as folder:
        jobs = [*_jobs(Path(folder))]
        progress.start({"compile": len(jobs)})
        for job in jobs:
            job()
            progress.advance("compile")
    return len(compiled_spans()) - before


def _jobs(folder: Path) -> Iterator[Callable[[], Any]]:
    usual = _sets(20, (40, 300))
    stored = _stored(usual, folder / "usual")
    for query, gallery in (usual, stored):
        with_features = partial(evaluate, query, gallery, chunk_rows=_TILE)
        for distance in DISTANCES.names():
            yield partial(nearest, gallery, gallery, k=4, distance=distance, chunk_rows=_TILE)
            yield partial(with_features, distance=distance, rerank=_RERANKINGS[0])
        yield partial(with_features, breakdowns=["camera", "camera_pair", "identity", "gallery_size"], ties=True)
        yield partial(with_features, breakdowns=["gallery_size"], gallery_order="random", topk=3)
        yield partial(with_features, protocol="no_cameras")
        yield partial(with_features, protocol="market1501_matlab")
        yield partial(with_features, protocol="cuhk03_separate_cameras")
        yield partial(with_features, protocol="cuhk03", rerank=_RERANKINGS[0])
        yield partial(evaluate, gallery, gallery, protocol="same_set", chunk_rows=_TILE)
        for rerank in _RERANKINGS:
            yield partial(with_features, rerank=rerank, topk=3, metrics=_EVERY_RANK, ties=True)
            yield partial(reranked_distances, query, gallery, rerank=rerank, rows=[0, 1], chunk_rows=_TILE)
        yield partial(k_reciprocal_graph, gallery, rerank=_RERANKINGS[0], chunk_rows=_TILE)
        for expand in _EXPANSIONS:
            yield partial(with_features, expand=expand)
            yield partial(with_features, expand=expand, rerank=_RERANKINGS[0])
        yield partial(_with_distances, query, gallery, folder)
    # Many positives of every query; and rows so near each other that products in float32 cannot tell them apart.
    crowded, near = _sets(2, (6, 2400)), _sets(20, (40, 300), spread=1e-6)
    for sets, name in ((usual, "usual"), (crowded, "crowded"), (near, "near")):
        kept = stored if name == "usual" else _stored(sets, folder / name)
        for query, gallery in ((sets[0], sets[1]), (kept[0], kept[1]), (sets[0], kept[1]), (kept[0], sets[1])):
            for distance in DISTANCES.names():
                yield partial(evaluate, query, gallery, distance=distance, metrics=_EVERY_RANK, ties=True, topk=3)
                yield partial(evaluate, query, gallery, distance=distance, metrics=_PAIRS, roc=True)
                yield partial(nearest, query, gallery, k=4, distance=distance)
            yield partial(evaluate, query, gallery, protocol="cuhk03")
            yield partial(evaluate, query, gallery, protocol="cuhk03", single_shot_draws=3)
            yield partial(evaluate, query, gallery, rerank=_RERANKINGS[0], protocol="cuhk03")


def _sets(n_identities: int, sizes: tuple[int, int], spread: float = 1.0) -> tuple[FeatureSet, FeatureSet]:
    """Query and gallery of so many rows: gallery rows of pid -1, and a query whose identity the gallery lacks."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((n_identities + 1, _DIM))
    made = []
    for size, first in zip(sizes, (0, -1), strict=True):
        pids = generator.integers(first, n_identities, size)
        pids[0] = n_identities + first
        features = 1.0 + spread * (centres[pids] + generator.standard_normal((size, _DIM)))
        ids = np.arange(size) + 10_000 * (first + 1)
        made.append(FeatureSet.from_arrays(features.astype(np.float32), pids, generator.integers(0, 4, size), ids))
    return made[0], made[1]


def _stored(sets: tuple[FeatureSet, FeatureSet], folder: Path) -> tuple[FeatureSet, FeatureSet]:
    opened = []
    for name, features in zip(("query", "gallery"), sets, strict=True):
        uri = str(folder / f"{name}.zarr")
        features.save(uri, chunk_rows=_TILE)
        opened.append(FeatureSet.open(uri))
    return opened[0], opened[1]


def _with_distances(query: FeatureSet, gallery: FeatureSet, folder: Path) -> None:
    """Blocks of both types, in memory and in a file."""
    values = np.random.default_rng(1).random((query.n_rows, gallery.n_rows))
    for dtype in (np.float32, np.float64):
        block = DistanceBlock.from_array(values.astype(dtype))
        path = folder / f"{np.dtype(dtype).name}.npy"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        for each in (block, block.save(str(path))):
            evaluate_distances(each, query, gallery, metrics=_EVERY_RANK, topk=3, ties=True, chunk_rows=_TILE)
            evaluate_distances(each, query, gallery, metrics=_PAIRS, chunk_rows=_TILE)
