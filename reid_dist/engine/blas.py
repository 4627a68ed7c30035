"""Settings of a process for tiles: one BLAS thread per worker thread, and freed memory that is used again.

Workers that Dask starts return freed memory to the system at once, in blocks of 64 KiB and more (Dask sets
``MALLOC_TRIM_THRESHOLD_`` for them).  The arrays of a tile would come from the system page by page for every tile: a
third of the time of re-ranking some twenty thousand items.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from functools import lru_cache

from threadpoolctl import ThreadpoolController

# Parameters of `mallopt` (malloc.h), and the limits that glibc itself reaches when large blocks are freed.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_MOST_KEPT, _MOST_ON_HEAP = 64 << 20, 32 << 20


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@lru_cache(maxsize=1)
def _keep_freed_memory() -> None:
    """Have the C library of this process use freed blocks again; libraries other than glibc stay as they are."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _MOST_KEPT)
        mallopt(_MMAP_THRESHOLD, _MOST_ON_HEAP)


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the context; worker threads already occupy all cores."""
    _keep_freed_memory()
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield
