"""What is kept beside the file of a history: a marker of its first run, and copies of the last nights.

The marker tells a history that is new from one that is lost: an empty or missing file with a marker beside it had a
past.  A copy is made before every night by SQLite itself, so that it is whole while others write.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
import uuid
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "KEPT_COPIES",
    "Marker",
    "copies",
    "copy_before",
    "how_to_restore",
    "marker_path",
    "read_marker",
    "write_marker",
]

KEPT_COPIES: Final = 7
"""Copies that are kept: one for each of the last nights."""

_NAME: Final = re.compile(r"before-run-[0-9]{5,}\.db")


@dataclass(frozen=True, slots=True)
class Marker:
    """What is known of a history without its file.

    Attributes
    ----------
    first_run, last_run
        Numbers of the first run that was ever begun, and of the newest one.
    suite, began
        Name of the suite of the first run, and when it began.
    """

    first_run: int
    suite: str
    began: str
    last_run: int


def marker_path(history: Path) -> Path:
    """Return where the marker of a history is."""
    file = history.resolve()
    return file.with_name(f"{file.name}.marker.json")


def read_marker(history: Path) -> Marker | None:
    """Return the marker of a history; None where there is none, or where it cannot be read."""
    try:
        content = json.loads(marker_path(history).read_text(encoding="utf-8"))
        found = Marker(**content)
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    numbers = isinstance(found.first_run, int) and isinstance(found.last_run, int)
    return found if numbers and isinstance(found.suite, str) and isinstance(found.began, str) else None


def write_marker(history: Path, marker: Marker) -> None:
    """Write the marker of a history, in one step.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    target = marker_path(history)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            json.dump(asdict(marker), file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)


def copies(history: Path) -> list[Path]:
    """Return the copies of a history that are there, the newest last."""
    try:
        found = [path for path in _folder(history).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: (len(path.name), path.name))


def copy_before(connection: sqlite3.Connection, history: Path, run: int) -> Path:
    """Copy a history before a run, and remove all copies but the newest ones; return the copy.

    Parameters
    ----------
    connection
        To the history; without a transaction.
    history
        Its file.
    run
        The number that the run will have.

    Raises
    ------
    OSError, sqlite3.Error
        If it cannot be written.
    """
    target = _folder(history) / f"before-run-{run:05}.db"
    target.parent.mkdir(exist_ok=True)
    draft = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with closing(sqlite3.connect(draft)) as copy:
            connection.backup(copy)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(target)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    for old in copies(history)[:-KEPT_COPIES]:
        with contextlib.suppress(OSError):
            old.unlink()
    return target


def how_to_restore(history: Path) -> str:
    """Return in one clause how the newest copy takes the place of a history."""
    found = copies(history)
    if not found:
        return "put back a copy of it"
    return (
        f"put back the newest copy while no night runs: remove {history}-journal if it is there, and copy {found[-1]} "
        f"to {history}"
    )


def _folder(history: Path) -> Path:
    file = history.resolve()
    return file.with_name(f"{file.name}.copies")
