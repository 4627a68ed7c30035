"""Settings of a process for tiles."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource
import numpy as np
from reid_dist.engine.blas import one_blas_thread

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(40):
        np.empty(1 << 21, np.uint8)[:] = 1
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
with one_blas_thread():
    faults()
    print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="freed memory is kept with glibc alone")
def test_freed_memory_is_used_again():
    """Also in workers of Dask, which return it to the system: 40 arrays of 512 pages each."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    found = subprocess.run([sys.executable, "-c", _FAULTS], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, found.stdout.split())
    assert before > 40 * 500
    assert after < 512
