"""What a reader of a file format gives: named arrays that are read by rows, and the registry of formats.

A new format is one file beside this one with one registered `Format`, listed with `FORMATS`.
"""

from __future__ import annotations

import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import first_few
from reid_dist.core.optional_packages import import_extra
from reid_dist.core.registry import Registry
from reid_dist.core.regular_files import refuse_special
from reid_dist.errors import InputError, ReidDistError, StoreError, StoreNotFoundError
from reid_dist.stores.folders import folder_at
from reid_dist.stores.labels import as_column
from reid_dist.stores.locations import canonical_uri, is_glob, local_path
from reid_dist.stores.objects import is_object_uri

if TYPE_CHECKING:
    from typing import Self

_CONVERSION = (
    "If you trust it, convert it where it was written:",
    "  import pickle, numpy as np",
    '  with open("features.pkl", "rb") as file: held = pickle.load(file)',
    '  np.savez("features.npz", **{name: np.asarray(held[name]) for name in held})',
)
_PICKLE_SUFFIXES = (".pkl", ".pickle")
_LATEST_PICKLE = 5

_MOST_LISTED = 10
_LONGEST_NAME = 80
_SPARSE_TEXT_BYTES = 1 << 28


def pickle_refusal(path: Path) -> InputError:
    """Return the error on a file that is a pickle."""
    return InputError(
        f"{path} is a pickle. Loading one can run arbitrary code, so reid-dist refuses to.", details=_CONVERSION
    )


def listed(names: Iterable[str]) -> str:
    """Return names in one line: the first ten, and how many more there are."""
    held = [name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in names]
    return first_few(held, _MOST_LISTED)


def text_rows(texts: Sequence[str], what: str) -> NDArray[np.str_]:
    """Make an array of texts; refuse a text so long that the array, of its length in every row, would be far larger."""
    row = max(range(len(texts)), key=lambda row: len(texts[row]), default=0)
    longest = len(texts[row]) if texts else 0
    if 4 * longest * len(texts) > max(_SPARSE_TEXT_BYTES, 64 * sum(map(len, texts))):
        raise InputError(f"{what} is no list of labels: row {row} holds a text of {longest} characters")
    return np.array(texts, dtype=np.str_)


def begins_with(magic: bytes) -> Callable[[Path], bool]:
    """Return a test whether a file begins with some bytes."""

    def test(path: Path) -> bool:
        with path.open("rb") as file:
            return file.read(len(magic)) == magic

    return test


def zip_names(path: Path) -> list[str]:
    """Return the names of the members of a zip archive; none for any other file."""
    if not zipfile.is_zipfile(path):
        return []
    with zipfile.ZipFile(path) as archive:
        return archive.namelist()


def refuse_repeated(names: Iterable[str], what: str) -> None:
    """Refuse a name that two of a file's entries have: readers differ in the one that they take; `what` precedes it."""
    known = set[str]()
    for name in names:
        if name in known:
            raise StoreError(f"{what} {name[:_LONGEST_NAME]!r} twice; keep one of the two")
        known.add(name)


