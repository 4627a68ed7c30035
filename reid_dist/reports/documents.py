"""A saved document: JSON that carries the digest of its own content, written at once and whole, compared when read.

The digest is the SHA-256 of the document as compact JSON, in its order, without ``timing`` and the digest itself: a
changed option, input, interval or count is found when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Final, Self

import numpy as np

from reid_dist.errors import DamagedStoreError, InputError, StoreError
from reid_dist.reports.files import Writer, read_document, refuse_occupied, refuse_uri, write_together

DIGEST: Final = "document_digest"
"""The entry that holds the digest."""

_TIMING: Final = "timing"


@dataclass(frozen=True)
class SavedDocument:
    """One kind of saved documents.

    Attributes
    ----------
    name
        Of the file.
    schema
        The version that is written; a reader refuses every other one.
    what
        What errors call such a document, in the singular.
    """

    name: str
    schema: int
    what: str

    def with_digest(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return a content of plain values with its digest as the last entry."""
        document = {name: value for name, value in content.items() if name != DIGEST}
        return {**document, DIGEST: _digest_of(document)}

    def text(self, content: Mapping[str, Any]) -> str:
        """Return a content of plain values and its digest as indented ASCII JSON; floats read back to the same bits."""
        return json.dumps(self.with_digest(content), indent=2, allow_nan=False) + "\n"

    def verify(self, document: Mapping[str, Any], where: str) -> None:
        """Refuse a document that is not what was written.

        Parameters
        ----------
        document
            The document as it was read.
        where
            What errors call it.

        Raises
        ------
        StoreError
            If it is of another schema, or has no digest.
        DamagedStoreError
            If its digest is another, or its timing is no table of seconds.
        """
        if document.get("schema") != self.schema:
            raise StoreError(f"{where} has schema {document.get('schema')!r}, this version reads {self.schema}")
        if DIGEST not in document:
            raise StoreError(
                f"{where} has no {DIGEST}: it was written by an earlier version, or is damaged; evaluate again"
            )
        actual = _digest_of(document)
        if document[DIGEST] != actual:
            raise DamagedStoreError(
                f"{where} was changed after it was written: its document digest is {actual}, recorded is "
                f"{document[DIGEST]!s:.64}; evaluate again"
            )
        timing = document.get(_TIMING)
        if not isinstance(timing, dict) or not all(map(_is_seconds, timing.values())):
            raise DamagedStoreError(f"{where} was changed after it was written: its timing holds no seconds by stage")

    def read(self, directory: str | os.PathLike[str]) -> dict[str, Any]:
        """Read the document of a directory, verified.

        Raises
        ------
        InputError
            If the directory is a URI.
        StoreNotFoundError
            If there is none.
        StoreError
            If it cannot be read, is of another schema, or has no digest.
        DamagedStoreError
            If it cannot be decoded, or is not what was written.
        """
        document = read_document(directory, self.name)
        self.verify(document, f"{self.what} in {os.fspath(directory)}")
        return document

    def save(
        self,
        directory: str | os.PathLike[str],
        content: Mapping[str, Any],
        others: Mapping[str, Writer] | None = None,
        *,
        overwrite: bool = False,
        known: Sequence[str] = (),
    ) -> Path:
        """Write a document, and other files before it; a directory that has the document is whole.

        Parameters
        ----------
        directory
            A local directory; made when it is missing.
        content
            Plain values.
        others
            What writes each of the other files, by name.
        overwrite
            Replace an older one; files of other names are not touched.
        known
            Names of files that belong to an older one: those that are not written are removed.

        Returns
        -------
        The directory.

        Raises
        ------
        InputError
            If it is a URI.
        StoreExistsError
            If it holds anything and `overwrite` is false.
        StoreError
            If it cannot be written.
        """
        path = refuse_uri(directory) if overwrite else refuse_occupied(directory)
        write = partial(_write, self.text(content).encode("ascii"))
        write_together(path, {**(others or {}), self.name: write}, known=known)
        return path


@dataclass(frozen=True, kw_only=True, eq=False)
class DocumentReport(ABC):
    """Base of reports that are one JSON document and one page.

    A subclass is a frozen data class.  Its fields are the entries of the document, in their order.
    """

    saved: ClassVar[SavedDocument]
    page: ClassVar[str]
    """Name of the file of the page."""

    @property
    @abstractmethod
    def result_digest(self) -> str:
        """SHA-256 over the values, 64 hexadecimal digits."""

    @staticmethod
    @abstractmethod
    def render(document: Mapping[str, Any]) -> str:
        """Return the page of a document."""

    @classmethod
    def restored(cls, entries: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of the entries of a document, in which None was not finite."""
        return entries

    def entries(self) -> dict[str, Any]:
        """Return the entries of the document but for schema and digests, in their order."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def describe(self) -> dict[str, Any]:
        """Return the content of the document, made of plain Python values; None replaces what is not finite."""
        document = {"schema": self.saved.schema, **self.entries(), "result_digest": self.result_digest}
        return self.saved.with_digest({name: plain(value) for name, value in document.items()})

    def to_json(self) -> str:
        """Return :meth:`describe` as indented ASCII JSON; every float reads back to the same bits."""
        return self.saved.text(self.describe())

    def to_html(self) -> str:
        """Return one offline page; the same report gives the same bytes."""
        return self.render(self.describe())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote, and verify it.

        Raises
        ------
        StoreNotFoundError
            If the directory has no such document.
        DamagedStoreError
            If it cannot be decoded, or anything but the timing is not what was written.
        StoreError
            If it cannot be read, is of another schema, or of an earlier version.
        """
        document = cls.saved.read(directory)
        where = f"{cls.saved.what} in {os.fspath(directory)}"
        try:
            report = cls(**cls.restored({each.name: document[each.name] for each in fields(cls)}))
            found, written = report.result_digest, document["result_digest"]
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedStoreError(f"{where} is not as it was written: {error!r}") from error
        if found != written:
            raise DamagedStoreError(
                f"{where} has other numbers than were written: digest {found[:16]}, written {str(written)[:16]}"
            )
        return report

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write the document and the page; return the directory.

        Both are first written under other names.  A directory that has the document is whole.

        Parameters
        ----------
        directory
            A local directory, missing or empty.
        overwrite
            Replace an older report; files of other names are not touched.

        Raises
        ------
        InputError
            If it is a URI.
        StoreExistsError
            If it holds anything.
        StoreError
            If it cannot be written.
        """
        # "replace": a path that is not UTF-8 may be on the page; it is shown there, never read back.
        page = self.to_html().encode("utf-8", "replace")
        return self.saved.save(directory, self.describe(), {self.page: partial(_write, page)}, overwrite=overwrite)


def restored_number(value: float | None) -> float:
    """Return a number of a document, in which None was not finite, as NaN."""
    return math.nan if value is None else float(value)


def plain(value: object) -> Any:
    """Return a value made of None, bool, int, float, str, list and dict; what is not a finite number becomes None."""
    match value:
        case None | bool() | str():
            return value
        case np.ndarray() | np.generic():
            return plain(value.tolist())
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {str(name): plain(item) for name, item in value.items()}
        case Sequence():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _digest_of(document: Mapping[str, Any]) -> str:
    rest = {name: value for name, value in document.items() if name not in (_TIMING, DIGEST)}
    return hashlib.sha256(json.dumps(rest, separators=(",", ":")).encode("ascii")).hexdigest()


def _is_seconds(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _write(content: bytes, file: IO[bytes]) -> None:
    file.write(content)
