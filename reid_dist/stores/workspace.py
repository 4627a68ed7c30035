"""The workspace: finished parts of a long job, in a place that every worker can read.

A *stage* is one step of a job.  Its directory is named after a fingerprint of everything that its content depends on:
equal work finds it, and other work does not.  It holds a description in JSON and *parts*: files of named arrays that
appear at once and whole.  A part that exists is done; a missing part is computed again.  Arrays are `.npy` in an
uncompressed `.npz`, whose checksums are compared when it is read, and are never unpickled.

Each part carries its identity: the name of its stage, its own name, and the checksum of the description, which
determines how rows are cut into parts.  Every read compares it, so that a part under another name, of another stage or
of another cut is never used.  `retry_damaged_parts` removes damaged and foreign parts and repeats the work.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.temporary import remove_abandoned_drafts
from reid_dist.errors import DamagedPartError, DamagedStoreError, StoreError
from reid_dist.stores.archive import AnotherIdentityError, read_arrays, write_arrays
from reid_dist.stores.folders import Folder, folder_at
from reid_dist.stores.locations import at_location, canonical_uri, read_twice
from reid_dist.stores.objects import is_object_uri

NESTED = "sweep-"
"""Prefix of the names of workspaces in another workspace."""

FORMAT = 5
"""Version of the content of stages: one more whenever the same inputs may give other bytes."""

_DESCRIPTION = "stage.json"
_CHECKSUM = "checksum"
_SUFFIX = ".npz"
_RECORD = "json"
_FINGERPRINT_LENGTH = 20
_AGAIN: Final = "rerun to recompute it"

# Errors of reading an archive with damaged bytes.
_DAMAGE: Final = (
    *(ValueError, EOFError, LookupError, TypeError, RuntimeError, OverflowError),
    *(zipfile.BadZipFile, zlib.error, struct.error),
)

# Prefixes of the names of stores in a workspace that a run derives from its inputs, and can derive again.
_DERIVED: Final = ("expanded-", "features-")

Made = TypeVar("Made")


@dataclass(frozen=True)
class Stage:
    """A directory of parts, by its canonical URI; `checksum` is of its name and description, and its parts carry it."""

    path: str
    checksum: str = ""

    def has(self, part: str) -> bool:
        """Whether a part is done."""
        return self._folder.size(_file_of(part)) is not None

    def done(self) -> frozenset[str]:
        """Return all parts that are done: one request, where `has` is one for each part."""
        return frozenset(name.removesuffix(_SUFFIX) for name in self._folder.names() if name.endswith(_SUFFIX))

    def write(self, part: str, arrays: Mapping[str, NDArray[Any]]) -> int:
        """Write a part with its identity, at once and whole; return its size in bytes.

        StoreError if it cannot be written, such as when the disk is full; nothing is left then.
        """
        buffer = io.BytesIO()
        write_arrays(buffer, arrays, self._identity(part))
        # No copy, and no view of it: in the frames of an error, a view outlives its buffer, and the collection of both
        # ends Python 3.12.1 in a segmentation fault.
        return self._folder.write(_file_of(part), buffer.getvalue())

    def read(self, part: str, *names: str) -> dict[str, NDArray[Any]]:
        """Read arrays of a part, or all of them.

        DamagedPartError if it is missing, damaged or another part; StoreError if it cannot be read.
        """
        return read_twice(self.path, lambda: self._verified(part, names or None))

    def remove_foreign_parts(self) -> int:
        """Remove all parts whose identity is another or cannot be read, and return how many; no array is read."""
        foreign = []
        for part in sorted(self.done()):
            try:
                self._verified(part, ())
            except DamagedPartError:
                foreign.append(part)
        self.remove(*foreign)
        return len(foreign)

    def _identity(self, part: str) -> str:
        return f"{self._name}/{part} {self.checksum}"

    def _verified(self, part: str, names: Sequence[str] | None) -> dict[str, NDArray[Any]]:
        """Compare the identity of a part, and read some of its arrays, or all of them."""
        file_name = f"{self.path}/{_file_of(part)}"
        try:
            with self._folder.open(_file_of(part)) as file:
                return read_arrays(file, names, self._identity(part))
        except StoreError:
            raise
        except FileNotFoundError:
            raise self._unusable(
                part,
                f"{file_name} is missing; the workspace must be a place that this process and all workers share; "
                "choose it with --workspace, or rerun",
            ) from None
        except AnotherIdentityError as error:
            found = _difference(str(error), self._identity(part))
            raise self._unusable(part, f"{file_name} is another part ({found}); {_AGAIN}") from None
        except _DAMAGE as error:
            raise self._unusable(part, f"{file_name} is damaged ({' '.join(str(error).split())}); {_AGAIN}") from None
        except OSError as error:
            # What a damaged archive makes of a place before its beginning.
            if error.errno == errno.EINVAL:
                raise self._unusable(part, f"{file_name} is damaged ({error.strerror}); {_AGAIN}") from None
            raise StoreError(f"cannot read {file_name}: {error.strerror or error}") from None

    def _unusable(self, part: str, problem: str) -> DamagedPartError:
        error = DamagedPartError(problem)
        error.place, error.part = self.path, part
        return error

    @property
    def is_empty(self) -> bool:
        """Whether no part is done."""
        return not self.done()

    def remove(self, *parts: str) -> None:
        """Remove parts that are not needed any more; on object storage, a thousand by one request."""
        self._folder.remove(*map(_file_of, parts))

    @property
    def description(self) -> dict[str, Any]:
        """What it holds, in words and numbers; DamagedPartError if it is missing or damaged."""
        found = self.described()
        if found is None or found[1] != self.checksum:
            raise self._unusable("", f"{self.path}/{_DESCRIPTION} is missing or not what was written; {_AGAIN}")
        return found[0]

    def described(self) -> tuple[dict[str, Any], str] | None:
        """Return the description that is there, and its checksum; None if it is missing or damaged."""

        def read() -> tuple[dict[str, Any], str] | None:
            try:
                with self._folder.open(_DESCRIPTION) as file:
                    content = json.loads(file.read())
            except StoreError:
                raise
            except (OSError, ValueError, RecursionError):
                return None
            # The checksum is over the name too: the description of another stage does not match.
            if not isinstance(content, dict) or content.pop(_CHECKSUM, None) != _checksum_of(self._name, content):
                return None
            return content, _checksum_of(self._name, content)

        return read_twice(self.path, read)

    @property
    def _name(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def _folder(self) -> Folder:
        # The workspace may be reached by links; the stage itself, and its parts, are none.
        above, slash, name = self.path.rpartition("/")
        folder_at(above or slash).refuse_link(name)
        return folder_at(self.path)


def _file_of(part: str) -> str:
    return f"{part}{_SUFFIX}"


def _difference(found: str, expected: str) -> str:
    """Difference between two identities, in words."""
    if not found:
        return "it carries no identity"
    (place, _, checksum), (wanted, _, _) = found.partition(" "), expected.partition(" ")
    return f"its rows are cut in another way, checksum {checksum}" if place == wanted else f"it was written as {place}"


def _checksum_of(name: str, content: Mapping[str, Any]) -> str:
    return fingerprint(name, content)[:_FINGERPRINT_LENGTH]


def stage_name(kind: str, identity: Any) -> str:
    """Name of a stage in its workspace; see `Workspace.stage`."""
    return f"{kind}-{fingerprint(FORMAT, kind, identity)[:_FINGERPRINT_LENGTH]}"


@dataclass(frozen=True)
class Workspace:
    """A directory of stages, by its canonical URI; made when the first stage is."""

    path: str

    @classmethod
    def at(cls, location: str | os.PathLike[str]) -> Workspace:
        """Return the workspace at a path or an ``s3://`` URI."""
        return cls(canonical_uri(location))

    def stage(self, kind: str, identity: Any, description: Mapping[str, Any]) -> Stage:
        """Open a stage, or begin it; see `begin`."""
        return self.begin(kind, identity, description)[0]

    def begin(self, kind: str, identity: Any, description: Mapping[str, Any]) -> tuple[Stage, dict[str, Any]]:
        """Open a stage, or begin it; return its description too.

        `kind` is a readable part of its name; `identity` is all that its content depends on, as `fingerprint` takes it;
        `description` is what it holds, and what later runs must do likewise to continue it.  The description of a stage
        that is there already is kept.
        """
        name = stage_name(kind, identity)
        path = at_location(self.path, name)
        found = Stage(path).described()
        if found is None:
            # After damage, parts that were cut in the same way are still good, for they carry the same checksum.
            content = json.loads(json.dumps({"kind": kind, "format": FORMAT, **description}))
            checksum = _checksum_of(name, content)
            document = json.dumps({**content, _CHECKSUM: checksum}, indent=1)
            Stage(path)._folder.write(_DESCRIPTION, document.encode())
            # Of several processes that begin it at the same time, the last one to write decides for all.
            found = Stage(path).described() or (content, checksum)
        return Stage(path, found[1]), found[0]

    def begun(self, kind: str) -> Iterator[tuple[Stage, dict[str, Any]]]:
        """All stages of a kind and this format that have been begun, with their descriptions, by name."""
        for name in folder_at(self.path).folders():
            path = at_location(self.path, name)
            found = Stage(path).described() if name.startswith(f"{kind}-") else None
            if found is not None and found[0].get("format") == FORMAT:
                yield Stage(path, found[1]), found[0]

    def stages(self, kind: str) -> list[Stage]:
        """All stages of a kind that have been begun and have a description that can be read, by name."""
        return [stage for stage, _ in self.begun(kind)]

    def holds_parts(self) -> bool:
        """Whether any stage, here or in a workspace within this one, has a part that is done."""
        for name in folder_at(self.path).folders():
            where = at_location(self.path, name)
            if not Stage(where).is_empty or (name.startswith(NESTED) and Workspace(where).holds_parts()):
                return True
        return False

    def kinds(self) -> list[str]:
        """Kinds of the stages that have a part that is done, each as often as there are such stages, ascending."""
        names = folder_at(self.path).folders()
        done = [name for name in names if not Stage(at_location(self.path, name)).is_empty]
        return sorted(name.rpartition("-")[0] for name in done)

    def remove(self, stage: Stage) -> None:
        """Remove a stage with all its parts."""
        with contextlib.suppress(OSError):
            stage._folder.clear()

    def clear(self) -> None:
        """Remove everything in it."""
        with contextlib.suppress(OSError):
            folder_at(self.path).clear()

    def place(self, name: str) -> str:
        """Return the URI of something else in the workspace, such as a feature store."""
        return at_location(self.path, name)


