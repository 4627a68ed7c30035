"""Texts as a history stores them; long descriptions that are the same night after night are there once, by a digest."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable
from typing import Any

from reid_dist.nightly.history.seals import insert_rows

__all__ = ["as_json", "digest_of", "insert_facts", "read_fact", "stored_text"]


def as_json(value: object) -> str:
    """Return plain values as compact JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def digest_of(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def insert_facts(connection: sqlite3.Connection, contents: Iterable[str]) -> None:
    """Write descriptions that are not there yet."""
    insert_rows(connection, "facts", [(digest_of(each), each) for each in contents], more="ON CONFLICT DO NOTHING")


def read_fact(digest: str, content: str) -> Any:
    """Return a description as it was before it became JSON.

    Raises
    ------
    ValueError
        If it is not as it was written.
    """
    if digest_of(content) != digest:
        raise ValueError("the checksum of a description is another")
    return json.loads(content)


def stored_text(text: str) -> str:
    """Return a text as SQLite stores it: a file name that is not UTF-8 is told with escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
