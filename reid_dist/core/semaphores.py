"""Named semaphores, which multiprocessing makes for processes that it does not fork from their owner.

They outlast all processes.  The owner removes them, and after SIGKILL the tracker of its resources does; where that was
killed as well, as with a whole process group, the next command removes those that are noted in the owner's temporary
directory, with that directory.

Standard library alone, as of `reid_dist.core.temporary`.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path

_FILE = "semaphores"

# Where Linux has them, and the names that multiprocessing gives them.
_PLACE, _PREFIX = Path(os.sep, "dev", "shm"), "sem."
_NAME = re.compile(r"mp-[A-Za-z0-9_]{8}")


@contextlib.contextmanager
def noted_semaphores(folder: str) -> Iterator[None]:
    """Note the semaphores that this process makes in its temporary directory `folder`."""
    register = resource_tracker.register

    def noting(name: str, rtype: str) -> None:
        if rtype == "semaphore":
            with contextlib.suppress(OSError):
                _note(folder, name)
        register(name, rtype)

    # Semaphores look it up there when they are made.
    vars(resource_tracker)["register"] = noting
    try:
        yield
    finally:
        vars(resource_tracker)["register"] = register


def _note(folder: str, name: str) -> None:
    """Append name and number of the file of a semaphore."""
    number = (_PLACE / f"{_PREFIX}{name.lstrip('/')}").stat().st_ino
    with Path(folder, _FILE).open("a", encoding="ascii") as file:
        file.write(f"{name.lstrip('/')} {number}\n")


def remove_semaphores(folder: str) -> None:
    """Remove the semaphores that are noted within the temporary directory of a process that has ended.

    Only files of this user are removed, and none that was made since under the same name.
    """
    for inner, _, files in os.walk(folder):
        if _FILE in files:
            with contextlib.suppress(OSError):
                for line in Path(inner, _FILE).read_text(encoding="ascii", errors="replace").splitlines():
                    _remove(*line.partition(" ")[::2])


def _remove(name: str, number: str) -> None:
    """Remove a semaphore if its file has this number."""
    if _NAME.fullmatch(name) is None:
        return
    path = _PLACE / f"{_PREFIX}{name}"
    with contextlib.suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and str(found.st_ino) == number:
            path.unlink()
