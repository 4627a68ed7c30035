"""Opening of a history that a command writes to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from reid_dist.nightly.history import History


@contextlib.contextmanager
def opened_for_writing(path: Path, *, create: bool, timeout: float = 30.0) -> Iterator[History]:
    """Open a history, and print its warning to standard error.

    Parameters
    ----------
    path
        Path of the history.
    create
        Make a missing file.
    timeout
        Seconds to wait for locks of other processes.
    """
    with History.open(path, create=create, timeout=timeout) as history:
        if history.caution:
            # Slow to import, and seldom needed.
            from reid_dist.cli.progress import notify
            from reid_dist.core.credentials import without_controls

            notify("warning", without_controls(f"Warning: {history.caution}"), message=history.caution)
        yield history
