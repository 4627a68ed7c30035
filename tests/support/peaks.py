"""Peak memory of work in a process of its own, beyond what the process takes with its libraries.

The C library keeps freed blocks for later ones, as many as the timing of threads leaves.  In a process that is measured
it returns them at once, so that a peak consists of arrays in use.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate, nearest
from reid_dist.clusters.settings import forcing
from reid_dist.engine.policy import UNFORCED

_TESTS = str(Path(__file__).parents[1])

needs_peaks = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux to measure a peak")
"""Mark of tests that measure a peak."""


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(name))


def start_peak(dim: int) -> int:
    """Forget earlier peaks; return the bytes of this process.

    The library and the kernels of products of integers, of rows of `dim` elements, are among them: they are loaded once
    per process, by blocks that are larger than those of a warm-up.
    """
    if UNFORCED.integer_product() is not None:
        items = FeatureSet.from_arrays(np.eye(40, dim, dtype=np.float32), np.arange(40) % 8, np.arange(40) % 3)
        with forcing("int8"):
            evaluate(items, items, topk=3)
            nearest(items, items, k=3)
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak_since(before: int) -> int:
    """Largest growth of this process since `start_peak`, in bytes."""
    return _status("VmHWM") - before


def run_and_read(program: str, *words: object) -> list[int]:
    """Run a program that may import this module; return the whole numbers that it prints."""
    paths = os.pathsep.join(filter(None, [_TESTS, os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "MALLOC_MMAP_THRESHOLD_": "65536"}
    # Dask sets it in a process that starts workers; `one_blas_thread` then keeps freed blocks.
    environment.pop("MALLOC_TRIM_THRESHOLD_", None)
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()]
