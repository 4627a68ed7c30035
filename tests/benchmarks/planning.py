"""Time and memory that `reid-dist plan` projects, against those of the same jobs."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measure import time_and_peak
from tests.benchmarks.sets import make_shape, save_sets

_JOBS = {
    "plain": (2_000, 200_000, ""),
    "top-k": (2_000, 200_000, "topk: 100\n"),
    "re-ranked": (3_368, 19_732, "rerank: k_reciprocal\n"),
    "expanded": (1_000, 30_000, "expand: dba(k=5)+aqe(k=3)\n"),
}
_UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def planning(scale: float, repeats: int) -> None:
    """Time and memory as planned and as measured, of whole processes with their local cluster."""
    for name, (n_query, n_gallery, more) in _JOBS.items():
        shape = make_shape(n_query * scale, n_gallery * scale)
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            save_sets(folder, shape)
            pipeline = folder / "job.yaml"
            pipeline.write_text(f"query: {folder}/query.zarr\ngallery: {folder}/gallery.zarr\n{more}")
            words = [sys.executable, "-m", "reid_dist.cli"]
            printed = subprocess.run([*words, "plan", str(pipeline)], capture_output=True, text=True, check=True).stdout
            taken, peak = time_and_peak([*words, "run", str(pipeline)], repeats)
        seconds, memory = _planned(printed)
        measured = sorted(taken)[repeats // 2]
        print(
            f"{name}, {shape.n_query} x {shape.n_gallery} x 512: planned {seconds:.3g} s, took {measured:.3g} s (ratio "
            f"{seconds / measured:.2f}); planned {memory / 2**30:.3g} GiB of tasks, peak {peak / 2**30:.3g} GiB of all "
            "processes"
        )


def _planned(printed: str) -> tuple[float, float]:
    """Seconds of all stages together, and bytes of the largest, of all threads."""
    times = re.findall(r"^time +about ([0-9.e+]+) (s|min|h)", printed, re.MULTILINE)
    memories = re.findall(r"^memory .*?, ([0-9.]+) (B|KiB|MiB|GiB) in all", printed, re.MULTILINE)
    return (
        sum(float(value) * _UNITS[unit] for value, unit in times),
        max(float(value) * _BYTES[unit] for value, unit in memories),
    )
