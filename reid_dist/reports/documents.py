"""A saved document: JSON that carries the digest of its own content, written at once and whole, compared when read.

The digest is the SHA-256 of the document as compact JSON, in its order, without ``timing`` and the digest itself: a
changed option, input, interval or count is found when it is read.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from reid_dist.errors import DamagedStoreError, StoreError
from reid_dist.reports.files import Writer, read_document, refuse_occupied, refuse_uri, write_together

__all__ = ["DIGEST", "SavedDocument", "plain"]

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

    def sealed(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Return a content of plain values with its digest as the last entry."""
        document = {name: value for name, value in content.items() if name != DIGEST}
        return {**document, DIGEST: _digest_of(document)}

    def text(self, content: Mapping[str, Any]) -> str:
        """Return a content of plain values and its digest as indented ASCII JSON; floats read back to the same bits."""
        return json.dumps(self.sealed(content), indent=2, allow_nan=False) + "\n"

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
