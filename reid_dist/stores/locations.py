"""Where stores lie: the one place that turns a URI into a Zarr store.

A location is a path, a ``file://`` URI, or ``s3://BUCKET/KEY``; see `reid_dist.stores.objects`.  What lies there, what
may be replaced and how, is the same for all, and is decided here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import deque
from enum import Enum
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote, urlsplit

import zarr
from zarr.abc.store import Store
from zarr.errors import ContainsArrayError, GroupNotFoundError, NodeNotFoundError

from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError
from reid_dist.stores.links import BoundedStore
from reid_dist.stores.objects import ObjectFolder, ahead, canonical_object_uri, is_object_uri, zarr_object_store

__all__ = [
    "MANIFEST_KEY",
    "WRITING_MARK",
    "State",
    "at_location",
    "canonical_uri",
    "holds",
    "incoming_place",
    "local_path",
    "put_in_place",
    "read_mark",
    "refuse_unless_free",
    "remove",
    "state_of",
    "zarr_store",
]

MANIFEST_KEY = "reid_dist"
"""The attribute of the group that holds the manifest."""

WRITING_MARK = {"state": "writing"}
"""What the attribute holds until the store is committed."""

_GROUP_FILE = "zarr.json"
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
    above, _, name = uri.rpartition("/")
    return f"{above}/.{name}.incoming"


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
    if read_mark(uri) is not None:
        zarr.open_group(zarr_store(uri, read_only=False), mode="r+", zarr_format=3).attrs[MANIFEST_KEY] = WRITING_MARK
    path = local_path(uri)
    for entry in path.iterdir():
        if entry.name != _GROUP_FILE:
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(path)


def _empty(uri: str) -> None:
    """Remove all objects of a store but the group's, which says that there is none yet."""
    folder = ObjectFolder(uri)
    if folder.has(_GROUP_FILE):
        group = {"zarr_format": 3, "node_type": "group", "attributes": {MANIFEST_KEY: WRITING_MARK}}
        folder.write(_GROUP_FILE, json.dumps(group).encode())
    folder.remove_all([name for name in folder.walk() if name != _GROUP_FILE])


def put_in_place(incoming: str, uri: str) -> None:
    """Let a complete store take the place of another.

    Between the two renamings nothing is at the place; whoever is killed there leaves both stores beside it, under
    their names with a dot before and ``.incoming`` and ``.outgoing`` behind.  On S3, where nothing can be renamed, the
    objects are copied within the storage, the commit mark last; whoever is killed there leaves the new store beside.
    """
    if is_object_uri(uri):
        _copy_in_place(incoming, uri)
        return
    target = local_path(uri)
    outgoing = target.with_name(f".{target.name}.outgoing")
    if outgoing.exists():
        remove(str(outgoing))
    target.rename(outgoing)
    local_path(incoming).rename(target)
    remove(str(outgoing))


def _copy_in_place(incoming: str, uri: str) -> None:
    source, target = ObjectFolder(incoming), ObjectFolder(uri)
    names = [name for name in source.walk() if name != _GROUP_FILE]
    _empty(uri)
    deque(ahead(lambda name: source.copy_to(name, target), names, 1), maxlen=0)
    source.copy_to(_GROUP_FILE, target)
    remove(incoming)


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
        raise StoreExistsError(f"{uri} is a complete store already; write elsewhere, or allow it to be overwritten")
    if state is State.FOREIGN:
        raise StoreExistsError(f"{uri} exists and is not a feature store; it is never overwritten: write elsewhere")
    return state
