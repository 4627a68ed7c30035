"""Compilation of kernels on a second core, beside the workers that run into them."""

from __future__ import annotations

import contextlib
import multiprocessing

from reid_dist.core.environment import usable_cores
from reid_dist.kernels.settings import cache_folder
from reid_dist.kernels.usual import compile_usual, lacks_usual


def compile_beside_workers() -> None:
    """Start a process that compiles the kernels of a usual evaluation, if the cache lacks them; do not wait for it.

    It is forked from the process that local workers are forked from, and ends with this process at the latest.  Without
    a cache that both can read, or without a second core, it would be of no use.
    """
    if usable_cores() < 2 or cache_folder() is None or not lacks_usual():
        return
    process = multiprocessing.get_context("forkserver").Process(target=_compile, daemon=True)
    with contextlib.suppress(OSError, EOFError):
        process.start()


def _compile() -> None:
    # The workers compile what is missing then.
    with contextlib.suppress(OSError, MemoryError):
        compile_usual()
