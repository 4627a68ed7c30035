"""Result digests of many small runs, recorded once: the same bits from every later version and on every machine.

``python frozen_runs.py`` prints the digests of this checkout as JSON; `test_frozen_results.py` compares them with
``frozen_results.json``.  A digest may only change together with a change of a definition, which the changelog names.

All inputs are sums of whole numbers from `numpy.random.RandomState`, whose streams are frozen by NumPy's
compatibility policy; no function of a mathematical library takes part in making them.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    LabelledRows,
    evaluate,
    evaluate_distances,
    evaluate_lists,
    evaluate_splits,
    jaccard_distances,
    k_reciprocal_graph,
    nearest,
    pool,
    rerank_blocks,
    reranked_distances,
    sweep_parameters,
)

N_IDENTITIES = 12


def labels(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.RandomState(seed)
    return draw.randint(1, N_IDENTITIES + 1, n), draw.randint(0, 4, n)


def features(pids: np.ndarray, seed: int, dim: int = 24, noise: int = 3) -> np.ndarray:
    centres = np.random.RandomState(7).randint(-9, 10, (N_IDENTITIES + 2, dim))
    draw = np.random.RandomState(seed)
    spread = sum(draw.randint(-noise, noise + 1, (len(pids), dim)) for _ in range(4))
    return (centres[pids] + spread).astype(np.float32)


def make_set(n: int, seed: int, non_mated: int = 0) -> FeatureSet:
    pids, camids = labels(n, seed)
    pids[1 : 1 + non_mated] = N_IDENTITIES + 1  # an identity without gallery rows
    rows = features(pids, seed + 1)
    rows[n // 2] = rows[0]  # a duplicate, hence ties
    pids[n - 1] = -1
    return FeatureSet.from_arrays(rows, pids, camids, item_ids=np.arange(n) + 1000 * seed)


QUERY, GALLERY = make_set(21, 1, non_mated=3), make_set(140, 3)
RUNS: dict[str, Callable[[Path], str]] = {}


def digest(*arrays: Any) -> str:
    content = hashlib.sha256()
    for array in arrays:
        content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def add(name: str, **options: Any) -> None:
    RUNS[name] = lambda _: evaluate(QUERY, GALLERY, **options).result_digest


for protocol in ("market1501", "market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "no_cameras"):
    add(f"protocol {protocol}", protocol=protocol)
for distance in ("euclidean", "sqeuclidean"):
    add(f"distance {distance}", distance=distance, chunk_rows=13)
add(
    "rank metrics",
    metrics=["mAP", "mAP_trapezoid", "mINP", "MRR", "Rprec", "mAP@7", "mAP_found@7", "P@5", "R@5", "P_clipped@5"],
    max_rank=90,
)
add("verification", metrics=["TAR@FAR=1e-2", "EER", "DIR@FAR=0.1"], roc=True, protocol="no_cameras")
add("single-shot draws", protocol="cuhk03", single_shot_draws=5, seed=11)
add("single-shot beside market1501", metrics=["CMC_single_shot@1", "CMC_allshots@5"])
for steps in ("aqe(k=3)", "alpha_qe(k=3,alpha=2.5)", "dba(k=4)", "dba(k=4)+alpha_qe(k=2,alpha=3)",
              "fastreid(k=4,alpha=2,times=2)", "gcr(k1=6,rounds=2)",
              "gcr(k1=6,k2=4,beta1=0.1,rounds=2,symmetric=true)"):  # fmt: skip
    add(f"expand {steps}", expand=steps)
for spec in (
    "k_reciprocal(k1=8,k2=3)",
    "k_reciprocal(k1=8,k2=3,variant=zhong_d4)",
    "k_reciprocal(k1=8,k2=3,variant=faiss_k1)",
    "k_reciprocal(k1=8,k2=3,variant=paper)",
    "k_reciprocal(k1=8,k2=1,lambda_value=0)",
    "k_reciprocal(k1=8,k2=3,lambda_value=1)",
    "k_reciprocal(k1=8,k2=3,mode=inductive)",
    "gnn(k1=8,k2=3)",
    "gnn(k1=8,k2=3,variant=zhang)",
    "ecn(k=8,t=2,q=3)",
    "ecn(k=8,t=2,q=3,variant=plain_fallback)",
    "ecn(t=2,q=3,method=origdist)",
    "top(k_reciprocal(k1=8,k2=3),m=60)",
    "top(gnn(k1=8,k2=3),m=60)",
    "top(ecn(k=8,t=2,q=3),m=60)",
):
    add(f"rerank {spec}", rerank=spec)
add(
    "rerank and verification",
    rerank="k_reciprocal(k1=8,k2=3,variant=faiss_k1)",
    metrics=["TAR@FAR=1e-2", "EER", "DIR@FAR=0.1"],
    protocol="no_cameras",
)
add("rerank euclidean", rerank="k_reciprocal(k1=8,k2=3)", distance="euclidean")
add("expand and rerank", expand="alpha_qe(k=3,alpha=3)", rerank="k_reciprocal(k1=8,k2=3)")


def run(name: str) -> Callable[[Callable[[Path], str]], Callable[[Path], str]]:
    def register(function: Callable[[Path], str]) -> Callable[[Path], str]:
        RUNS[name] = function
        return function

    return register


@run("half precision")
def _half(_: Path) -> str:
    halves = [FeatureSet.from_arrays(np.asarray(side.read(0, side.n_rows), np.float16), side.pids, side.camids)
              for side in (QUERY, GALLERY)]  # fmt: skip
    return evaluate(*halves).result_digest


@run("same set")
def _same_set(_: Path) -> str:
    return evaluate(GALLERY, GALLERY, protocol="same_set").result_digest


@run("ground-truth lists")
def _lists(_: Path) -> str:
    truth = [{"easy": [i, i + 30], "hard": [i + 60], "junk": [i + 90]} for i in range(QUERY.n_rows)]
    options = {"ground_truth": truth, "metrics": ["mAP", "P_clipped@5"]}
    reports = [
        evaluate(QUERY, GALLERY, protocol=f"revisitop_{level}", **options) for level in ("easy", "medium", "hard")
    ]
    return digest(*(np.frombuffer(bytes.fromhex(each.result_digest), np.uint8) for each in reports))


@run("distance block")
def _block(_: Path) -> str:
    query, gallery = labels(9, 21), labels(60, 22)
    block = np.random.RandomState(23).randint(0, 50, (9, 60)).astype(np.float32)
    sides = LabelledRows(*query), LabelledRows(*gallery)
    return evaluate_distances(DistanceBlock.from_array(block), *sides).result_digest


@run("top-k lists")
def _topk(_: Path) -> str:
    found = nearest(QUERY, GALLERY, k=30)
    return evaluate_lists(found.index, QUERY, GALLERY, distance=found.distance, metrics=["CMC@1", "P@5"]).result_digest


@run("neighbours")
def _nearest(_: Path) -> str:
    between, within = nearest(QUERY, GALLERY, k=9), nearest(GALLERY, GALLERY, k=9, distance="euclidean", chunk_rows=17)
    return digest(between.index, between.distance, within.index, within.distance)


@run("nearest of other cameras")
def _nearest_across(_: Path) -> str:
    found = [nearest(side, GALLERY, k=9, exclude="camid", chunk_rows=31) for side in (QUERY, GALLERY)]
    return digest(*(array for each in found for array in (each.index, each.distance)))


@run("re-ranked distances")
def _reranked(_: Path) -> str:
    return digest(reranked_distances(QUERY, GALLERY, rerank="k_reciprocal(k1=8,k2=3)", rows=[0, 5]))


@run("neighbour graph")
def _graph(_: Path) -> str:
    return digest(jaccard_distances(k_reciprocal_graph(GALLERY, rerank="k_reciprocal(k1=8,k2=3)"), [0, 7]))


@run("re-ranked blocks")
def _blocks(_: Path) -> str:
    at = np.concatenate([side.read(0, side.n_rows) for side in (QUERY, GALLERY)]).astype(np.float64)
    every = np.sqrt(((at[:, None] - at) ** 2).sum(axis=2))
    n = QUERY.n_rows
    return digest(rerank_blocks(every[:n, n:], every[:n, :n], every[n:, n:], rerank="k_reciprocal(k1=8,k2=3)"))


@run("splits")
def _splits(_: Path) -> str:
    return evaluate_splits(GALLERY, GALLERY, repeats=3, rest_as_queries=True, seed=5).result_digest


@run("sweep over an expansion")
def _sweep_expansion(_: Path) -> str:
    return sweep_parameters(QUERY, GALLERY, expand="aqe", k="0:3").result_digest


@run("sweep over a re-ranking")
def _sweep_reranking(_: Path) -> str:
    return sweep_parameters(QUERY, GALLERY, rerank="k_reciprocal", k1="5,8", k2="3", lambda_value="0,0.3").result_digest


@run("pooling")
def _pooled(folder: Path) -> str:
    pids, camids = labels(90, 31)
    pooled = pool(FeatureSet.from_arrays(features(pids, 32), pids, camids), folder / "pooled.zarr", by="pid_camid")
    return digest(pooled.read(0, pooled.n_rows))


def digests() -> dict[str, str]:
    """Run everything; digests by name."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: function(Path(folder)) for name, function in RUNS.items()}


if __name__ == "__main__":
    print(json.dumps(digests(), indent=1))
