"""Byte storage: files under a URI, in a directory or on S3; names are relative to it, and writes appear whole.

All that differs between a disk and object storage is in `LocalFolder` and `reid_dist.stores.objects.ObjectFolder`,
which have the same methods.

A store may come from anybody.  Pipes, sockets and devices in it, and at the ends of its links, are refused when it is
opened and at every read, for the reader of a pipe waits for ever.  Links within the folder are read.  A link to a file
elsewhere, as of data under DVC, git-annex or Nix, is read where digests tell whether it is the file that was written,
and not if it is one of another store, which may be replaced; all other links that lead out of the folder are refused.
Nothing is ever written or removed through a link.  A folder that is itself reached through links is as good as any
other.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from io import BufferedReader, FileIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.regular_files import open_regular, refuse_special
from reid_dist.core.system_calls import read_ahead
from reid_dist.core.temporary import draft_of
from reid_dist.errors import StoreError
from reid_dist.stores.objects import ObjectFolder, is_object_uri

if TYPE_CHECKING:
    from zarr.abc.store import Store

# When one row in this many is wanted, the system reads the whole file ahead: a page fault for each takes longer.
_ROWS_PER_READ = 32
GROUP_FILE = "zarr.json"
"""What every group of Zarr has: its metadata, with its attributes."""

Item = TypeVar("Item")
Made = TypeVar("Made")


@dataclass(frozen=True)
class LocalFolder:
    """A directory."""

    path: Path

    def exists(self) -> bool:
        """Whether there is a file, or a directory with anything in it but temporary files of Zarr."""
        if not self.path.is_dir():
            return self.path.exists()
        return any(not entry.name.endswith(".partial") for entry in self.path.iterdir())

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if it is missing."""
        path = self.path / name
        return path.stat().st_size if path.exists() else None

    def open(self, name: str) -> BufferedReader:
        """Open a file for reading; FileNotFoundError if it is missing, StoreError if it is a pipe or device."""
        return BufferedReader(self._open(name))

    def _open(self, name: str) -> FileIO:
        return FileIO(self.path / name, opener=open_regular)

    def read(self, name: str) -> bytes | None:
        """Read a whole file; None if it is missing, StoreError if it cannot be read."""
        try:
            with self.open(name) as file:
                return bytes(file.read())
        except (FileNotFoundError, NotADirectoryError):
            return None
        except StoreError:
            raise
        except OSError as error:
            raise StoreError(f"cannot read {self.path / name}: {error.strerror or error}") from error

    def gather(self, name: str, rows: NDArray[np.int64], row_bytes: int, n_bytes: int) -> NDArray[np.uint8] | None:
        """Read rows of a file of `n_bytes` bytes, (n, row_bytes); None if it is missing or of another size."""
        try:
            with self._open(name) as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except StoreError:
            raise
        except (OSError, ValueError):
            return None
        if len(mapped) != n_bytes:
            return None
        n_rows = n_bytes // row_bytes
        if len(rows) * _ROWS_PER_READ > n_rows:
            read_ahead(mapped)
        held = np.frombuffer(mapped, np.uint8, n_rows * row_bytes).reshape(-1, row_bytes)
        return held[rows]

    def write(self, name: str, content: bytes | memoryview) -> int:
        """Write a file; StoreError if it cannot be written, and nothing is left then."""
        for is_last in (False, False, True):
            try:
                with written_whole(self.path / name) as file:
                    file.write(content)
                break
            except OSError as error:
                # Another run may have removed the folder, with its own parts, after it was made here.
                if isinstance(error, FileNotFoundError) and not is_last:
                    continue
                why = error.strerror or error
                raise StoreError(
                    f"cannot write {self.path / name} in the workspace: {why}; make room or choose another --workspace"
                ) from None
        return len(content)

    def replace(self, name: str, content: bytes, expected: bytes) -> bool:
        """Replace a file that still holds what is expected, durably; False if it does not.

        Between this look and the replacement, nothing but a lock keeps other writers away.
        """
        if self.read(name) != expected:
            return False
        with written_whole(self.path / name) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        _force(self.path)
        return True

    def force(self) -> None:
        """Force all files in the folder, and their names, to disk."""
        for above, _, files in os.walk(self.path):
            for name in files:
                _force(Path(above, name))
            _force(Path(above))
        _force(self.path.parent)

    def names(self) -> list[str]:
        """Names of the files directly in the folder, ascending."""
        return sorted(entry.name for entry in self._entries() if not entry.is_dir())

    def folders(self) -> list[str]:
        """Names of the folders directly in the folder, ascending."""
        return sorted(entry.name for entry in self._entries() if entry.is_dir())

    def _entries(self) -> list[Path]:
        return list(self.path.iterdir()) if self.path.is_dir() else []

    def walk(self, below: str = "") -> Iterator[str]:
        """Names of all files, but for temporary files of Zarr."""
        for above, _, files in os.walk(self.path / below):
            place = Path(above).relative_to(self.path)
            yield from (str(place / name) for name in files if not name.endswith(".partial"))

    def remove(self, *names: str) -> None:
        """Remove files that may be there."""
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def clear(self, last: str = "") -> None:
        """Remove the folder, one of its files after all others; of a symbolic link, the link alone."""
        if self.path.is_symlink():
            self.path.unlink()
            return
        for entry in self._entries():
            if entry.name != last:
                shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
        if self.path.exists():
            shutil.rmtree(self.path)

    def refuse_link(self, name: str, why: str = "and links are not followed") -> None:
        """Refuse a name that is a symbolic link: StoreError with the link and its target."""
        path = self.path / name
        if path.is_symlink():
            raise StoreError(
                f"{self.path}: {name!r} in it is a symbolic link to {str(path.readlink())!r}, {why}; put the file or "
                "directory in the place of the link (cp -rL makes a copy without links)"
            )

    def refuse_links(self, *, but_to_files: bool = False) -> None:
        """Refuse the folder if a name at any depth is a pipe, a socket, a device, or a link that leads out of it.

        With `but_to_files`, a link may lead to a plain file of no other store.
        """
        whole = self.path.resolve()
        waiting = [""]
        while waiting:
            below = waiting.pop()
            with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.path / below) as entries:
                for entry in entries:
                    name = f"{below}/{entry.name}" if below else entry.name
                    if entry.is_symlink():
                        self._refuse_target(name, whole, but_to_files)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append(name)
                    elif not entry.is_file(follow_symlinks=False):
                        refuse_special(self.path / name, entry.stat(follow_symlinks=False).st_mode)

    def _refuse_target(self, name: str, whole: Path, but_to_files: bool) -> None:
        """Refuse a link by what is at its end; `whole` is the folder without links in its path."""
        try:
            target = (self.path / name).resolve(strict=True)
            mode = target.stat().st_mode
        except (OSError, RuntimeError):
            self.refuse_link(name, "which leads nowhere")
            return
        refuse_special(self.path / name, mode)
        if target.is_relative_to(whole):
            return
        if not (but_to_files and target.is_file()):
            self.refuse_link(name, "which leads out of it")
        if any((above / GROUP_FILE).exists() for above in target.parents):
            self.refuse_link(name, "a file of another store")

    def map(self, work: Callable[[Item], Made], items: Iterable[Item], n_bytes: int) -> Iterator[Made]:
        """Return results of work on items, `n_bytes` each, in order: one at a time."""
        return map(work, items)

    def zarr_store(self, *, read_only: bool) -> Store:
        """Zarr store of the directory."""
        from zarr.storage import LocalStore

        return LocalStore(self.path, read_only=read_only)


Folder: TypeAlias = LocalFolder | ObjectFolder


def _force(path: Path) -> None:
    """Force a file or the names in a directory to disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError:
        # Some file systems do not force directories.
        if not path.is_dir():
            raise
    finally:
        os.close(opened)


def folder_at(uri: str) -> Folder:
    """Return the folder at a canonical URI; it may not be there yet."""
    return ObjectFolder(uri) if is_object_uri(uri) else LocalFolder(Path(uri))


class _Readable(Protocol):
    def readinto(self, target: memoryview, /) -> int | None: ...


def read_fully(file: _Readable, target: memoryview) -> bool:
    """Fill a buffer with the next bytes of a file; False if it ends before."""
    while len(target) and (count := file.readinto(target)):
        target = target[count:]
    return not len(target)


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """File that is renamed to `path` at the end, and removed after an error; processes may write one path at once."""
    temporary = draft_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def make_folder(folder: Path, advice: str) -> Path:
    """Make a directory of this machine unless it is there, and return it; StoreError with `advice` if it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot write to {folder}: {error.strerror}; {advice}") from None
    return folder
