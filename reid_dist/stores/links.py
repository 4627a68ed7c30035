"""Symbolic links in stores and workspaces: what one of them leads to outside is not read, and nothing is written there.

A store may come from anybody, and its names would then show, or replace, any file of whoever reads it.  A store that is
itself reached through a link is as good as any other, and so is a link that stays within.  Feature stores and graphs
are written into folders that their writer makes, hence without links; workspaces are taken up again, and looked at.

Of a chunk, what counts is where its file was found once it is open: one question to the system, where every folder
above it would be one each, and no link can be put in its place any more.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from zarr.storage import LocalStore

from reid_dist.errors import StoreError

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

__all__ = ["BoundedStore", "Bounds"]

File = TypeVar("File", bound=IO[Any] | FileIO)


@dataclass(frozen=True)
class Bounds:
    """A folder that nothing leads out of.

    Attributes
    ----------
    folder
        Where it is; it may be reached through links.
    """

    folder: Path

    @cached_property
    def _inside(self) -> str:
        """What the paths of all files in it begin with, links resolved."""
        return _as_folder(os.path.realpath(self.folder))

    def open(self, name: str) -> IO[bytes]:
        """Open a file of the folder, by its name relative to it, for reading.

        Raises
        ------
        StoreError
            If a link leads out of the folder.
        OSError
            If it cannot be opened.
        """
        return self._checked((self.folder / name).open("rb"), name)

    def open_raw(self, name: str) -> FileIO:
        """Open a file without a buffer; otherwise as `open`."""
        return self._checked((self.folder / name).open("rb", buffering=0), name)

    def _checked(self, file: File, name: str) -> File:
        try:
            if not _place_of(file.fileno()).startswith(self._inside):
                self.refuse_way_out(name)
        except BaseException:
            file.close()
            raise
        return file

    def refuse_way_out(self, name: str) -> None:
        """Refuse a file, which need not be there, if a link on the way to it leads out of the folder.

        Raises
        ------
        StoreError
            Naming the link.
        """
        # Not what is remembered: the folder itself may be a link that leads elsewhere by now.
        inside = _as_folder(os.path.realpath(self.folder))
        target = os.path.realpath(self.folder / name)
        if _is_in(target, inside):
            return
        steps = [*reversed(Path(name).parents[:-1]), Path(name)]
        link = next((step for step in steps if not _is_in(os.path.realpath(self.folder / step), inside)), Path(name))
        raise StoreError(
            f"{self.folder}: {str(link)!r} in it is a link to {os.path.realpath(self.folder / link)!r}, which is "
            "outside, and nothing outside is read or written; put what is meant in the link's place (cp -rL makes a "
            "copy without links)"
        )


def _as_folder(path: str) -> str:
    # With a slash behind it ``a.zarr`` is not the beginning of ``a.zarr.old``.
    return f"{path.rstrip('/')}/"


def _is_in(path: str, inside: str) -> bool:
    return _as_folder(path).startswith(inside)


def _place_of(descriptor: int) -> str:
    """Where an open file was found, links resolved; nothing where the system does not tell."""
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


class BoundedStore(LocalStore):
    """A Zarr store of a folder that reads nothing outside of it."""

    def get_sync(
        self, key: str, *, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a file; StoreError if a link leads out."""
        Bounds(self.root).refuse_way_out(key)
        return super().get_sync(key, prototype=prototype, byte_range=byte_range)

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """Read a file; StoreError if a link leads out."""
        Bounds(self.root).refuse_way_out(key)
        return await super().get(key, prototype, byte_range)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        """Read parts of files; StoreError if a link leads out."""
        wanted = list(key_ranges)
        for key, _ in wanted:
            Bounds(self.root).refuse_way_out(key)
        return await super().get_partial_values(prototype, wanted)
