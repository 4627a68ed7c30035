"""Where stores lie: the one place that turns a URI into a Zarr store.

A location is a path, a ``file://`` URI, or ``s3://BUCKET/KEY``; see `reid_dist.stores.objects`.  What lies there, what
may be replaced and how, is the same for all, and is decided here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from enum import Enum
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import zarr
from zarr.abc.store import Store
from zarr.errors import ContainsArrayError, GroupNotFoundError, NodeNotFoundError

from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError
from reid_dist.stores.links import BoundedStore
from reid_dist.stores.objects import ObjectFolder, canonical_object_uri, is_object_uri, zarr_object_store
from reid_dist.stores.swaps import LocalSwap, ObjectSwap, Swap, swap_together

__all__ = [
    "MANIFEST_KEY",
    "WRITING_MARK",
    "State",
    "at_location",
    "canonical_uri",
    "holds",
    "incoming_place",
    "local_path",
    "outgoing_place",
    "put_in_place",
    "read_mark",
    "refuse_unless_free",
    "remove",
    "remove_leftover",
    "state_of",
    "swap_of",
    "told_of_cut_short",
    "write_mark",
    "zarr_store",
]

MANIFEST_KEY = "reid_dist"
"""The attribute of the group that holds the manifest."""

WRITING_MARK = {"state": "writing"}
"""What the attribute holds until the store is committed."""

_GROUP_FILE = "zarr.json"
_GROUP_OF_NONE = json.dumps(
    {"zarr_format": 3, "node_type": "group", "attributes": {MANIFEST_KEY: WRITING_MARK}}
).encode()
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class State(Enum):
    """What lies at a location."""

    NOTHING = "nothing"
    WRITING = "a store that has no commit mark"
    COMPLETE = "a complete store"
    FOREIGN = "something that is not one of our stores"


def canonical_uri(location: str | os.PathLike[str]) -> str:
    """Return the URI by which a location is known: an absolute path for anything on the file system.

    Raises
    ------
    InputError
        If the scheme is not known, or the location could point outside of itself.
    """
    text = os.fspath(location)
    if not text:
        raise InputError("the path of a store must not be empty")
    if is_object_uri(text):
        return canonical_object_uri(text)
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            # What comes before an @ or after a ? may be a secret.
            shown = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
            raise InputError(
                f"cannot open {shown!r}: known are paths, file:// URIs of this machine, and s3://BUCKET/KEY"
            )
        text = unquote(parts.path)
    return str(Path(text).absolute())


def local_path(uri: str) -> Path:
    """Return the path of a canonical URI.

    Raises
    ------
    StoreError
        If it is not on the file system.
    """
    if is_object_uri(uri):
        raise StoreError(f"{uri} is on S3, where only feature stores and workspaces are; use a path of this machine")
    return Path(uri)


def at_location(uri: str, name: str) -> str:
    """Return the canonical URI of something inside another."""
    return f"{uri}/{name}" if is_object_uri(uri) else str(Path(uri) / name)


def holds(uri: str, name: str) -> bool:
    """Whether there is a file or a folder of that name at a canonical URI."""
    if is_object_uri(uri):
        return _holds_any(ObjectFolder(at_location(uri, name)))
    return (local_path(uri) / name).exists()


def incoming_place(uri: str) -> str:
    """Return where the successor of a store is written."""
    return _hidden_beside(uri, "incoming")


def outgoing_place(uri: str) -> str:
    """Return where a store is while its successor comes to its place."""
    return _hidden_beside(uri, "outgoing")


def _hidden_beside(uri: str, what: str) -> str:
    above, _, name = uri.rpartition("/")
    return f"{above}/.{name}.{what}"


def _holds_any(folder: ObjectFolder) -> bool:
    return next(folder.walk(), None) is not None


def zarr_store(uri: str, *, read_only: bool) -> Store:
    """Return the Zarr store of a canonical URI."""
    if is_object_uri(uri):
        return zarr_object_store(uri, read_only=read_only)
    return BoundedStore(local_path(uri), read_only=read_only)


def read_mark(uri: str) -> dict[str, Any] | None:
    """Return the manifest attribute as it lies there, or None if this is no group of ours.

    Raises
    ------
    StoreError
        If it cannot be read for want of permission, as storage does not answer, or as a link leads out of it.
    DamagedStoreError
        If the group's metadata is damaged.
    """
    if is_object_uri(uri):
        return _read_object_mark(uri)
    try:
        group = zarr.open_group(zarr_store(uri, read_only=True), mode="r", zarr_format=3, use_consolidated=False)
    except (FileNotFoundError, NotADirectoryError, GroupNotFoundError, NodeNotFoundError, ContainsArrayError):
        return None
    except StoreError:
        raise
    except PermissionError as error:
        raise StoreError(f"cannot read {uri}: {error}") from error
    except Exception as error:  # A damaged zarr.json fails in as many ways as JSON and Zarr's metadata have fields.
        raise DamagedStoreError(f"{uri}: the metadata in zarr.json is unreadable: {error!r}") from error
    return _mark_of(group.attrs.asdict())


def _read_object_mark(uri: str) -> dict[str, Any] | None:
    """Read the one object that tells: Zarr would ask for more, and take a missing bucket for a missing store."""
    content = ObjectFolder(uri).read(_GROUP_FILE)
    if content is None:
        return None
    try:
        group = json.loads(content)
        if group["node_type"] != "group" or group["zarr_format"] != 3:
            return None
        return _mark_of(group.get("attributes", {}))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedStoreError(f"{uri}: the metadata in zarr.json is unreadable: {error!r}") from error


def _mark_of(attributes: dict[str, Any]) -> dict[str, Any] | None:
    mark = attributes.get(MANIFEST_KEY)
    return cast("dict[str, Any]", mark) if isinstance(mark, dict) else None


def state_of(uri: str) -> State:
    """Say what lies at a canonical URI."""
    if is_object_uri(uri):
        mark = read_mark(uri)
        if mark is None and not _holds_any(ObjectFolder(uri)):
            return State.FOREIGN if _is_object(uri) else State.NOTHING
        return _state_by(mark)
    path = local_path(uri)
    if not path.exists():
        return State.NOTHING
    # A writer that was killed before its first metadata leaves an empty directory or Zarr's own temporary file.
    if path.is_dir() and all(entry.name.endswith(".partial") for entry in path.iterdir()):
        return State.NOTHING
    return _state_by(read_mark(uri))


def _state_by(mark: dict[str, Any] | None) -> State:
    if mark is None:
        return State.FOREIGN
    return State.COMPLETE if mark.get("state") == "complete" else State.WRITING


def _is_object(uri: str) -> bool:
    above, _, name = uri.rpartition("/")
    return above != "s3:/" and ObjectFolder(above).has(name)


def remove(uri: str) -> None:
    """Remove a store; one whose removal is cut short looks half-written, hence is never opened and can be replaced."""
    if is_object_uri(uri):
        _empty(uri)
        ObjectFolder(uri).remove(_GROUP_FILE)
        return
    path = local_path(uri)
    if path.is_symlink():
        # What a link leads to is not ours to empty.
        path.unlink()
        return
    if read_mark(uri) is not None:
        write_mark(uri, WRITING_MARK)
    for entry in path.iterdir():
        if entry.name != _GROUP_FILE:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(path)


def write_mark(uri: str, mark: dict[str, Any]) -> None:
    """Write the attribute that says what a group of ours is."""
    zarr.open_group(zarr_store(uri, read_only=False), mode="r+", zarr_format=3).attrs[MANIFEST_KEY] = mark


def _empty(uri: str) -> None:
    """Remove all objects of a store but the group's, which says that there is none yet."""
    folder = ObjectFolder(uri)
    if folder.has(_GROUP_FILE):
        folder.write(_GROUP_FILE, _GROUP_OF_NONE)
    folder.remove_all([name for name in folder.walk() if name != _GROUP_FILE])


