"""Locations of stores: canonical URIs, the commit marker, and what is at a URI.

A location is a path, a ``file://`` URI, or ``s3://BUCKET/KEY``.  Bytes are read and written by
`reid_dist.stores.folders`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import unquote, urlsplit

import zarr

from reid_dist.core.json_text import parse_json
from reid_dist.core.limits import LONGEST_NAME, refuse_unusable_path
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError
from reid_dist.stores.folders import GROUP_FILE, Folder, folder_at
from reid_dist.stores.objects import canonical_object_uri, is_object_uri

MANIFEST_KEY = "reid_dist"
"""The attribute of the group that holds the manifest."""

WRITING_MARKER = {"state": "writing"}
"""The attribute until the store is committed."""

_WILDCARDS = frozenset("*?[")
BEFORE = "before"
"""Entry of the attribute of a part that was appended: the manifest from before."""

_UNCOMMITTED_GROUP = json.dumps(
    {"zarr_format": 3, "node_type": "group", "attributes": {MANIFEST_KEY: WRITING_MARKER}}
).encode()
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# The codecs of every array of a store: raw bytes and a checksum, which no other writer combines by default.
_CODECS = ["bytes", "crc32c"]

Read = TypeVar("Read")


class State(Enum):
    """What is at a location."""

    NOTHING = "nothing"
    WRITING = "a store without a commit marker"
    COMPLETE = "a complete store"
    FOREIGN = "something that is not a store of reid-dist"


def canonical_uri(location: str | os.PathLike[str]) -> str:
    """Return the canonical URI of a location: an absolute path for anything on the file system."""
    text = os.fspath(location)
    if not text:
        raise InputError("the path of a store must not be empty")
    refuse_unusable_path(unquote(text) if _SCHEME.match(text) else text)
    if is_object_uri(text):
        return canonical_object_uri(text)
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            # The part before an @ or after a ? may be a secret.
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise InputError(
                f"cannot open {shown!r}: known are paths, file:// URIs of this machine, and s3://BUCKET/KEY"
            )
        text = unquote(parts.path)
    return str(Path(text).absolute())


def local_path(uri: str) -> Path:
    """Return the path of a canonical URI; StoreError if it is not on the file system."""
    if is_object_uri(uri):
        raise StoreError(f"{uri} is on S3, where only feature stores and workspaces are; use a path of this machine")
    return Path(uri)


def is_glob(uri: str) -> bool:
    """Whether a canonical URI where nothing is may be a pattern of file names."""
    return not _WILDCARDS.isdisjoint(uri)


def at_location(uri: str, name: str) -> str:
    """Return the canonical URI of a name inside another."""
    return f"{uri.rstrip('/')}/{name}"


def holds(uri: str, name: str) -> bool:
    """Whether there is a file or a folder of that name at a canonical URI."""
    return folder_at(at_location(uri, name)).exists()


def beside(uri: str, form: str) -> str:
    """Return a place beside a store, such as ``.{}.incoming`` for the one that is to replace it.

    Beside a store are its lock, the one that replaces it (``incoming``), the one that it replaces (``outgoing``), and
    the parts of which it will be made (``unfinished``).
    """
    above, _, name = uri.rpartition("/")
    found = form.format(name)
    if len(os.fsencode(found)) > LONGEST_NAME:
        # The longest names of stores leave no room for more; their digest is unique as well.
        found = form.format(hashlib.sha256(os.fsencode(name)).hexdigest()[:32])
    return f"{above}/{found}"


def read_marker(uri: str) -> dict[str, Any] | None:
    """Return the manifest attribute, or None if there is no group of reid-dist.

    StoreError if it cannot be read, DamagedStoreError if the metadata of the group is damaged.
    """

    def read() -> dict[str, Any] | None:
        content = folder_at(uri).read(GROUP_FILE)
        if content is None:
            return None
        try:
            group = parse_json(content)
            if group["node_type"] != "group" or group["zarr_format"] != 3:
                return None
            marker = group.get("attributes", {}).get(MANIFEST_KEY)
        except (InputError, KeyError, TypeError, AttributeError) as error:
            reason = error if isinstance(error, InputError) else repr(error)
            raise DamagedStoreError(f"{uri}: the metadata in zarr.json is unreadable: {reason}") from error
        return cast("dict[str, Any]", marker) if isinstance(marker, dict) else None

    return read_twice(uri, read)


def read_twice(
    uri: str, read: Callable[[], Read], is_damaged: Callable[[Read], bool] = lambda found: found is None
) -> Read:
    """Return what is read; on object storage, damage and absence are read once more, for they may pass."""
    if is_object_uri(uri):
        with contextlib.suppress(DamagedStoreError):
            found = read()
            if not is_damaged(found):
                return found
    return read()


def write_marker(uri: str, marker: dict[str, Any]) -> None:
    """Write the manifest attribute of a group."""
    store = folder_at(uri).zarr_store(read_only=False)
    zarr.open_group(store, mode="r+", zarr_format=3).attrs[MANIFEST_KEY] = marker


def state_of(uri: str) -> State:
    """Return what is at a canonical URI."""
    return state_by(read_marker(uri), uri)


def state_by(marker: dict[str, Any] | None, uri: str) -> State:
    """Return what is at a canonical URI, given its manifest attribute."""
    if marker is None:
        # A writer that was killed before its first metadata leaves an empty directory.
        return State.FOREIGN if folder_at(uri).exists() else State.NOTHING
    return State.COMPLETE if marker.get("state") == "complete" else State.WRITING


def remove(uri: str) -> None:
    """Remove a store; one whose removal is cut short has no commit marker: it is never opened and can be replaced."""
    folder = folder_at(uri)
    try:
        if folder.size(GROUP_FILE) is not None and not Path(uri).is_symlink():
            folder.write(GROUP_FILE, _UNCOMMITTED_GROUP)
        folder.clear(last=GROUP_FILE)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"cannot remove {uri}: {error}") from error


def remove_present(uri: str) -> None:
    """Remove what is at a canonical URI, if anything is there."""
    if state_of(uri) is not State.NOTHING:
        remove(uri)


def cut_short_note(uri: str) -> str:
    """Return a note on a place without a store if one was to be replaced there and the writer was killed."""
    outgoing = beside(uri, ".{}.outgoing")
    if not os.path.lexists(outgoing):
        return ""
    return f"; it was being replaced when the writer was stopped, and is now {outgoing}: ingest the source again"


def refuse_unless_free(uri: str, *, overwrite: bool) -> State:
    """Return what is where a store is to be written.

    StoreExistsError for anything that is no store, and for a complete store, unless `overwrite` lets it be replaced,
    which on object storage it does not.
    """
    if is_object_uri(uri) and "/" not in uri.removeprefix("s3://"):
        raise InputError(f"a store does not take a whole bucket; write to {uri}/NAME.zarr")
    state = state_of(uri)
    if state is State.COMPLETE and is_object_uri(uri):
        raise StoreExistsError(
            f"{uri} is already a complete store, and stores on object storage are not replaced; write to another "
            f"prefix, or delete it first (aws s3 rm --recursive {uri})"
        )
    if state is State.COMPLETE and not overwrite:
        raise StoreExistsError(
            f"{uri} is already a complete store; write elsewhere, or replace it with --overwrite (overwrite=True)"
        )
    if state is State.FOREIGN:
        raise StoreExistsError(f"{uri} exists and is not a feature store; it is never overwritten: write elsewhere")
    return state


def refuse_stripped(uri: str) -> None:
    """Refuse a group with the arrays of a feature store, and no manifest by which they can be verified."""
    folder = folder_at(uri)
    # Labels of a store to which rows were appended are elsewhere.
    has_labels = _is_array_of_ours(folder, "pids") or "appended" in folder.folders()
    if read_marker(uri) is None and _is_array_of_ours(folder, "features") and has_labels:
        raise StoreError(
            f"{uri} is damaged: it has the arrays of a feature store and no manifest; ingest the source again",
            details=(f"missing: zarr.json with the attribute {MANIFEST_KEY!r}, by which everything is verified",),
        )


def _is_array_of_ours(folder: Folder, name: str) -> bool:
    try:
        codecs = parse_json(folder.read(f"{name}/{GROUP_FILE}") or b"{}")["codecs"]
        return [codec["name"] for codec in codecs] == _CODECS
    except (ValueError, KeyError, TypeError, IndexError):
        return False
