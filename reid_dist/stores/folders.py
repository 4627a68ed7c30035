"""Folders of small files, on disk or on S3, whose files appear at once and whole."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from reid_dist.errors import StoreError
from reid_dist.stores.links import Bounds
from reid_dist.stores.locations import local_path
from reid_dist.stores.objects import ObjectFolder, is_object_uri

__all__ = ["Folder", "folder_at"]


class Folder(Protocol):
    """What a workspace needs of where it is."""

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading; FileNotFoundError if there is none."""

    def write(self, name: str, content: bytes | memoryview) -> int:
        """Write a file, at once and whole, over what may be there; return its size in bytes."""

    def names(self) -> list[str]:
        """Names of the files, ascending."""

    def folders(self) -> list[str]:
        """Names of the folders, ascending."""

    def remove(self, name: str) -> None:
        """Remove a file that may be there."""

    def clear(self) -> None:
        """Remove the folder with all that is in it."""


def folder_at(uri: str, name: str = "") -> Folder:
    """Return the folder of a name at a canonical URI, or the one at the URI itself; it may not be there yet."""
    if is_object_uri(uri):
        return ObjectFolder(f"{uri}/{name}" if name else uri)
    return LocalFolder(Bounds(local_path(uri)), name)


@dataclass(frozen=True)
class LocalFolder:
    """A directory.

    Attributes
    ----------
    bounds
        What no link may lead out of.
    within
        Where in it the directory is; nothing for the whole of it.
    """

    bounds: Bounds
    within: str = ""

    @property
    def path(self) -> Path:
        """Where it is."""
        return self.bounds.folder / self.within

    def has(self, name: str) -> bool:
        """Whether there is a file of that name."""
        return (self.path / name).exists()

    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises
        ------
        FileNotFoundError
            If there is none.
        StoreError
            If a link leads out of the bounds.
        """
        return self.bounds.open(str(Path(self.within) / name))

    def write(self, name: str, content: bytes | memoryview) -> int:
        """Write a file under another name and rename it; two that write the same do no harm to each other.

        Raises
        ------
        StoreError
            If it cannot be written, and nothing is left then, or if a link leads out of the bounds.
        """
        # Of the file itself there is no question: a link would be replaced.
        self.bounds.refuse_way_out(self.within)
        file = self.path / name
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
            why = error.strerror or error
            raise StoreError(
                f"cannot write {file} in the workspace: {why}; make room or choose another --workspace"
            ) from None
        return len(content)

    def names(self) -> list[str]:
        """Names of the files."""
        return sorted(entry.name for entry in self._entries() if not entry.is_dir())

    def folders(self) -> list[str]:
        """Names of the folders."""
        return sorted(entry.name for entry in self._entries() if entry.is_dir())

    def _entries(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file."""
        self.bounds.refuse_way_out(self.within)
        (self.path / name).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
