"""Settings of Numba for all kernels.

``fastmath`` stays off: sums keep the order in which they are written, products are not contracted with additions,
NaN and infinity behave as in IEEE 754.  The canonical distances, and with them every digest, rest on that.
Kernels release the GIL, so that worker threads run side by side, and are cached on disk, so that a worker process
loads machine code instead of compiling it.

Numba takes a cached kernel for current as long as its own file is unchanged, though it holds the code of kernels that
it calls from other files.  Here every kernel is as old as the newest of all kernel files.

Numba also numbers its data files, and writes the index before them.  So two processes that compile at once can give
one name to two kernels, and one that starts meanwhile can find the code of older sources under a new index.  Here no
name is given twice: an index names a file with the right code, or one that is not there yet.

The index pickles the argument types of a kernel, and Numba decodes it before it compares sources: a class that a newer
version has renamed would end every call.  Here such an index counts as empty.

Numba refuses to define a cached kernel where it may write neither beside the sources nor in the home directory, as in a
container that is read-only.  Here such kernels go to a directory of this user alone, or are compiled by every process.

Compilation takes most of a first run.  Its times are recorded, so that no stage is charged with them.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import stat
import time
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from uuid import uuid4

import numba
from numba import config, njit
from numba.core import event
from numba.core.registry import CPUDispatcher

from reid_dist.kernels.sharing import share_compilation

# Versions of Numba whose internals `reid_dist.kernels.inlining` was written for; with others, kernels are compiled as
# usual, which takes about twice as long.
_INTERNALS_OF = ("0.68.",)

_INNER: dict[str, Any] = {}
_OUTER: dict[str, Any] = {}
if numba.__version__.startswith(_INTERNALS_OF):
    from reid_dist.kernels import array_functions, inlining

    _INNER, _OUTER = inlining.INNER_OPTIONS, inlining.OUTER_OPTIONS
    array_functions.import_array_functions()

F = TypeVar("F", bound=Callable[..., Any])


@lru_cache(maxsize=1)
def sources_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, size and time of every kernel file."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return tuple((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files)


def kernel(function: F) -> F:
    """Compile a function of arrays and numbers at its first call; the declared types are kept for readers and mypy."""
    return cast("F", _kept(_cached(function, no_cfunc_wrapper=True, **_OUTER)))


def inner_kernel(function: F) -> F:
    """Compile as `kernel` does, to be called by other kernels only: conversion of Python objects is left out."""
    compiled = _kept(_cached(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, **_INNER))
    # Without just-in-time compilation, it is the function.
    if isinstance(compiled, CPUDispatcher):
        compiled.__class__ = _Inner
    return cast("F", compiled)


class _Inner(CPUDispatcher):
    """An inner kernel.  Without conversion of its arguments, a call from Python would end the process."""

    def __call__(self, *_: object, **__: object) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__name__}"
        raise TypeError(f"{name} is an inner kernel: only other kernels can call it, and `.py_func` is its Python code")


def _kept(compiled: Any) -> Any:
    """Set the rules of the cache for a kernel."""
    # Numba has no public way to set either; tests notice if these go.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        _Cache.path = Path(cache_file._cache_path)
        cache_file._source_stamp = (cache_file._source_stamp, sources_stamp())
        base = cache_file._index_name.removesuffix(".nbi")
        cache_file._data_name = lambda number: f"{base}.{uuid4().hex}.nbc"
        cache_file._load_index = partial(_loaded_index, cache_file._load_index)
        lock = _Cache.path / f"{base}.lock"
        if _OUTER:
            inlining.decode_what_is_needed(compiled._cache)
        share_compilation(compiled._cache, lock, (_COMPILATIONS.on_start, _COMPILATIONS.on_end))
    return compiled


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether this process or the cache holds current machine code of a kernel, for any types."""
    if getattr(function, "signatures", ()):
        return True
    cache_file = getattr(getattr(function, "_cache", None), "_cache_file", None)
    return cache_file is not None and bool(cache_file._load_index())


