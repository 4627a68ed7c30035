"""A history that a command writes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from reid_dist.nightly.history import History

__all__ = ["opened_for_writing"]


@contextlib.contextmanager
def opened_for_writing(path: Path, *, create: bool) -> Iterator[History]:
    """Open a history and, on standard error, say what there is to know of the place where it lies.

    Parameters
    ----------
    path
        The file.
    create
        Make the file where there is none.
    """
    with History.open(path, create=create) as history:
        if history.caution:
            # Most histories give no reason to load what progress needs.
            from reid_dist.cli.progress import say
            from reid_dist.core.credentials import without_controls

            say("warning", without_controls(f"Warning: {history.caution}"), message=history.caution)
        yield history
