"""Neighbours and re-ranking: against faiss where it is installed, against a peer's process, and at growing sizes."""

from __future__ import annotations

import importlib
import json
import shlex
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.stages.reranking.rerankers import RERANKERS, parse_rerank
from reid_dist.stores import Workspace
from tests.benchmarks.measure import bare_product, cpu_seconds_of, interleave, ratio_line, run_process, time_and_peak
from tests.benchmarks.sets import DIM, LONG_DIM, Model, feature_sets, make_shape, save_sets, write_sets


def neighbours(scale: float, repeats: int) -> None:
    """All neighbours of a set, k = 21: against the bare product of all pairs, and against faiss."""
    for n_items, dim in ((40_000 * scale, DIM), (20_000 * scale, LONG_DIM)):
        _neighbours_among(max(30, int(n_items)), dim, repeats)


def _neighbours_among(n_items: int, dim: int, repeats: int) -> None:
    features = np.random.default_rng(0).standard_normal((n_items, dim), np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    items = FeatureSet.from_arrays(features, np.zeros(n_items, int))
    found: dict[str, np.ndarray] = {}

    def ours() -> float:
        begin = time.perf_counter()
        found["ours"] = nearest(items, items, k=21).index
        return time.perf_counter() - begin

    actions = [ours, lambda: bare_product(features, features)]
    try:
        faiss: Any = importlib.import_module("faiss")
    except ImportError:
        faiss = None
    else:

        def theirs() -> float:
            begin = time.perf_counter()
            index = faiss.IndexFlatIP(dim)
            index.add(features)
            found["faiss"] = index.search(features, 21)[1]
            return time.perf_counter() - begin

        actions.append(theirs)
    taken = interleave(repeats, *actions)
    name = f"21 neighbours of {n_items} x {dim} among themselves"
    print(ratio_line(f"{name} against the product of all pairs", taken[0], taken[1]))
    if faiss is None:
        print("faiss is not installed: pip install faiss-cpu")
        return
    print(ratio_line(f"{name} against faiss IndexFlatIP", taken[0], taken[2]))
    same = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found["ours"], found["faiss"], strict=True)]) / 21
    print(f"  neighbours in common: {100 * same:.4f}%")


def _market_sized(folder: Path, scale: float, n_items: int = 23_100) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Stores in the proportions of Market-1501, and the command that evaluates them re-ranked."""
    n_query = max(2, int(n_items * scale * 3368 / 23_100))
    query, gallery = save_sets(folder, make_shape(n_query, n_items * scale - n_query, camera_shift=0.6))
    return _words(folder), query.features, gallery.features


def _words(folder: Path, *more: str, spec: str = "k_reciprocal") -> list[str]:
    stores = [str(folder / f"{name}.zarr") for name in ("query", "gallery")]
    return [sys.executable, "-m", "reid_dist.cli", "evaluate", *stores, "--rerank", spec, *more]


_FROM_ARRAYS = """
import sys
import numpy as np
from reid_dist import FeatureSet, evaluate
folder = sys.argv[1]
labels = np.load(f"{folder}/labels.npz")
sides = [
    FeatureSet.from_arrays(np.load(f"{folder}/{side}.npy"), labels[f"{side[0]}_pids"], labels[f"{side[0]}_camids"])
    for side in ("query", "gallery")
]
print(evaluate(*sides, rerank="k_reciprocal").metrics)
"""


def rerank(scale: float, repeats: int, peer: str | None) -> None:
    """Evaluating Market-1501-sized sets re-ranked, as whole processes, against the product and a peer's process.

    From arrays that are loaded, as the peer takes them, and `reid-dist evaluate --rerank` from Zarr.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        words, query, gallery = _market_sized(folder, scale)
        items = np.concatenate([query, gallery])
        for side, features in (("query", query), ("gallery", gallery)):
            np.save(folder / f"{side}.npy", features)
        stores = {side: FeatureSet.open(folder / f"{side}.zarr") for side in ("query", "gallery")}
        labels = {f"{side[0]}_pids": store.pids for side, store in stores.items()}
        np.savez(folder / "labels.npz", **labels, **{f"{side[0]}_camids": s.camids for side, s in stores.items()})
        from_arrays = [sys.executable, "-c", _FROM_ARRAYS, name]
        actions = [
            lambda: run_process(words).seconds,
            lambda: run_process(from_arrays).seconds,
            lambda: bare_product(items, items),
        ]
        if peer is not None:
            actions.append(lambda: run_process([*shlex.split(peer), name]).seconds)
        taken = interleave(repeats, *actions)
        size = f"re-ranking of {len(query)} x {len(gallery)} x 512"
        ways = (f"{size} from Zarr, whole process", f"{size} from arrays, whole process")
        for what, ours in zip(ways, taken, strict=False):
            print(ratio_line(f"{what} against the product of all pairs", ours, taken[2]))
            if peer is not None:
                print(ratio_line(f"{what} against the peer", ours, taken[3]))
        used = run_process(words, memory_every_s=0.1)
        shared, resident = used.peak_bytes / 1e9, used.peak_rss_bytes / 1e9
        print(f"  peak memory, all processes: {shared:.2f} GB ({resident:.2f} GB as a sum of RSS)")


