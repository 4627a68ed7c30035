"""Strong and weak scaling: the same work on two workers, and twice the work on two workers, against one worker."""

from __future__ import annotations

import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from tests.benchmarks.measure import interleave, run_process
from tests.benchmarks.sets import DIM, make_shape, save_sets


def worker_scaling(scale: float, repeats: int) -> None:
    """Whole commands with a local cluster of one and of two workers of one thread each.

    A plain evaluation grows with the gallery.  Re-ranking grows with the square of all items, so twice the work is
    the square root of two times the items.
    """
    _job("plain", 4_000, 400_000, 2.0, "", scale, repeats)
    _job("re-ranked", 3_368, 30_000, 2**0.5, "k_reciprocal", scale, repeats)


def _job(name: str, n_query: int, n_gallery: int, growth: float, rerank: str, scale: float, repeats: int) -> None:
    # Queries are re-ranked as well, and grow with the gallery.
    more_queries = round(n_query * growth) if rerank else n_query
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        once, twice = folder / "once", folder / "twice"
        save_sets(once, make_shape(n_query * scale, n_gallery * scale))
        save_sets(twice, make_shape(more_queries * scale, n_gallery * growth * scale))
        for workers in (1, 2):
            (folder / f"{workers}.yaml").write_text(f"kind: local\nworkers: {workers}\nthreads_per_worker: 1\n")

        def seconds(sets: Path, workers: int) -> float:
            words = [sys.executable, "-m", "reid_dist.cli", "evaluate", *map(str, sorted(sets.iterdir(), reverse=True))]
            words += ["--cluster", str(folder / f"{workers}.yaml"), *(["--rerank", rerank] if rerank else [])]
            return run_process(words).seconds

        actions = [partial(seconds, sets, workers) for sets, workers in ((once, 1), (once, 2), (twice, 2))]
        alone, shared, grown = interleave(repeats, *actions)
    print(f"{name}, {int(n_query * scale)} x {int(n_gallery * scale)} x {DIM}: {statistics.median(alone):.3g} s")
    print(f"  strong, the same on two workers: speed-up {_ratios(alone, shared)} of 2")
    print(f"  weak, twice the pairs on two workers: efficiency {_ratios(alone, grown)} of 1")


def _ratios(ours: list[float], theirs: list[float]) -> str:
    ratios = np.divide(ours, theirs)
    return f"{statistics.median(ratios):.2f} ({ratios.min():.2f} to {ratios.max():.2f}, {len(ratios)} runs)"
