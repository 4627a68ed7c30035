"""Finished parts of an evaluation of many runs: written one by one, so that a stopped one goes on with the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any, Generic, TypeVar

from reid_dist._version import __version__
from reid_dist.stores import Workspace
from reid_dist.stores.workspace import read_record, write_record

Part = TypeVar("Part")


class FinishedParts(Generic[Part]):
    """Finished parts in a workspace.

    Parameters
    ----------
    workspace
        Where they are kept.
    kind
        Name of the stage.
    identity
        Everything that the values of all parts depend on.
    make
        Dataclass of a part, made of plain values.
    warn
        Called with one line for each damaged part, which counts as not finished.
    """

    def __init__(
        self, workspace: Workspace, kind: str, identity: Any, make: Callable[..., Part], warn: Callable[[str], None]
    ) -> None:
        self._workspace, self._make, self._warn = workspace, make, warn
        self._stage = workspace.stage(kind, [__version__, identity], {})

    def find(self, name: str) -> Part | None:
        """Return a part; None if it is not finished, or damaged."""
        found = read_record(self._stage, name, self._warn)
        return None if found is None else self._make(**found)

    def keep(self, name: str, part: Part) -> None:
        """Write a part."""
        if not is_dataclass(part) or isinstance(part, type):
            raise TypeError(f"a part is a dataclass, found {type(part).__name__}")
        write_record(self._stage, name, asdict(part))

    def remove(self) -> None:
        """Remove all parts."""
        self._workspace.remove(self._stage)
