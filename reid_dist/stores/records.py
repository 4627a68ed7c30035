"""Small records in a workspace: a mapping of plain values in JSON as one part of a stage."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from reid_dist.errors import DamagedPartError
from reid_dist.stores.workspace import Stage

__all__ = ["read_record", "write_record"]

_CONTENT = "json"


def write_record(stage: Stage, part: str, record: Mapping[str, Any]) -> None:
    """Write a record; NaN and infinities are kept, and every float to the last bit."""
    stage.write(part, {_CONTENT: np.frombuffer(json.dumps(record).encode(), np.uint8)})


def read_record(stage: Stage, part: str, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Read a record; None if it is not there, and, after one line for the user, if it is damaged or another one."""
    if not stage.has(part):
        return None
    try:
        found: dict[str, Any] = json.loads(stage.read(part, _CONTENT)[_CONTENT].tobytes())
    except DamagedPartError as error:
        warn(f"{str(error).partition(';')[0]}: made again")
        return None
    return found
