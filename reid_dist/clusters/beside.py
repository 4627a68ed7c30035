"""Processes that compile kernels beside this one and its workers.

Numba and the kernels are imported where they are needed: the first process can be started before this one has them.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.workers import prepare_local_workers
from reid_dist.core.environment import SCREEN_VARIABLE, has_integers, usable_cores

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

# A run that ends sooner, after its kernels are compiled, would not gain from others.
_SHORT_RUN_S, _LEAST_PRIORITY = 3.0, 19

_KERNELS = Path(__file__).parent.parent / "kernels"


class _Compiling:
    """The process that compiles the kernels of usual evaluations, and the thread that starts it early."""

    process: ForkServerProcess | None = None
    thread: threading.Thread | None = None


def compile_early(*, reranks: bool = False) -> None:
    """Do as `compile_beside_workers` does, for a run in threads, where Numba has kept no kernel at all; do not wait.

    Where it keeps them is only known when it is imported, except for an installation that can be written and for
    ``NUMBA_CACHE_DIR``.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folder, pattern = (Path(chosen), "kernels_*/*.nbi") if chosen else (_KERNELS, "__pycache__/*.nbi")
    if usable_cores() == 1 or not (chosen or os.access(folder, os.W_OK)) or next(folder.glob(pattern), None):
        return
    prepare_local_workers(compiling=True)
    # The start waits for the process that others are forked from.
    _Compiling.thread = threading.Thread(target=_start, args=(reranks,), daemon=True)
    _Compiling.thread.start()


def compile_beside_workers(*, reranks: bool = False) -> None:
    """Start a process that compiles the kernels of a usual evaluation, if the cache lacks them; do not wait for it.

    Without a cache that both can read, or without a second core, it would be of no use.  A call while it runs does
    nothing.
    """
    from reid_dist.kernels.usual import lacks_usual

    if _Compiling.thread is not None:
        _Compiling.thread.join()
    running = _Compiling.process is not None and _Compiling.process.is_alive()
    if not running and _may_compile_beside() and lacks_usual(reranks=reranks):
        _start(reranks)


def _start(reranks: bool) -> None:
    _Compiling.process = start_process(_compile_usual, reranks)


def _may_compile_beside() -> bool:
    from reid_dist.kernels.settings import cache_folder

    return usable_cores() > 1 and cache_folder() is not None


@contextlib.contextmanager
def compiled_beside_threads(*, reranks: bool) -> Iterator[None]:
    """Compile the kernels that the cache lacks in processes beside this one, which runs the tasks itself."""
    from reid_dist.kernels.usual import lacks_usual

    if _may_compile_beside() and lacks_usual(reranks=reranks):
        prepare_local_workers(compiling=True)
        compile_beside_workers(reranks=reranks)
    with integers_compiled_beside():
        yield


@contextlib.contextmanager
def integers_compiled_beside() -> Iterator[None]:
    """Compile the kernels for products of integers that the cache lacks, beside a run that is not short."""
    from reid_dist.kernels.usual import lacks_integers

    ended = threading.Event()

    def start() -> None:
        if _Compiling.process is not None:
            _Compiling.process.join()
        if not ended.wait(_SHORT_RUN_S):
            prepare_local_workers(compiling=True)
            start_process(_compile_integers)

    wanted = os.environ.get(SCREEN_VARIABLE) != "float32" and has_integers()
    if wanted and _may_compile_beside() and lacks_integers():
        threading.Thread(target=start, daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def start_process(work: Callable[..., object], *arguments: object) -> ForkServerProcess | None:
    """Fork a process from the one that local workers are forked from; None where the system refuses.

    It ends with this process at the latest.
    """
    process = multiprocessing.get_context("forkserver").Process(target=work, args=arguments, daemon=True)
    with contextlib.suppress(OSError, EOFError):
        process.start()
        return process
    return None


def _compile_usual(reranks: bool) -> None:
    from reid_dist.kernels.usual import compile_usual

    # The process ends right after: collecting garbage would be a tenth of its time.
    gc.disable()
    # Workers compile what is missing after a failure.
    with contextlib.suppress(OSError, MemoryError):
        compile_usual(reranks=reranks)


def _compile_integers() -> None:
    from reid_dist.kernels.usual import compile_integers

    os.nice(_LEAST_PRIORITY)
    gc.disable()
    with contextlib.suppress(OSError, MemoryError):
        compile_integers()