def _loaded_index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Index of a kernel; empty if it cannot be decoded, as one that names argument types of an earlier version."""
    try:
        return load()
    except (AttributeError, ImportError, EOFError, LookupError, TypeError, ValueError, pickle.UnpicklingError):
        return {}


# ---- where machine code is kept --------------------------------------------------------------------------------------

_ONCE: Final = "compiling kernels, once per machine"


class _Cache:
    """Location of machine code.

    Attributes
    ----------
    is_usual
        Whether Numba itself chooses the place.
    folder
        The directory chosen here otherwise; None without one.
    path
        Directory of the files of the kernels; None if they are not kept.
    """

    is_usual = True
    folder: Path | None = None
    path: Path | None = None


def cache_words() -> str:
    """Line that is shown while kernels are compiled: how often that happens, and why if more than once."""
    if _Cache.is_usual:
        return _ONCE
    unwritable = "neither the installation nor the home directory can be written; NUMBA_CACHE_DIR names a place"
    if _Cache.folder is not None:
        return f"{_ONCE}, into {_Cache.folder} ({unwritable} that lasts)"
    return f"compiling kernels in every process ({unwritable} to keep them)"


def cache_folder() -> Path | None:
    """Directory of the machine code, once a kernel is defined; None where it is not kept."""
    return _Cache.path


def _cached(function: Callable[..., Any], **options: Any) -> Any:
    """Compile to a cache on disk if there is a place for one."""
    if _Cache.is_usual or _Cache.folder is not None:
        try:
            return _compiled(function, cached=True, **options)
        except RuntimeError:
            # Its only error here: no place that can be written.
            if _Cache.is_usual:
                _Cache.is_usual, _Cache.folder = False, _private_folder()
                vars(config)["CACHE_DIR"] = str(_Cache.folder or "")
                return _cached(function, **options)
            _Cache.folder = None
    return _compiled(function, cached=False, **options)


def _compiled(function: Callable[..., Any], *, cached: bool, **options: Any) -> Any:
    return njit(nogil=True, cache=cached, fastmath=False, error_model="numpy", **options)(function)


def _private_folder() -> Path | None:
    """A directory that outlasts the process and that no other user can write: its files are executed."""
    folder = Path(os.sep, "var", "tmp", f"reid-dist-kernels-{os.getuid()}")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return None
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return folder if private and os.access(folder, os.W_OK) else None


# ---- when kernels are compiled ---------------------------------------------------------------------------------------

Listener = Callable[[float, float | None], None]


class _Compilations(event.Listener):
    """Records when this process compiles kernels: one at a time, each with the kernels that it calls."""

    def __init__(self) -> None:
        self.spans: list[tuple[float, float]] = []
        self.listeners: list[Listener] = []
        self._depth, self._began = 0, 0.0

    def on_start(self, _: Any) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began = time.time()
            self._tell(self._began, None)

    def on_end(self, _: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.spans.append((self._began, time.time()))
            self._tell(*self.spans[-1])

    def _tell(self, began: float, ended: float | None) -> None:
        for listener in [*self.listeners]:
            listener(began, ended)


_COMPILATIONS: Final = _Compilations()
_REGISTER: Any = event.register
_REGISTER("numba:compile", _COMPILATIONS)


def compiled_spans() -> list[tuple[float, float]]:
    """Begin and end of every compilation of this process so far, in seconds of `time.time`."""
    return [*_COMPILATIONS.spans]


def listen(listener: Listener) -> None:
    """Call a function at the begin of every compilation of this process, with its time and None, and at its end.

    It is called in the thread that compiles, with begin and end in seconds of `time.time`.
    """
    if listener not in _COMPILATIONS.listeners:
        _COMPILATIONS.listeners.append(listener)


@contextlib.contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Do as `listen` does for a while."""
    listen(listener)
    try:
        yield
    finally:
        _COMPILATIONS.listeners.remove(listener)
