"""Settings of a process for tiles: one BLAS thread per worker thread, and freed memory that is used again.

Dask sets ``MALLOC_TRIM_THRESHOLD_`` for its workers.  With it, glibc returns freed memory to the system at once, in
blocks of 64 KiB and more, and no longer adapts to the sizes of blocks: the arrays of every tile would come from the
system page by page.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from threadpoolctl import ThreadpoolController

# Parameters of `mallopt` (malloc.h): free memory that is kept, and the largest blocks that are kept.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_KEPT, _LARGEST_KEPT = 32 << 20, 16 << 20

# What glibc read when the process began; a forked process has the settings of the one it was forked from.
_ENVIRONMENT, _VARIABLE = Path("/proc/self/environ"), b"MALLOC_TRIM_THRESHOLD_="


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@lru_cache(maxsize=1)
def _keep_freed_memory() -> None:
    """Have the C library use freed blocks again, where Dask has it return them to the system."""
    try:
        given = _ENVIRONMENT.read_bytes()
    except OSError:
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and _VARIABLE in given:
        mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
        mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the context; worker threads already occupy all cores."""
    _keep_freed_memory()
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield
