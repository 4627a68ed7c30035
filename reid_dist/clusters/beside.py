"""Processes that compile kernels beside this one and its workers.

This process does not import Numba for them, as it may never need it: it looks for files of the cache, and the process
that it starts asks Numba.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar

from reid_dist.clusters.workers import prepare_local_workers
from reid_dist.core.environment import SCREEN_VARIABLE, has_integers, usable_cores
from reid_dist.kernels.compilations import INTEGERS, LATEST, seem_compiled

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

# A run that ends sooner, after its kernels are compiled, would not gain from others.
_SHORT_RUN_S, _LEAST_PRIORITY = 3.0, 19


class _Compiling:
    """The process that compiles the kernels of usual evaluations, and the thread that starts it.

    `kept` are the evaluations, without re-ranking or with it, whose kernels were found in the cache.
    """

    process: ForkServerProcess | None = None
    thread: threading.Thread | None = None
    kept: ClassVar[set[bool]] = set()


def compile_beside(*, reranks: bool = False) -> None:
    """Start a process that compiles the kernels of a usual evaluation that the cache lacks; do not wait for it.

    Without a second core, it would be of no use.  A second call does nothing.
    """
    if usable_cores() == 1 or _Compiling.thread is not None or reranks in _Compiling.kept:
        return
    if seem_compiled(LATEST[reranks]):
        _Compiling.kept.add(reranks)
        return
    prepare_local_workers(compiling=True)
    # The start waits for the process that others are forked from.
    _Compiling.thread = threading.Thread(target=_start, args=(reranks,), daemon=True)
    _Compiling.thread.start()


def _start(reranks: bool) -> None:
    _Compiling.process = start_process(_compile_usual, reranks)


@contextlib.contextmanager
def integers_compiled_beside() -> Iterator[None]:
    """Compile the kernels for products of integers that the cache lacks, beside a run that is not short."""
    ended = threading.Event()

    def start() -> None:
        if _Compiling.thread is not None:
            _Compiling.thread.join()
        if _Compiling.process is not None:
            _Compiling.process.join()
        if not ended.wait(_SHORT_RUN_S) and not seem_compiled(INTEGERS):
            prepare_local_workers(compiling=True)
            start_process(_compile_integers)

    wanted = os.environ.get(SCREEN_VARIABLE) != "float32" and has_integers()
    if wanted and usable_cores() > 1:
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
    from reid_dist.kernels.compiler import cache_folder
    from reid_dist.kernels.usual import compile_usual, lacks_usual

    # The process ends right after: collecting garbage would be a tenth of its time.
    gc.disable()
    # Workers compile what is missing after a failure.
    with contextlib.suppress(OSError, MemoryError):
        # Without a cache that workers read, it would be of no use.
        if cache_folder() is not None and lacks_usual(reranks=reranks):
            compile_usual(reranks=reranks)


def _compile_integers() -> None:
    from reid_dist.kernels.compiler import cache_folder
    from reid_dist.kernels.usual import compile_integers, lacks_integers

    os.nice(_LEAST_PRIORITY)
    gc.disable()
    with contextlib.suppress(OSError, MemoryError):
        if cache_folder() is not None and lacks_integers():
            compile_integers()
