"""Calls of kernels that only other kernels call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from reid_dist.kernels.compiled import start_compiler

__all__ = ["from_python"]


def from_python(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an inner kernel in one that Python can call."""
    # Numba takes a kernel for a function once the first one is prepared.
    start_compiler()

    @njit(error_model="numpy")
    def call(*arguments: Any) -> Any:
        return kernel(*arguments)

    return call