def members_of(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members of a zip archive by name, each of which it has once."""
    members = archive.infolist()
    refuse_repeated((member.filename for member in members), f"{archive.filename} holds")
    return {member.filename: member for member in members}


def starts_as_pickle(first: bytes) -> bool:
    """Whether the first bytes of a file are those of a pickle of protocol 2 or later."""
    return len(first) > 1 and first[0] == 0x80 and 2 <= first[1] <= _LATEST_PICKLE


class RowArray(ABC):
    """An array of a source that is read by rows when it is needed; its first axis is rows, and text is ``<U``."""

    # Significant bits of the floats in the file, where they are fewer than those of the dtype.
    significant_bits: int | None = None

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype

    @property
    def kind(self) -> str:
        """What its elements are, in messages."""
        return "text" if self.dtype.kind in "US" else self.dtype.name

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows, ``0 <= start <= stop <= shape[0]``; ascending order is cheap in every format."""
        if not 0 <= start <= stop <= self.shape[0]:
            raise InputError(f"rows {start}:{stop} are not within an array of shape {self.shape}")
        try:
            rows = self._read(start, stop)
        except (ReidDistError, MemoryError):
            raise
        except Exception as error:  # Every library has errors of its own for damaged bytes.
            raise StoreError(f"rows {start}:{stop} cannot be read: {type(error).__name__}: {error}") from error
        if len(rows) != stop - start:
            raise StoreError(f"rows {start}:{stop} cannot be read: the file ends after {len(rows)} of them")
        return rows

    def whole(self) -> NDArray[Any]:
        """Return the whole array, memory-mapped where the format allows it."""
        return self.read(0, self.shape[0])

    def column(self, name: str) -> NDArray[Any]:
        """Return the whole array as labels, (n,) int64 or ``<U``; see `reid_dist.stores.labels.as_column`."""
        return as_column(self.whole(), name, self.significant_bits)

    @abstractmethod
    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows of a range that has been checked."""

    def close(self) -> None:  # noqa: B027
        """Close what a read has left open, if anything; a later read opens it again."""


class Frame(Protocol):
    """A data frame of pandas or polars, a table of Arrow, or whatever else gives its columns as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return a capsule of the stream."""


class ComputedRows(RowArray):
    """Rows that a function makes of their range; `of` is the array that it reads, if there is one."""

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        read: Callable[[int, int], NDArray[Any]],
        *,
        of: RowArray | None = None,
        significant_bits: int | None = None,
    ) -> None:
        super().__init__(shape, dtype)
        self._compute, self._of, self.significant_bits = read, of, significant_bits

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return self._compute(start, stop)

    def close(self) -> None:
        """Close the array that is read."""
        if self._of is not None:
            self._of.close()


class HeldRows(RowArray):
    """Rows of an array object that can be sliced: in memory, or of Zarr."""

    def __init__(self, array: Any) -> None:
        super().__init__(array.shape, np.dtype(array.dtype))
        self._array = array

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return np.asarray(self._array[start:stop])


@dataclass(frozen=True)
class Source:
    """An opened file; a context manager that closes what reading has left open."""

    uri: str
    arrays: Mapping[str, RowArray]
    # Names of what is not read, each with the reason.
    refused: Mapping[str, str] = field(default_factory=dict)
    # ``pid_names`` and ``camid_names`` of labels that have been numbered already.
    vocabularies: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    # Notes on earlier conversions.
    notes: tuple[str, ...] = ()
    # Single whole numbers by name.
    values: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, uri: str, found: Mapping[str, RowArray | str], values: Mapping[str, int] | None = None) -> Source:
        """Make a source of arrays, and of reasons in the place of those that are not read."""
        arrays = {name: array for name, array in found.items() if isinstance(array, RowArray)}
        refused = {name: reason for name, reason in found.items() if isinstance(reason, str)}
        return cls(uri, arrays, refused, values=values or {})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self.arrays.values():
            array.close()

    def contents(self) -> str:
        """Return one line that lists what the file holds, the first ten entries by name."""
        held = [f"{name} {array.shape} {array.kind}" for name, array in self.arrays.items()]
        held += [f"{name} ({reason})" for name, reason in self.refused.items()]
        return f"{self.uri} holds: {listed(held) or 'nothing'}"


@dataclass(frozen=True)
class Format:
    """A file format that can be ingested.

    Attributes
    ----------
    name, summary, source
        As in every registry.
    suffixes
        Lower-case file suffixes with their dot.
    open
        Opens a path; raises anything if the file is not of the format.
    open_remote
        Opens an ``s3://`` URI, or returns None if it holds something else; None where a file must be on this machine.
    sniff
        Recognizes a file of the format by its bytes; None where bytes do not suffice.
    """

    name: str
    summary: str
    source: str
    suffixes: tuple[str, ...]
    open: Callable[[Path], Source]
    open_remote: Callable[[str], Source | None] | None = None
    sniff: Callable[[Path], bool] | None = None


_FILES = (
    *("hdf5_files", "matlab", "numpy_files", "parquet"),
    *("safetensors_files", "shards", "text_files", "torch_files", "zarr_groups"),
)
FORMATS: Registry[Format] = Registry("format", [f"reid_dist.stores.importers.{each}" for each in _FILES])


def require(module: str, extra: str) -> ModuleType:
    """Import the library that a format needs, which an extra of this package installs."""
    return import_extra(module, extra, "reading this file")


def open_source(location: str, format_name: str | None = None) -> Source:
    """Open a file for reading by rows; its format is found by its bytes or its suffix.

    A folder is of Zarr, or holds shards, as a glob does; see `reid_dist.stores.importers.shards`.
    """
    uri = canonical_uri(location)
    if is_object_uri(uri):
        return _open_remote(uri, format_name)
    path = local_path(uri)
    if path.exists():
        refuse_special(path, path.stat().st_mode)
    elif not is_glob(uri):
        raise StoreNotFoundError(f"no such file: {uri}")
    chosen = _format_of(path) if format_name is None else FORMATS.get(format_name)
    try:
        return chosen.open(path)
    except (ReidDistError, MemoryError):
        raise
    except PermissionError as error:
        raise StoreError(f"cannot read {uri}: {error}") from error
    except Exception as error:  # Every library has errors of its own for bytes that it cannot read.
        raise StoreError(
            f"{uri} cannot be read as {chosen.name}; check that it was written and copied completely",
            details=(f"{type(error).__name__}: {' '.join(str(error).split())}",),
        ) from error


def _format_of(path: Path) -> Format:
    """Find the format of a file; its bytes count before its suffix."""
    if not path.is_file():
        shards = FORMATS.get("shards")
        return shards if shards.sniff is not None and shards.sniff(path) else FORMATS.get("zarr")
    suffix = path.suffix.lower()
    by_suffix = next((entry for entry in FORMATS if suffix in entry.suffixes), None)
    try:
        by_bytes = next((entry for entry in FORMATS if entry.sniff is not None and entry.sniff(path)), None)
        with path.open("rb") as file:
            is_pickle = starts_as_pickle(file.read(2))
    except (ReidDistError, MemoryError):
        raise
    except PermissionError as error:
        raise StoreError(f"cannot read {path}: {error}") from error
    except Exception:  # A damaged file is reported by the reader that its suffix names.
        by_bytes, is_pickle = None, False
    found = by_bytes or by_suffix
    if by_bytes is None and (suffix in _PICKLE_SUFFIXES or (found is None and is_pickle)):
        raise pickle_refusal(path)
    if found is None:
        known = ", ".join(sorted(suffix for entry in FORMATS for suffix in entry.suffixes))
        raise InputError(
            f"cannot determine the format of {path} from its suffix {suffix!r}", details=(f"known: {known}",)
        )
    return found


def _open_remote(uri: str, format_name: str | None) -> Source:
    """Open what is on S3: only stores are read from there, and no single files, folders or globs of files."""
    for entry in FORMATS if format_name is None else [FORMATS.get(format_name)]:
        if entry.open_remote is not None and (found := entry.open_remote(uri)) is not None:
            return found
    if not is_glob(uri) and not folder_at(uri).exists():
        raise StoreNotFoundError(f"no such store: {uri}")
    raise InputError(
        f"{uri} cannot be read: from S3, reid-dist reads feature stores and no other files, directories or globs",
        details=(
            "copy the files to a disk and give their path, or make a store on S3 of them:",
            "  reid-dist ingest PATH --output s3://BUCKET/NAME.zarr",
        ),
    )
