"""The workspace: what a long job has computed so far, part by part, where every worker sees it.

A *stage* is one step of a job.  Its directory is named after a fingerprint of everything that its content depends on,
so that whoever needs the same finds it there, and nobody takes one thing for another.  It holds a description in JSON
and *parts*: files of named arrays that are written under another name first and appear at once and whole.  A part that
is there is done; a part that is not is computed again.  Arrays are `.npy` in an uncompressed `.npz`, whose checksums
are compared when it is read, and are never unpickled.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import struct
import uuid
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.fingerprint import fingerprint
from reid_dist.stores.archive import read_arrays, write_arrays

__all__ = ["Stage", "Workspace"]

# What the content of stages is written by: one more whenever the same inputs may give other bytes.
_FORMAT = 1
_DESCRIPTION = "stage.json"
_SEAL = "seal"
_FINGERPRINT_LENGTH = 20


@dataclass(frozen=True)
class Stage:
    """A directory of parts; a value that travels to workers.

    Attributes
    ----------
    path
        Where it is.
    """

    path: str

    def has(self, part: str) -> bool:
        """Whether a part is done."""
        return self._file(part).exists()

    def write(self, part: str, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Write a part, at once and whole; return its size in bytes.

        Raises
        ------
        StoreError
            If it cannot be written, such as when the disk is full; nothing is left then.
        """
        buffer = io.BytesIO()
        write_arrays(buffer, arrays)
        return _write_at_once(self._file(part), buffer.getbuffer())

    def read(self, part: str, *names: str) -> dict[str, NDArray[Any]]:
        """Read arrays of a part, or all of them.

        Raises
        ------
        DamagedStoreError
            If it is not there, or not what was written.
        """
        file = self._file(part)
        try:
            return read_arrays(file, names)
        except FileNotFoundError:
            raise DamagedStoreError(
                f"part {part} is missing in workspace stage {self.path}; delete the stage and run again"
            ) from None
        except (OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, struct.error) as error:
            raise DamagedStoreError(
                f"part {part} of workspace stage {self.path} is damaged ({error}); delete the stage and run again"
            ) from None

    @property
    def is_empty(self) -> bool:
        """Whether no part is done."""
        return not any(Path(self.path).glob("*.npz"))

    def remove(self, part: str) -> None:
        """Remove a part that is not needed any more."""
        self._file(part).unlink(missing_ok=True)

    @property
    def description(self) -> dict[str, Any]:
        """What it holds, in words and numbers.

        Raises
        ------
        DamagedStoreError
            If it is not there, or not what was written.
        """
        try:
            content = json.loads((Path(self.path) / _DESCRIPTION).read_text(encoding="utf-8"))
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

    def _file(self, part: str) -> Path:
        return Path(self.path) / f"{part}.npz"


@dataclass(frozen=True)
class Workspace:
    """A directory of stages.

    Attributes
    ----------
    path
        Where it is; made when the first stage is.
    """

    path: str

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
        stage = Stage(str(Path(self.path) / name))
        file = Path(stage.path) / _DESCRIPTION
        # In this order: who writes at the same time writes the description first.
        has_parts = any(Path(stage.path).glob("*.npz"))
        if not file.exists():
            if has_parts:
                raise stage._undescribed("there is none, and there are parts")
            content = {"kind": kind, "format": _FORMAT, **description}
            _write_at_once(file, json.dumps({**content, _SEAL: fingerprint(content)}, indent=1).encode())
        return stage

    def stages(self, kind: str) -> list[Stage]:
        """All stages of a kind that have been begun, by name."""
        found = sorted(Path(self.path).glob(f"{kind}-*/{_DESCRIPTION}"))
        return [Stage(str(file.parent)) for file in found]

    def remove(self, stage: Stage) -> None:
        """Remove a stage with all its parts."""
        shutil.rmtree(stage.path, ignore_errors=True)


def _write_at_once(file: Path, content: bytes | memoryview) -> int:
    """Write a file under another name and rename it; two that write the same do no harm to each other."""
    draft = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as out:
            out.write(content)
        # As one step, over what may be there.
        draft.replace(file)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise StoreError(
            f"cannot write {file} in the workspace: {error.strerror or error}; make room or choose another --workspace"
        ) from None
    return len(content)
