"""Members of a zip archive as parts of a file, checked against their CRC-32 once."""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.raw import RawRows

_LOCAL_HEADER = struct.Struct("<4s5H3L2H")
_CHECKED_BYTES = 1 << 20


class Part(NamedTuple):
    """Where the bytes of an uncompressed member lie in the archive."""

    offset: int
    n_bytes: int


def locate(path: Path, member: zipfile.ZipInfo) -> Part:
    """Return where a member without compression and encryption lies."""
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER.size)
    if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
        raise StoreError(f"{path} is damaged: member {member.filename} is not at its place in the archive")
    *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
    return Part(member.header_offset + _LOCAL_HEADER.size + name_length + extra_length, member.file_size)


def drain(path: Path, name: str) -> None:
    """Read a member to its end, which compares its CRC-32."""
    with zipfile.ZipFile(path) as archive:
        drain_member(archive, path, name)


def drain_member(archive: zipfile.ZipFile, path: Path, name: str) -> None:
    """Read a member of an open archive to its end, which compares its CRC-32."""
    try:
        with archive.open(name) as member:
            while member.read(_CHECKED_BYTES):
                pass
    except (zipfile.BadZipFile, EOFError) as error:
        raise StoreError(f"{path} is damaged: member {name}: {error}") from error


class MemberRows(RawRows):
    """An array in an uncompressed member of an archive; its CRC-32 is compared on first use.

    The array lies behind `skipped` bytes of the member.
    """

    def __init__(
        self,
        path: Path,
        member: zipfile.ZipInfo,
        skipped: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        strides: tuple[int, ...] | None = None,
    ) -> None:
        part = locate(path, member)
        super().__init__(path, part.offset + skipped, part.n_bytes - skipped, shape, dtype, strides)
        self._member = member.filename
        self._checked = False

    def _check(self) -> None:
        if not self._checked:
            drain(self._path, self._member)
            self._checked = True

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        self._check()
        return super()._read(start, stop)

    def whole(self) -> NDArray[Any]:
        """Return a memory map."""
        self._check()
        return super().whole()
