"""The one place that owns the Numba settings.

``fastmath`` stays off: sums keep the order in which they are written, products are not contracted with additions,
NaN and infinity behave as IEEE 754 says.  The canonical distances, and with them every digest, rest on that.
Kernels release the GIL, so that worker threads run side by side, and are cached on disk, so that a worker process
loads machine code instead of compiling it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

__all__ = ["kernel"]

F = TypeVar("F", bound=Callable[..., Any])


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; the declared types are kept for readers and mypy."""
    return cast("F", njit(nogil=True, cache=True, fastmath=False, error_model="numpy")(function))
