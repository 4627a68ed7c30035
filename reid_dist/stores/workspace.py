"""The workspace: what a long job has computed so far, part by part, where every worker sees it.

A *stage* is one step of a job.  Its directory is named after a fingerprint of everything that its content depends on,
so that whoever needs the same finds it there, and nobody takes one thing for another.  It holds a description in JSON
and *parts*: files of named arrays that appear at once and whole.  A part that is there is done; a part that is not is
computed again.  Arrays are `.npy` in an uncompressed `.npz`, whose checksums are compared when it is read, and are
never unpickled.
"""

from __future__ import annotations

import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.fingerprint import fingerprint
from reid_dist.stores.archive import read_arrays, write_arrays
from reid_dist.stores.folders import Folder, folder_at
from reid_dist.stores.locations import at_location, canonical_uri

__all__ = ["INNER", "Stage", "Workspace"]

INNER = "sweep-"
"""What names of workspaces begin with that lie in another one."""

# What the content of stages is written by: one more whenever the same inputs may give other bytes.
_FORMAT = 1
_DESCRIPTION = "stage.json"
_SEAL = "seal"
_SUFFIX = ".npz"
_FINGERPRINT_LENGTH = 20


@dataclass(frozen=True)
class Stage:
    """A directory of parts; a value that travels to workers.

    Attributes
    ----------
    path
        Where it is, a canonical URI.
    """

    path: str

    def has(self, part: str) -> bool:
        """Whether a part is done."""
        return self._folder.has(_file_of(part))

    def done(self) -> frozenset[str]:
        """Return all parts that are done: one question, where `has` is one for each part."""
        return frozenset(name.removesuffix(_SUFFIX) for name in self._folder.names() if name.endswith(_SUFFIX))

    def write(self, part: str, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Write a part, at once and whole; return its size in bytes.

        Raises
        ------
        StoreError
            If it cannot be written, such as when the disk is full; nothing is left then.
        """
        buffer = io.BytesIO()
        write_arrays(buffer, arrays)
        return self._folder.write(_file_of(part), buffer.getbuffer())

    def read(self, part: str, *names: str) -> dict[str, NDArray[Any]]:
        """Read arrays of a part, or all of them.

        Raises
        ------
        DamagedStoreError
            If it is not there, or not what was written.
        StoreError
            If storage does not answer.
        """
        try:
            with self._folder.open(_file_of(part)) as file:
                return read_arrays(file, names)
        except StoreError:
            raise
        except FileNotFoundError:
            raise DamagedStoreError(
                f"part {part} is missing in workspace stage {self.path}: the workspace must be a place that this "
                "process and all workers see; choose it with --workspace, or delete the stage and run again"
            ) from None
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error) as error:
            raise DamagedStoreError(
                f"part {part} of workspace stage {self.path} is damaged ({error}); delete the stage and run again"
            ) from None

    @property
    def is_empty(self) -> bool:
        """Whether no part is done."""
        return not self.done()

    def remove(self, part: str) -> None:
        """Remove a part that is not needed any more."""
        self._folder.remove(_file_of(part))

    @property
    def description(self) -> dict[str, Any]:
        """What it holds, in words and numbers.

        Raises
        ------
        DamagedStoreError
            If it is not there, or not what was written.
        """
        try:
            with self._folder.open(_DESCRIPTION) as file:
                content = json.loads(file.read())
        except StoreError:
            raise
        except (OSError, ValueError) as error:
            raise self._undescribed(str(error)) from None
        # The seal is over all that the stage was begun with: parts are read by these numbers.
        if not isinstance(content, dict) or content.pop(_SEAL, None) != fingerprint(content):
            raise self._undescribed("it is not what was written")
        return content

    def _undescribed(self, reason: str) -> DamagedStoreError:
        return DamagedStoreError(
            f"workspace stage {self.path} has no description that can be read ({reason}); delete it and run again"
        )

    @property
    def _folder(self) -> Folder:
        # What a stage is in may be reached by links; the stage itself, and its parts, may not lead out of that.
        above, slash, name = self.path.rpartition("/")
        return folder_at(above or slash, name)


def _file_of(part: str) -> str:
    return f"{part}{_SUFFIX}"


@dataclass(frozen=True)
class Workspace:
    """A directory of stages.

    Attributes
    ----------
    path
        Where it is, a canonical URI; made when the first stage is.
    """

    path: str

    @classmethod
    def at(cls, location: str | os.PathLike[str]) -> Workspace:
        """Return the workspace at a path or an ``s3://`` URI.

        Raises
        ------
        InputError
            If it is no place for one.
        """
        return cls(canonical_uri(location))

    def stage(self, kind: str, identity: Any, description: Mapping[str, Any]) -> Stage:
        """Open a stage, or begin it.

        Parameters
        ----------
        kind
            What kind of stage, for people who look into the workspace.
        identity
            All that its content depends on; see `reid_dist.fingerprint`.
        description
            What it holds, for people, and what later runs must do likewise to go on with it.  The description of a
            stage that is there already is kept: read it.

        Raises
        ------
        StoreError
            If it cannot be written.
        DamagedStoreError
            If it has parts and no description, so that nobody knows how they were made.
        """
        name = f"{kind}-{fingerprint(_FORMAT, kind, identity)[:_FINGERPRINT_LENGTH]}"
        stage = Stage(at_location(self.path, name))
        folder = stage._folder
        # In this order: who writes at the same time writes the description first.
        has_parts = not stage.is_empty
        if not folder.has(_DESCRIPTION):
            if has_parts:
                raise stage._undescribed("there is none, and there are parts")
            content = {"kind": kind, "format": _FORMAT, **description}
            folder.write(_DESCRIPTION, json.dumps({**content, _SEAL: fingerprint(content)}, indent=1).encode())
        return stage

    def stages(self, kind: str) -> list[Stage]:
        """All stages of a kind that have been begun, by name."""
        names = [name for name in folder_at(self.path).folders() if name.startswith(f"{kind}-")]
        begun = [Stage(at_location(self.path, name)) for name in names]
        return [stage for stage in begun if stage._folder.has(_DESCRIPTION)]

    def holds_parts(self) -> bool:
        """Whether any stage, here or in a workspace within this one, has a part that is done."""
        for name in folder_at(self.path).folders():
            where = at_location(self.path, name)
            if not Stage(where).is_empty or (name.startswith(INNER) and Workspace(where).holds_parts()):
                return True
        return False

    def kinds(self) -> list[str]:
        """Kinds of the stages that have a part that is done, each as often as there are such stages, ascending."""
        names = folder_at(self.path).folders()
        done = [name for name in names if not Stage(at_location(self.path, name)).is_empty]
        return sorted(name.rpartition("-")[0] for name in done)

    def remove(self, stage: Stage) -> None:
        """Remove a stage with all its parts."""
        stage._folder.clear()

    def clear(self) -> None:
        """Remove everything in it."""
        folder_at(self.path).clear()

    def place(self, name: str) -> str:
        """Return the URI of something else in the workspace, such as a feature store."""
        return at_location(self.path, name)