def swap_of(incoming: str, uri: str) -> Swap:
    """Return the swap of a complete store with the one that is at its place; what an earlier one left is removed."""
    if is_object_uri(uri):
        return ObjectSwap(ObjectFolder(incoming), ObjectFolder(uri), _GROUP_FILE, _GROUP_OF_NONE)
    outgoing = outgoing_place(uri)
    remove_leftover(outgoing)
    return LocalSwap(local_path(incoming), local_path(uri), local_path(outgoing))


def put_in_place(incoming: str, uri: str) -> None:
    """Let a complete store take the place of another, as `reid_dist.stores.swaps.swap_together` says."""
    swap = swap_of(incoming, uri)
    swap_together([swap])
    for leftover in swap.leftovers:
        remove_leftover(leftover)


def remove_leftover(uri: str) -> None:
    """Remove the store that a swap has left at a canonical URI, if there is one.

    Raises
    ------
    StoreError
        If it cannot be removed.
    """
    there = _holds_any(ObjectFolder(uri)) if is_object_uri(uri) else os.path.lexists(uri)
    if not there:
        return
    try:
        remove(uri)
    except StoreError:
        raise
    except OSError as error:
        raise StoreError(f"cannot remove {uri}, which is replaced and of no use any more: {error}") from error


def told_of_cut_short(uri: str) -> str:
    """Return what to say of a place without a store if one was to be replaced there and the writer was killed."""
    outgoing = outgoing_place(uri)
    if is_object_uri(uri) or not os.path.lexists(outgoing):
        return ""
    return f"; it was being replaced when the writer was stopped, and is now {outgoing}: ingest the source again"


def refuse_unless_free(uri: str, *, overwrite: bool) -> State:
    """Return what lies where a store is to be written.

    Parameters
    ----------
    uri
        Canonical URI.
    overwrite
        Whether a complete store may be replaced.

    Raises
    ------
    StoreExistsError
        If a complete store is there and `overwrite` is false, or something that is no store of ours.
    """
    if is_object_uri(uri) and "/" not in uri.removeprefix("s3://"):
        raise InputError(f"a store does not take a whole bucket; write to {uri}/NAME.zarr")
    state = state_of(uri)
    if state is State.COMPLETE and not overwrite:
        raise StoreExistsError(
            f"{uri} is a complete store already; write elsewhere, or replace it with --overwrite (overwrite=True)"
        )
    if state is State.FOREIGN:
        raise StoreExistsError(f"{uri} exists and is not a feature store; it is never overwritten: write elsewhere")
    return state
