"""Numba's dispatchers of kernels: settings of the compiler, and of its cache on disk.

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
"""

from __future__ import annotations

import os
import pickle
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numba
from numba import config, njit
from numba.core import event

from reid_dist.kernels.compilations import COMPILATIONS, Cache, sources_stamp
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


class _Listener(event.Listener):
    """Passes on when Numba begins and ends a compilation."""

    def on_start(self, _: Any) -> None:
        COMPILATIONS.begin()

    def on_end(self, _: Any) -> None:
        COMPILATIONS.end()


_register: Any = event.register
_register("numba:compile", _Listener())


def make_dispatcher(function: Callable[..., Any], *, inner: bool) -> Any:
    """Dispatcher of a kernel, for other kernels only if it is an inner one; without compilation, the function."""
    if inner:
        return _kept(_cached(function, no_cfunc_wrapper=True, no_cpython_wrapper=True, **_INNER))
    return _kept(_cached(function, no_cfunc_wrapper=True, **_OUTER))


def _kept(compiled: Any) -> Any:
    """Set the rules of the cache for a kernel."""
    # Numba has no public way to set either; tests notice if these go.
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if cache_file is not None:
        Cache.path = Path(cache_file._cache_path)
        cache_file._source_stamp = (cache_file._source_stamp, sources_stamp())
        base = cache_file._index_name.removesuffix(".nbi")
        cache_file._data_name = lambda number: f"{base}.{uuid4().hex}.nbc"
        cache_file._load_index = partial(_loaded_index, cache_file._load_index)
        lock = Cache.path / f"{base}.lock"
        if _OUTER:
            inlining.decode_what_is_needed(compiled._cache)
        share_compilation(compiled._cache, lock, (COMPILATIONS.begin, COMPILATIONS.end))
    return compiled


def is_compiled(function: Callable[..., Any]) -> bool:
    """Whether this process or the cache holds current machine code of a kernel, for any types."""
    if getattr(function, "signatures", ()):
        return True
    cache_file = getattr(getattr(function, "_cache", None), "_cache_file", None)
    return cache_file is not None and bool(cache_file._load_index())


def load_compiled(function: Callable[..., Any]) -> None:
    """Load the current machine code of a kernel that the cache holds, for all types."""
    compiled: Any = function
    cache_file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    for types, *_ in [] if cache_file is None else cache_file._load_index():
        compiled.compile(types)


def _loaded_index(load: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Index of a kernel; empty if it cannot be decoded, as one that names argument types of an earlier version."""
    try:
        return load()
    except (AttributeError, ImportError, EOFError, LookupError, TypeError, ValueError, pickle.UnpicklingError):
        return {}


def _cached(function: Callable[..., Any], **options: Any) -> Any:
    """Compile to a cache on disk if there is a place for one."""
    if Cache.is_usual or Cache.folder is not None:
        try:
            return _compiled(function, cached=True, **options)
        except RuntimeError:
            # Its only error here: no place that can be written.
            if Cache.is_usual:
                Cache.is_usual, Cache.folder = False, _private_folder()
                vars(config)["CACHE_DIR"] = str(Cache.folder or "")
                return _cached(function, **options)
            Cache.folder = None
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
