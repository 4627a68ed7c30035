"""Scratch of workers, where spilled data goes: in directories of this user alone, whatever the umask.

Dask makes a directory of a fixed name in the temporary one, by the umask, and shares one that is there already.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reid_dist.core.temporary import temporary_directory

PRELOADED = "reid_dist.clusters.remote_scratch"
"""Module that the nannies of workers preload which another program starts."""


def scratch_directory(place: str | os.PathLike[str] | None = None) -> tempfile.TemporaryDirectory[str]:
    """Make a directory of mode 0700 in `place`, or where Dask is set to keep temporary files; it goes at the end.

    Raises
    ------
    OSError
        If it cannot be made.
    """
    import dask

    place = place or dask.config.get("temporary-directory", None)
    if place is None:
        return temporary_directory()
    folder = Path(place).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return temporary_directory(str(folder))


@contextlib.contextmanager
def private_scratch() -> Iterator[str]:
    """Have schedulers and nannies of this process, and their workers, use such a directory."""
    import dask

    with scratch_directory() as folder, dask.config.set({"temporary-directory": folder}):
        yield folder
