"""Files beside a history: a marker of its first run, and copies from before the last nights.

With the marker, a missing or empty file is recognised as lost.  SQLite makes the copies, so they are whole while others
write.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from reid_dist.core.json_text import parse_json
from reid_dist.core.regular_files import MOST_SETTINGS, read_regular

KEPT_COPIES: Final = 7
"""Number of copies kept, one per night."""

_NAME: Final = re.compile(r"before-run-[0-9]{5,}\.db")


@dataclass(frozen=True, slots=True)
class Marker:
    """Facts of a history beside its file: its first run, with suite and begin, and the number of its newest run."""

    first_run: int
    suite: str
    began: str
    last_run: int


def marker_path(history: Path) -> Path:
    """Return the path of the marker of a history."""
    file = history.resolve()
    return file.with_name(f"{file.name}.marker.json")


def read_marker(history: Path) -> Marker | None:
    """Return the marker of a history; None if there is none, or it cannot be read."""
    try:
        content = parse_json(read_regular(marker_path(history), MOST_SETTINGS))
        found = Marker(**content)
    except (OSError, ValueError, TypeError):
        return None
    numbers = isinstance(found.first_run, int) and isinstance(found.last_run, int)
    return found if numbers and isinstance(found.suite, str) and isinstance(found.began, str) else None


def write_marker(history: Path, marker: Marker) -> None:
    """Write the marker of a history atomically; OSError if it cannot be written."""
    with _replacing(marker_path(history)) as temporary, temporary.open("w", encoding="utf-8") as file:
        json.dump(asdict(marker), file, indent=1)


def copies(history: Path) -> list[Path]:
    """Return the copies of a history, newest last."""
    try:
        found = [path for path in _folder(history).iterdir() if _NAME.fullmatch(path.name)]
    except OSError:
        return []
    return sorted(found, key=lambda path: (len(path.name), path.name))


def copy_before(connection: sqlite3.Connection, history: Path, run: int) -> Path:
    """Copy a history before a run, remove all but the newest copies, and return the copy.

    The connection has no transaction.  OSError or sqlite3.Error if the copy cannot be written.
    """
    target = copy_to(connection, history, f"before-run-{run:05}.db")
    for old in copies(history)[:-KEPT_COPIES]:
        with contextlib.suppress(OSError):
            old.unlink()
    return target


def copy_to(connection: sqlite3.Connection, history: Path, name: str) -> Path:
    """Copy a history to a file among its copies; return the copy.  Errors are those of `copy_before`."""
    target = _folder(history) / name
    target.parent.mkdir(exist_ok=True)
    with _replacing(target) as temporary, closing(sqlite3.connect(temporary)) as copy:
        connection.backup(copy)
    return target


def how_to_restore(history: Path) -> str:
    """Return a clause for errors on how to put back the newest copy."""
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


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Yield a temporary path, which replaces `target` once it is written, whole and on the disk."""
    # A history may have the longest name of its file system, so its name is no part of this one.
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
