"""BLAS limited to one thread per worker thread."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache

from threadpoolctl import ThreadpoolController


@lru_cache(maxsize=1)
def _thread_pools() -> ThreadpoolController:
    return ThreadpoolController()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the context; worker threads already occupy all cores."""
    with _thread_pools().limit(limits=1, user_api="blas"):
        yield
