"""A clock of this process that nobody sets."""

from __future__ import annotations

import time
from typing import Final

_BEHIND: Final = time.time() - time.monotonic()


def steady_time() -> float:
    """Seconds since the epoch as of `time.time` when this was imported, whatever the system's clock is set to since.

    Two of them differ by the time that has passed, and those of two processes of a machine agree unless its clock was
    set in between.
    """
    return _BEHIND + time.monotonic()
