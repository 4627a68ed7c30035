"""Kernels: functions of arrays and numbers that Numba compiles when they are first called.

Numba is imported at that call: it takes some tenths of a second, and a process that distributes its work calls no
kernel.  `reid_dist.kernels.dispatchers` has the settings of the compiler, `reid_dist.kernels.machine_code` the place of
the machine code.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np

from reid_dist.core.address_space import address_space, require_address_space
from reid_dist.core.environment import usable_cores

F = TypeVar("F", bound=Callable[..., Any])

_DISPATCHERS: Final = "reid_dist.kernels.dispatchers"
# Addresses that Numba, the machine code of kernels and their first calls take, those that compiling all takes, and more
# for each thread, as measured.
_ROOM: Final = 256 << 20
_ROOM_TO_COMPILE: Final = 900 << 20
_ROOM_OF_THREAD: Final = 48 << 20

# Without just-in-time compilation, kernels are their functions.
_IS_PLAIN: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0")

_LOCK: Final = threading.RLock()
_DEFINITIONS: Final[list[Callable[[], object]]] = []


def require_room(*, to_compile: bool = False) -> None:
    """Refuse kernels, or with `to_compile` the compilation of all, where machine code would find no room.

    It would end the process.  ShortageError with the limit of the address space.
    """
    if address_space() is not None:
        room = (_ROOM_TO_COMPILE if to_compile else _ROOM) + _ROOM_OF_THREAD * usable_cores()
        require_address_space(
            room, "the compiler of kernels" if to_compile else "Numba and the machine code of kernels"
        )


class Kernel:
    """A function that Numba compiles.

    Machine code is made, or read from the disk, for each combination of types that the kernel is called with.

    Attributes
    ----------
    py_func
        The function before compilation.
    name
        Module and name, as in ``counting.count_tile``.
    kept
        Numba's dispatcher of machine code that is kept on disk; None before the first call.
    """

    _inlined = False

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self.name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self.kept: Any = None
        self._callee: Any = None
        self._prepared: dict[tuple[Any, ...], Any] = {}

    def __call__(self, *arguments: Any) -> Any:
        """Call the machine code, compiled for the types of the arguments or read from the disk if need be."""
        if _IS_PLAIN:
            return self.py_func(*arguments)
        prepared = self._prepared.get(_kinds(arguments)) or self.prepare(*arguments)
        return prepared(*arguments)

    def prepare(self, *arguments: Any) -> Any:
        """Have machine code for the types of some arguments, and return Numba's dispatcher that has it."""
        with _LOCK:
            kinds = _kinds(arguments)
            if kinds not in self._prepared:
                self._prepared[kinds] = _dispatchers().compiled_for(self, arguments)
            return self._prepared[kinds]

    @property
    def callee(self) -> Any:
        """Numba's dispatcher of the kernel as other kernels call it."""
        # Asked for by Numba alone, which compiles in one thread at a time.
        if self._callee is None:
            self._callee = _dispatchers().make_callee(self.py_func, inlined=self._inlined)
        return self._callee

    def __reduce__(self) -> str:
        return self.py_func.__qualname__


def _dispatchers() -> Any:
    """The module that needs Numba, which is imported with it."""
    if _DISPATCHERS not in sys.modules:
        require_room()
    import reid_dist.kernels.dispatchers as dispatchers

    dispatchers.register_kernels(Kernel)
    while _DEFINITIONS:
        _DEFINITIONS.pop()()
    return dispatchers


def _kinds(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the types of values depend on, in a small part of the time that Numba takes for the types themselves."""
    return tuple(
        (value.dtype.char, value.ndim, value.flags.num)
        if isinstance(value, np.ndarray)
        else (type(value), *_kinds(value))
        if isinstance(value, tuple)
        else type(value)
        for value in values
    )


class _InnerKernel(Kernel):
    """A kernel for other kernels."""

    def __init__(self, function: Callable[..., Any], *, inlined: bool = False) -> None:
        super().__init__(function)
        self._inlined = inlined

    def __call__(self, *arguments: Any) -> Any:
        """Refuse a call, unless kernels are not compiled."""
        if not _IS_PLAIN:
            name = f"{self.py_func.__module__}.{self.py_func.__name__}"
            raise TypeError(
                f"{name} is an inner kernel: only other kernels can call it, and `.py_func` is its Python code"
            )
        return self.py_func(*arguments)


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; the declared types are kept for readers and mypy."""
    return cast("F", Kernel(function))


def inner_kernel(function: F) -> F:
    """Compile as `kernel` does, to be called by other kernels only: conversion of Python objects is left out."""
    return cast("F", _InnerKernel(function))


def inlined_kernel(function: F) -> F:
    """Compile as `inner_kernel` does, as a part of each kernel that calls it.

    A call takes some nanoseconds for every array that it passes, those of tuples included, as references are counted.
    """
    return cast("F", _InnerKernel(function, inlined=True))


def with_compiler(define: F) -> F:
    """Call a function before the next kernel is prepared: it imports Numba and defines operations in its terms."""
    _DEFINITIONS.append(define)
    return define


@kernel
def _nothing(value: int) -> int:
    return value


def start_compiler() -> None:
    """Import Numba, and prepare the first call of a kernel, which takes some 0.3 s even for code from the disk."""
    _nothing(0)
