"""System calls that some systems lack, and what takes their place there; standard library alone.

Cores are in `reid_dist.core.environment`, the table of processes in `reid_dist.core.processes`.
"""

from __future__ import annotations

import mmap
import os


def read_at(file: int, target: memoryview, offset: int) -> int:
    """Read bytes of a file, by its descriptor, from an offset on; return their number, 0 at the end of the file."""
    # macOS has it since version 11.
    if hasattr(os, "preadv"):
        return os.preadv(file, [target], offset)
    found = os.pread(file, len(target), offset)
    target[: len(found)] = found
    return len(found)


def read_ahead(mapped: mmap.mmap) -> None:
    """Have the system read a mapped file ahead, where it takes advice."""
    if hasattr(mmap, "MADV_WILLNEED"):
        mapped.madvise(mmap.MADV_WILLNEED)
