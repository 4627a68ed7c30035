"""The one place that owns the Numba settings.

``fastmath`` stays off: sums keep the order in which they are written, products are not contracted with additions,
NaN and infinity behave as IEEE 754 says.  The canonical distances, and with them every digest, rest on that.
Kernels release the GIL, so that worker threads run side by side, and are cached on disk, so that a worker process
loads machine code instead of compiling it.

Numba takes a cached kernel for current as long as its own file is unchanged, though it holds the code of kernels that
it calls from other files.  Here every kernel is as old as the newest of all kernel files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

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
    # Numba has no public way to say what else a cached kernel depends on; a test notices if this one goes.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        cache_file._source_stamp = (cache_file._source_stamp, sources_stamp())
    return cast("F", compiled)
