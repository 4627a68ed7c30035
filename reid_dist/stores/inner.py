"""Folders in a workspace for work of many parts: what is finished of it stays there when it breaks, and only then."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from reid_dist.errors import StoreError
from reid_dist.stores.locations import canonical_uri, local_path
from reid_dist.stores.workspace import INNER, Workspace

__all__ = ["inner_folder"]


@contextlib.contextmanager
def inner_folder(workspace: str | os.PathLike[str] | None, mine: str | None) -> Iterator[Path]:
    """Where all parts of some work find what others have computed: a directory, for its files are removed one by one.

    Parameters
    ----------
    workspace
        Directory to be in; None for a temporary one.
    mine
        Identity of the work: a folder of that name in `workspace`, which goes when all is done.  None to leave
        everything in `workspace` itself.

    Raises
    ------
    StoreError
        If it cannot be made.
    """
    place = None if workspace is None else local_path(canonical_uri(workspace))
    if place is None:
        with tempfile.TemporaryDirectory(prefix=INNER) as name:
            yield Path(name)
        return
    folder = place if mine is None else place / f"{INNER}{mine[:20]}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {workspace}: {error.strerror}; choose another workspace") from error
    try:
        yield folder
    except BaseException:
        # What is finished stays, and the same work goes on from there.
        if mine is not None and not Workspace(str(folder)).holds_parts():
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if mine is not None:
        shutil.rmtree(folder, ignore_errors=True)
