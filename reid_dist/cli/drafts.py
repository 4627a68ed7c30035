"""Files that were never finished: a run that is killed leaves them under hidden names, the next one removes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["without_old_temporaries"]

# The two kinds of hidden names under which files are written before they get their own: parts and reports.
_DRAFT = re.compile(r"\..+\.[0-9a-f]{32}|\..+\.[0-9a-f]{8}\.tmp")


@contextlib.contextmanager
def without_old_temporaries(*folders: Path | str | None) -> Iterator[None]:
    """Remove, at the end of a run, drafts that were there at its beginning and that nobody has touched since.

    Another run may work in the same folders, and its drafts grow; no clock is asked, for workers may have others.

    Parameters
    ----------
    folders
        Where drafts are looked for, with the stages that they hold; a URI of object storage, whose writes are whole or
        nothing, has none.
    """
    before = _drafts(folders)
    try:
        yield
    finally:
        after = _drafts(folders)
        for draft, state in before.items():
            if after.get(draft) == state:
                with contextlib.suppress(OSError):
                    draft.unlink()


def _drafts(folders: tuple[Path | str | None, ...]) -> dict[Path, tuple[int, int]]:
    """Drafts, with their size and when they were last written to."""
    found = {}
    for folder in folders:
        if folder is None or "://" in str(folder):
            continue
        # A folder that is missing has none.
        for pattern in (".*", "*/.*"):
            for draft in Path(folder).glob(pattern):
                if _DRAFT.fullmatch(draft.name):
                    with contextlib.suppress(OSError):
                        state = draft.stat()
                        found[draft] = (state.st_size, state.st_mtime_ns)
    return found
