"""Numba's dispatchers of kernels: settings of the compiler.

``fastmath`` stays off: sums keep the order in which they are written, products are not contracted with additions,
NaN and infinity behave as in IEEE 754.  The canonical distances, and with them every digest, rest on that.
Kernels release the GIL, so that worker threads run side by side.

Machine code is kept for kernels that Python calls, with the code of those that they call in it.  Numba has a cache of
its own for it, in the directory that `numba.config.CACHE_DIR` names when a dispatcher is made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from numba import config, extending, njit, typeof

from reid_dist.core.address_space import require_address_space
from reid_dist.kernels.compilations import compiling
from reid_dist.kernels.machine_code import locked, machine_code_folder, record_of

# Addresses that the compilation of one kernel takes, and the reading of one from the disk: without them, LLVM would end
# the process.  A thread that starts meanwhile takes up to 64 MiB.
_ROOM_TO_COMPILE: Final = 192 << 20
_ROOM_TO_READ: Final = 96 << 20

# Untyped.
_settings: Any = config
_type_of: Any = typeof
_compile: Any = njit
_register: Any = extending.typeof_impl


def register_kernels(kind: type) -> None:
    """Let kernels call others: have Numba take a value of the class of kernels for its `callee`."""
    if kind not in _register.registry:
        _register.register(kind, lambda kernel, _: _type_of(kernel.callee))


def make_callee(function: Callable[..., Any], *, inlined: bool) -> Any:
    """Dispatcher of a kernel for other kernels alone, whose code may become part of theirs.

    A call from Python would end the process.
    """
    return _made(function, no_cpython_wrapper=True, forceinline=inlined)


def compiled_for(kernel: Any, arguments: tuple[Any, ...]) -> Any:
    """Dispatcher of a kernel with machine code for the types of some arguments, compiled or from the disk."""
    types = tuple(_type_of(each) for each in arguments)
    folder = machine_code_folder()
    record = None if folder is None else record_of(folder, kernel.name, str(types))
    is_new = record is None or not record.exists()
    with contextlib.ExitStack() as stack:
        if is_new:
            require_address_space(_ROOM_TO_COMPILE, "the compiler of kernels")
            # The wait for a process that compiles it is reported as well.
            stack.enter_context(compiling())
        else:
            require_address_space(_ROOM_TO_READ, "the machine code of kernels")
        # Of a disk that is full, or a directory that has been removed.
        with contextlib.suppress(OSError):
            if record is not None and stack.enter_context(locked(kernel.name)):
                if kernel.kept is None:
                    kernel.kept = _made_to_keep(kernel.py_func, record.parent)
                kernel.kept.compile(types)
                if is_new:
                    record.touch()
                return kernel.kept
        if not is_new:
            stack.enter_context(compiling())
        made = _made(kernel.py_func)
        made.compile(types)
        return made


def _made_to_keep(function: Callable[..., Any], folder: Path) -> Any:
    before = _settings.CACHE_DIR
    _settings.CACHE_DIR = str(folder)
    try:
        return _made(function, cache=True)
    finally:
        # Other packages have places of their own.
        _settings.CACHE_DIR = before


def _made(function: Callable[..., Any], **options: Any) -> Any:
    return _compile(nogil=True, fastmath=False, error_model="numpy", no_cfunc_wrapper=True, **options)(function)
