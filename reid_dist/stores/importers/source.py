"""What a reader of a file format gives: named arrays that are read by rows, and the registry of formats.

A new format is one file beside this one with one registered `Format`, imported in this package's ``__init__``.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError, ReidDistError, StoreError, StoreNotFoundError
from reid_dist.registry import Registry
from reid_dist.stores.locations import canonical_uri, local_path
from reid_dist.stores.objects import is_object_uri

if TYPE_CHECKING:
    from typing import Self

__all__ = ["FORMATS", "Format", "HeldRows", "OpenRows", "RowArray", "Source", "open_source", "require"]


class RowArray(ABC):
    """An array of a source that is read by rows when it is needed.

    Parameters
    ----------
    shape
        Its shape; the first axis is rows.
    dtype
        Its dtype; text is ``<U``.
    """

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = tuple(int(length) for length in shape)
        self.dtype = dtype

    def read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows; going through an array in ascending order is cheap in every format.

        Parameters
        ----------
        start, stop
            Range of rows, ``0 <= start <= stop <= shape[0]``.

        Raises
        ------
        StoreError
            If the file is damaged.
        """
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

    @abstractmethod
    def _read(self, start: int, stop: int) -> NDArray[Any]:
        """Return rows of a range that has been checked."""


class OpenRows(RowArray):
    """An array that keeps a file open between reads, as one that can only be read in order does."""

    @abstractmethod
    def close(self) -> None:
        """Close what a read has left open; a later read opens it again."""


class HeldRows(RowArray):
    """An array that is in memory already."""

    def __init__(self, array: NDArray[Any]) -> None:
        super().__init__(array.shape, array.dtype)
        self._array = array

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        return self._array[start:stop]


@dataclass(frozen=True)
class Source:
    """An opened file; a context manager that closes what reading has left open.

    Attributes
    ----------
    uri
        Where it is.
    arrays
        The arrays that can be read, by name.
    refused
        Names of what is not read, each with the reason.
    vocabularies
        ``pid_names`` and ``camid_names`` of labels that have been numbered already.
    notes
        What is known of earlier conversions.
    """

    uri: str
    arrays: Mapping[str, RowArray]
    refused: Mapping[str, str] = field(default_factory=dict)
    vocabularies: Mapping[str, NDArray[np.str_]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for array in self.arrays.values():
            if isinstance(array, OpenRows):
                array.close()

    def contents(self) -> str:
        """Return one line that lists what the file holds."""
        held = [f"{name} {array.shape} {array.dtype.name}" for name, array in self.arrays.items()]
        held += [f"{name} ({reason})" for name, reason in self.refused.items()]
        return f"{self.uri} holds: {', '.join(held) or 'nothing'}"


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
        Opens an ``s3://`` URI; None where a file must be on this machine.
    """

    name: str
    summary: str
    source: str
    suffixes: tuple[str, ...]
    open: Callable[[Path], Source]
    open_remote: Callable[[str], Source] | None = None


FORMATS: Registry[Format] = Registry("format")


def require(module: str, extra: str) -> ModuleType:
    """Import the library that a format needs.

    Parameters
    ----------
    module
        Name of the module.
    extra
        The extra of this package that installs it.

    Raises
    ------
    InputError
        If it is not installed; the message holds the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        raise InputError(
            f"reading this file needs {library}, which is not installed: pip install 'reid-dist[{extra}]'"
        ) from error


def open_source(location: str, format_name: str | None = None) -> Source:
    """Open a file for reading by rows.

    Parameters
    ----------
    location
        Path or ``file://`` URI.
    format_name
        Name of the format; told from the suffix when None, and a folder is Zarr.

    Raises
    ------
    StoreNotFoundError
        If nothing is there.
    InputError
        If the format is not known, or a library for it is missing.
    StoreError
        If the file is not of its format.
    """
    uri = canonical_uri(location)
    if is_object_uri(uri):
        return _open_remote(uri, format_name)
    path = local_path(uri)
    if not path.exists():
        raise StoreNotFoundError(f"no file at {uri}: nothing is there")
    if format_name is None:
        suffix = ".zarr" if path.is_dir() else path.suffix.lower()
        fitting = [entry for entry in FORMATS if suffix in entry.suffixes]
        if not fitting:
            known = ", ".join(suffix for entry in FORMATS for suffix in entry.suffixes)
            raise InputError(f"cannot tell the format of {uri} from its suffix {suffix!r}; known: {known}")
        chosen = fitting[0]
    else:
        chosen = FORMATS.get(format_name)
    try:
        return chosen.open(path)
    except (ReidDistError, MemoryError):
        raise
    except PermissionError as error:
        raise StoreError(f"cannot read {uri}: {error}") from error
    except Exception as error:  # Every library has errors of its own for bytes that it cannot read.
        raise StoreError(f"{uri} cannot be read as {chosen.name}: {type(error).__name__}: {error}") from error


def _open_remote(uri: str, format_name: str | None) -> Source:
    """Open what is on S3: only stores are read from there."""
    remote = {entry.name: entry for entry in FORMATS if entry.open_remote is not None}
    chosen = next(iter(remote.values())) if format_name is None else FORMATS.get(format_name)
    if chosen.open_remote is None:
        raise InputError(f"{chosen.name} is read from files of this machine, not from {uri}; copy the file here")
    return chosen.open_remote(uri)
