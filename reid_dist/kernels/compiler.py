"""The compiler as a whole: its start, and the place of the machine code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reid_dist.kernels.compilations import Cache
from reid_dist.kernels.settings import kernel


@kernel
def _nothing(value: int) -> int:
    return value


def start_compiler() -> None:
    """Import Numba, and prepare the first call of a kernel, which takes some 0.3 s even for code from the disk."""
    _nothing(0)


def cache_folder() -> Path | None:
    """Directory of the machine code; None where it is not kept."""
    prepared: Any = _nothing
    # The first dispatcher finds the place.
    _ = prepared.dispatcher
    return Cache.path
