"""The one place that owns the Numba settings.

``fastmath`` stays off: sums keep the order in which they are written, products are not contracted with additions,
NaN and infinity behave as IEEE 754 says.  The canonical distances, and with them every digest, rest on that.
Kernels release the GIL, so that worker threads run side by side, and are cached on disk, so that a worker process
loads machine code instead of compiling it.

Numba takes a cached kernel for current as long as its own file is unchanged, though it holds the code of kernels that
it calls from other files.  Here every kernel is as old as the newest of all kernel files.

Numba also numbers its data files, and writes the index before them.  So two processes that compile at once can give
one name to two kernels, and one that starts meanwhile can find the code of older sources under a new index.  Here no
name is given twice: an index names a file with the right code, or one that is not there yet.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast
from uuid import uuid4

from numba import njit

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])


@lru_cache(maxsize=1)
def sources_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of every kernel file."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; the declared types are kept for readers and mypy."""
    compiled = njit(nogil=True, cache=True, fastmath=False, error_model="numpy")(function)
    # Numba has no public way to set either; tests notice if these go.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, sources_stamp())
        base = cache_file._index_name.removesuffix(".nbi")
        cache_file._data_name = lambda number: f"{base}.{uuid4().hex}.nbc"
    return cast("F", compiled)
