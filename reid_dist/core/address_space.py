"""The limit of the address space (``ulimit -v``), which schedulers of batch jobs set.

Libraries of machine code that find no room end the process, with a line of their own or without, or raise errors that
do not name the limit.  What is known to be needed is therefore looked for before they are loaded.

Standard library alone: it is imported before anything else.
"""

from __future__ import annotations

import mmap
import re
import resource

from reid_dist.core.formatting import byte_size
from reid_dist.errors import ShortageError, chain_of

# What the dynamic linker says, behind the name of the library.
_NO_ROOM = re.compile(r"(?:([^/\s:]+\.so[^/\s:]*): )?(?:failed to map segment|cannot (?:allocate|map|apply|create) )")


def address_space() -> int | None:
    """Bytes of addresses that this process may use; None without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit in (resource.RLIM_INFINITY, -1) else limit


def require_address_space(n_bytes: int, what: str) -> None:
    """Refuse to load something, before it ends the process, where fewer addresses are left: a `ShortageError`."""
    if address_space() is None:
        return
    try:
        mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ).close()
    except OSError as error:
        raise ShortageError(_too_small(what)) from error


def unloadable(error: BaseException) -> str | None:
    """What to do about an error of loading a library for want of addresses, in one line; None for any other error."""
    for each in chain_of(error):
        found = _NO_ROOM.search(str(each)) if isinstance(each, ImportError | OSError) else None
        if found is not None:
            return _too_small(found[1] or "a library")
    return None


def more_memory(otherwise: str) -> str:
    """Advice to a process that got no memory: raise the limit of its address space, if it has one, or `otherwise`."""
    limit = address_space()
    return otherwise if limit is None else f"raise the limit of its address space, {_described(limit)}, or {otherwise}"


def _too_small(what: str) -> str:
    limit = address_space()
    if limit is None:
        return f"there is not enough memory to load {what}: free some, or run where there is more"
    return (
        f"the limit of the address space of this process, {_described(limit)}, is too small to load {what}: raise it, "
        "such as to 4 GiB (ulimit -v 4194304), or remove it (ulimit -v unlimited), and run again"
    )


def _described(limit: int) -> str:
    return f"{byte_size(limit)} (ulimit -v {limit >> 10})"
