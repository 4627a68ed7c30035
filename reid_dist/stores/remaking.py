"""Work over a workspace that is repeated where a part of the workspace is damaged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Final, TypeVar

from reid_dist.errors import DamagedPartError, DamagedStoreError, StoreError
from reid_dist.stores.folders import folder_at
from reid_dist.stores.workspace import Stage, Workspace

Made = TypeVar("Made")

DERIVED: Final = ("expanded-", "features-")
"""Prefixes of the names of stores in a workspace that a run derives from its inputs, and can derive again."""


def with_remade_parts(work: Callable[[], Made], workspace: Workspace | None, warn: Callable[[str], None]) -> Made:
    """Do work; where a part of the workspace is missing, damaged or another one, report it and repeat the work.

    Whole parts are used again: the second attempt makes the damaged part alone.

    Parameters
    ----------
    work
        Function that reads and writes the workspace.
    workspace
        The workspace, of which derived stores are removed as well; None for a temporary one.
    warn
        Called with one line for each part or store that is made again.

    Raises
    ------
    DamagedStoreError
        If the same part is damaged twice, or the damage is outside the workspace.
    """
    seen: set[tuple[str, str]] = set()
    while True:
        try:
            return work()
        except DamagedStoreError as error:
            found = error.place, error.part if isinstance(error, DamagedPartError) else ""
            if found in seen or not (isinstance(error, DamagedPartError) or _is_derived(error.place, workspace)):
                raise
            seen.add(found)
            problem = str(error).partition(";")[0]
            if isinstance(error, DamagedPartError):
                remove_part(error)
                # Where one part was copied over another, more may have been.
                more = _remove_foreign_parts(error.place)
                problem += f", as are {more} more parts of this stage" if more else ""
            else:
                with contextlib.suppress(OSError):
                    folder_at(error.place).clear()
            warn(f"{problem}: made again")


def remove_part(error: DamagedPartError) -> None:
    """Remove the damaged part of an error, if it has one; the next run of its stage makes it again."""
    if error.part:
        with contextlib.suppress(StoreError):
            Stage(error.place).remove(error.part)


def _is_derived(place: str, workspace: Workspace | None) -> bool:
    above, _, name = place.rpartition("/")
    return workspace is not None and above == workspace.path and name.startswith(DERIVED)


def _remove_foreign_parts(place: str) -> int:
    above, _, name = place.rpartition("/")
    stages = Workspace(above).stages(name.rpartition("-")[0])
    return sum(stage.remove_foreign_parts() for stage in stages if stage == Stage(place, stage.checksum))
