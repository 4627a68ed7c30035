"""Imported by the process that local workers are forked from, once for all of them.

The first call of any compiled function also sets up the compiler, which takes some 0.3 s even for a function from the
disk cache.  That is done here; the workers load the kernels themselves, as compiling them, without a cache, would delay
the fork server.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import signal
import sys
from multiprocessing import synchronize
from pickle import UnpicklingError
from traceback import walk_tb
from types import TracebackType

import reid_dist.core.signals as signals
from reid_dist.core.sources import sources_digest
from reid_dist.kernels.compiled import start_compiler

# What every worker imports.
_MODULES = ("distributed", "distributed.nanny", "distributed.worker", "reid_dist.engine.graph")


def _report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Exception hook of forked processes: the process that requests a worker reports a request that it cuts off.

    Either the request is incomplete, or the semaphores that it names have been removed.
    """
    modules = [frame.f_globals.get("__name__") for frame, _ in walk_tb(trace)]
    without_semaphore = issubclass(kind, FileNotFoundError) and modules[-1:] == [synchronize.__name__]
    if not (without_semaphore or issubclass(kind, (EOFError, UnpicklingError))):
        sys.__excepthook__(kind, error, trace)


# The process was started with these signals blocked, so that none could end it before this.  Workers ignore all but
# SIGTERM, which ends them.
for _number in signals.NUMBERS:
    signal.signal(_number, signal.SIG_IGN)
os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
signal.pthread_sigmask(signal.SIG_UNBLOCK, signals.NUMBERS)

sys.excepthook = _report

# Nothing that is made here is freed: no garbage collection is needed, here or in a fork.
gc.disable()
# Where there is no room for it, or a module is missing, the processes that need it say so.
with contextlib.suppress(MemoryError, ImportError, OSError, RuntimeError):
    start_compiler()
with contextlib.suppress(Exception):
    for _name in _MODULES:
        importlib.import_module(_name)
# Of the code that is imported, also if its files change before a worker is started.
sources_digest()
gc.freeze()
gc.enable()