def rerank_scaling(scale: float, repeats: int) -> None:
    """Time per pair and memory at growing sizes."""
    for n_items in (10_000, 20_000, 40_000, 80_000):
        with tempfile.TemporaryDirectory() as folder:
            words, query, gallery = _market_sized(Path(folder), scale, n_items)
            total = len(query) + len(gallery)
            taken, peak = time_and_peak(words, repeats)
        pairs = total * (total - 1) / 2
        seconds = min(taken)
        print(f"{total} items x 512: {seconds:.2f} s, {1e9 * seconds / pairs:.2f} ns a pair, {peak / 1e9:.3f} GB")


def rerankers(scale: float, repeats: int) -> None:
    """CPU time of each re-ranking of sets in memory, d = 128, as a ratio to that of k-reciprocal re-ranking.

    One within another is `k_reciprocal`.
    """
    for n_gallery in (20_000, 50_000, 200_000):
        query, gallery = feature_sets(make_shape(2000 * scale, n_gallery * scale, dim=128))
        first_of_all = sorted(RERANKERS, key=lambda each: each.name != "k_reciprocal")
        specs = [f"{each.name}(k_reciprocal)" if each.made.nests else each.name for each in first_of_all]
        plainly = partial(evaluate, query, gallery, confidence=None)
        actions = [partial(cpu_seconds_of, partial(plainly, rerank=spec)) for spec in specs]
        first, *taken = interleave(repeats, *actions)
        for name, each in zip(specs[1:], taken, strict=True):
            print(ratio_line(f"{query.n_rows} x {gallery.n_rows} x 128, {name} against {specs[0]}", each, first))


def million(scale: float, spec: str) -> None:
    """One run over a million gallery rows x 128 from Zarr: the time of each stage, and the peak of memory."""
    n_query, n_gallery = max(2, int(2_000 * scale)), max(200, int(1_000_000 * scale))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_sets(folder, n_query, n_gallery, Model(1.3), dim=128)
        used = run_process(
            _words(folder, "--output", str(folder / "out"), spec=spec), memory_every_s=2.0 * min(scale, 1.0)
        )
        report = json.loads((folder / "out" / "report.json").read_text())
        held = {
            stage.path.rsplit("/", 1)[1].split("-")[0]: sum(file.stat().st_size for file in Path(stage.path).iterdir())
            for kind in ("neighbours", *parse_rerank(spec).kept)
            for stage in Workspace(str(folder / "out" / "workspace")).stages(kind)
        }
    print(f"{n_query} x {n_gallery} x 128 re-ranked by {spec} from Zarr: {used.seconds / 60:.3g} min, whole process")
    print("  stages: " + ", ".join(f"{stage} {seconds:.3g} s" for stage, seconds in report["timing"].items()))
    print(f"  peak memory, all processes: {used.peak_bytes / 1e9:.2f} GB ({used.peak_rss_bytes / 1e9:.2f} GB as RSS)")
    print("  workspace: " + ", ".join(f"{kind} {size / 1e9:.3g} GB" for kind, size in held.items()))
    print(f"  mAP {100 * report['metrics']['mAP']:.2f}%, digest {report['result_digest'][:16]}")
