"""Directories of this user alone, for several kinds of clusters.

Scratch of workers, where spilled data goes, is such a directory whatever the umask: Dask makes one of a fixed name in
the temporary directory, by the umask, and shares one that exists.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reid_dist.core.temporary import temporary_directory
from reid_dist.errors import InputError

PRELOADED = "reid_dist.clusters.remote_scratch"
"""Module that is preloaded by nannies of workers that another program starts."""


def private_directory(path: str) -> Path:
    """Make a directory of this user alone within `shared_directory`: keys are put there."""
    folder = Path(path).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InputError(f"cannot make shared_directory {str(folder)!r} of the cluster: {error.strerror}") from None
    return folder


def scratch_directory(place: str | os.PathLike[str] | None = None) -> tempfile.TemporaryDirectory[str]:
    """Make a directory of mode 0700 in `place`, or where Dask keeps temporary files; it is removed with the process."""
    import dask

    place = place or dask.config.get("temporary-directory", None)
    if place is None:
        return temporary_directory()
    folder = Path(place).expanduser().absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return temporary_directory(str(folder))


@contextlib.contextmanager
def private_scratch() -> Iterator[str]:
    """Have schedulers and nannies of this process, and their workers, use a new scratch directory."""
    import dask

    with scratch_directory() as folder, dask.config.set({"temporary-directory": folder}):
        yield folder