def write_record(stage: Stage, part: str, record: Mapping[str, Any]) -> None:
    """Write a mapping of plain values as one part; NaN, infinities and every bit of a float are kept."""
    stage.write(part, {_RECORD: np.frombuffer(json.dumps(record).encode(), np.uint8)})


def read_record(stage: Stage, part: str, warn: Callable[[str], None]) -> dict[str, Any] | None:
    """Read a record; None if it is missing, and, after one line to `warn`, if it is damaged or another part."""
    if not stage.has(part):
        return None
    try:
        found: dict[str, Any] = json.loads(stage.read(part, _RECORD)[_RECORD].tobytes())
    except DamagedPartError as error:
        warn(f"{str(error).partition(';')[0]}: made again")
        return None
    return found


def retry_damaged_parts(work: Callable[[], Made], workspace: Workspace | None, warn: Callable[[str], None]) -> Made:
    """Do work; where a part of the workspace is missing, damaged or another one, report it and repeat the work.

    Whole parts are used again: the second attempt makes the damaged part alone.  Drafts of processes that have ended,
    such as workers that were killed meanwhile, are removed at the end.
    """
    seen: set[tuple[str, str]] = set()
    while True:
        try:
            made = work()
        except DamagedStoreError as error:
            found = error.place, error.part if isinstance(error, DamagedPartError) else ""
            if found in seen or not (isinstance(error, DamagedPartError) or _is_derived(error.place, workspace)):
                raise
            seen.add(found)
            problem = str(error).partition(";")[0]
            if isinstance(error, DamagedPartError):
                remove_part(error)
                # Where one part was copied over another, more may have been.
                described = Stage(error.place).described()
                more = 0 if described is None else Stage(error.place, described[1]).remove_foreign_parts()
                problem += f", as are {more} more parts of this stage" if more else ""
            else:
                with contextlib.suppress(OSError):
                    folder_at(error.place).clear()
            warn(f"{problem}: made again")
        else:
            if workspace is not None and not is_object_uri(workspace.path):
                remove_abandoned_drafts(workspace.path)
            return made


def remove_part(error: DamagedPartError) -> None:
    """Remove the damaged part of an error, if it has one; the next run of its stage makes it again."""
    if error.part:
        with contextlib.suppress(StoreError):
            Stage(error.place).remove(error.part)


def _is_derived(place: str, workspace: Workspace | None) -> bool:
    above, _, name = place.rpartition("/")
    return workspace is not None and above == workspace.path and name.startswith(_DERIVED)
