"""Strong and weak scaling: the same work on two workers, and twice the work on two workers, against one worker."""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from reid_dist import FeatureSet
from reid_dist.stores.synthetic import SyntheticShape, make_sets
from tests.benchmarks.measure import interleave, run_process

_DIM = 512


def worker_scaling(scale: float, repeats: int) -> None:
    """Whole commands with a local cluster of one and of two workers of one thread each.

    A plain evaluation grows with the gallery.  Re-ranking grows with the square of all items, so twice the work is
    the square root of two times the items.
    """
    _job("plain", 4_000, 400_000, 2.0, "", scale, repeats)
    _job("re-ranked", 3_368, 30_000, 2**0.5, "k_reciprocal", scale, repeats)


def _job(name: str, n_query: int, n_gallery: int, growth: float, rerank: str, scale: float, repeats: int) -> None:
    # Queries are part of what is re-ranked, and of no other growth than the gallery.
    more_queries = round(n_query * growth) if rerank else n_query
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        once, twice = folder / "once", folder / "twice"
        _stores(once, int(n_query * scale), int(n_gallery * scale))
        _stores(twice, int(more_queries * scale), int(n_gallery * growth * scale))
        for workers in (1, 2):
            (folder / f"{workers}.yaml").write_text(f"kind: local\nworkers: {workers}\nthreads_per_worker: 1\n")

        def seconds(sets: Path, workers: int) -> float:
            words = [sys.executable, "-m", "reid_dist.cli", "evaluate", *map(str, sorted(sets.iterdir(), reverse=True))]
            words += ["--cluster", str(folder / f"{workers}.yaml"), *(["--rerank", rerank] if rerank else [])]
            return run_process(words, watched=False).seconds

        actions = [partial(seconds, sets, workers) for sets, workers in ((once, 1), (once, 2), (twice, 2))]
        alone, shared, grown = interleave(repeats, *actions)
    print(f"{name}, {int(n_query * scale)} x {int(n_gallery * scale)} x {_DIM}: {statistics.median(alone):.3g} s")
    print(f"  strong, the same on two workers: speed-up {_ratios(alone, shared)} of 2")
    print(f"  weak, twice the pairs on two workers: efficiency {_ratios(alone, grown)} of 1")


def _stores(folder: Path, n_query: int, n_gallery: int) -> None:
    shape = SyntheticShape(
        n_identity=max(1, n_gallery // 20),
        n_camera=6,
        n_query=max(2, n_query),
        n_gallery=max(40, n_gallery),
        n_distractor=0,
        n_junk=0,
        dim=_DIM,
        noise=1.3,
        camera_shift=0.0,
    )
    for side, each in zip(("query", "gallery"), make_sets(shape), strict=True):
        FeatureSet.from_arrays(each.features, each.pids, each.camids).save(folder / f"{side}.zarr")


def _ratios(ours: list[float], theirs: list[float]) -> str:
    ratios = np.divide(ours, theirs)
    return f"{statistics.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}, {len(ratios)} runs)"
