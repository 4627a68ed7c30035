"""Kernels: functions of arrays and numbers that Numba compiles when they are first called.

Numba is imported at that call: it takes some tenths of a second, and a process that distributes its work calls no
kernel.  `reid_dist.kernels.dispatchers` has the settings of the compiler.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

from reid_dist.core.address_space import address_space, require_address_space
from reid_dist.core.environment import usable_cores

F = TypeVar("F", bound=Callable[..., Any])

_DISPATCHERS: Final = "reid_dist.kernels.dispatchers"
# Addresses that Numba, the machine code of kernels and their first calls take, those that compiling all takes, and more
# for each thread, as measured.
_ROOM: Final = 176 << 20
_ROOM_TO_COMPILE: Final = 900 << 20
_ROOM_OF_THREAD: Final = 48 << 20

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
    """A function that Numba compiles; all attributes of Numba's dispatcher are those of the kernel.

    Attributes
    ----------
    py_func
        The function before compilation.
    """

    _inner = False

    def __init__(self, function: Callable[..., Any]) -> None:
        functools.update_wrapper(self, function)
        self.py_func = function
        self._dispatcher: Any = None

    @property
    def dispatcher(self) -> Any:
        """Numba's dispatcher; without just-in-time compilation, the function."""
        if self._dispatcher is None:
            with _LOCK:
                if self._dispatcher is None:
                    self._dispatcher = self._made()
        return self._dispatcher

    def _made(self) -> Any:
        if _DISPATCHERS not in sys.modules:
            require_room()
        from reid_dist.kernels.dispatchers import make_dispatcher

        while _DEFINITIONS:
            _DEFINITIONS.pop()()
        return make_dispatcher(self.py_func, inner=self._inner)

    def __call__(self, *arguments: Any) -> Any:
        """Call the machine code, compiled for the types of the arguments or read from the cache if need be."""
        return self.dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        # As a constant of another kernel.
        return self.dispatcher._numba_type_

    def __getattr__(self, name: str) -> Any:
        # Libraries look for their own methods on any object.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dispatcher, name)

    def __reduce__(self) -> str:
        return self.py_func.__qualname__


class _InnerKernel(Kernel):
    """A kernel for other kernels.  Without conversion of its arguments, a call from Python would end the process."""

    _inner = True

    def __call__(self, *arguments: Any) -> Any:
        """Refuse a call, unless kernels are not compiled."""
        if self.dispatcher is not self.py_func:
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


def with_compiler(define: F) -> F:
    """Call a function before the next kernel is prepared: it imports Numba and defines operations in its terms."""
    _DEFINITIONS.append(define)
    return define
