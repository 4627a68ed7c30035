"""An explorer as a folder that opens from disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from reid_dist.core.environment import usable_cores
from reid_dist.core.formatting import counted
from reid_dist.core.temporary import draft_of
from reid_dist.errors import StoreError
from reid_dist.reports.browse.site import Site, picture_name
from reid_dist.reports.recorded_sides import SIDES
from reid_dist.reports.report_files import refuse_occupied

_BATCH = 256


def write_folder(
    site: Site, directory: str | os.PathLike[str], progress: Callable[[int, int, str], None] | None = None
) -> str:
    """Write the files of a site to a new directory, all of them or none; return a note on pictures, or "".

    Parameters
    ----------
    site
        The files.
    directory
        Missing or empty.
    progress
        Called with rows done, rows in all, and what is written.

    Raises
    ------
    InputError
        If the directory is a URI.
    StoreExistsError
        If it holds anything.
    StoreError
        If it cannot be written.
    """
    target = refuse_occupied(directory, otherwise="")
    staged = draft_of(target)
    try:
        try:
            staged.mkdir(parents=True)
            names, n_query = list(site.names()), site.subject.n_query
            for done, name in enumerate(names, 1):
                _write(staged / name, site.content(name))
                if progress is not None:
                    progress(n_query * done // len(names), n_query, "lists")
            _write_pictures(site, staged, progress)
            staged.replace(target)
        except OSError as error:
            raise StoreError(f"cannot write {target}: {error.strerror or error}; choose another directory") from error
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    failed = site.thumbnails.n_failed
    if not failed:
        return ""
    return f"{counted(failed, 'picture')} could not be read; the first: {site.thumbnails.first_failure}"


def _write_pictures(site: Site, folder: Path, progress: Callable[[int, int, str], None] | None) -> None:
    shown = [(side, row) for side in SIDES for row in site.picture_rows(side).tolist()]

    def write(picture: tuple[str, int]) -> None:
        _write(folder / picture_name(*picture), site.thumbnails.get(*picture))

    # Decoding releases the interpreter.
    with ThreadPoolExecutor(usable_cores()) as pool:
        for start in range(0, len(shown), _BATCH):
            batch = shown[start : start + _BATCH]
            list(pool.map(write, batch))
            if progress is not None:
                progress(start + len(batch), len(shown), "pictures")


def _write(path: Path, content: bytes | None) -> None:
    """Write a file; nothing for a picture that cannot be read."""
    if content is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
