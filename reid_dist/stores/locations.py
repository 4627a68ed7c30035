"""Where stores lie: the one place that turns a URI into a Zarr store.

Today a location is a path or a ``file://`` URI.  A scheme for object storage is one more branch of `zarr_store`
(and of `remove`); nothing else in the package looks at a URI.
"""

from __future__ import annotations

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
from zarr.storage import LocalStore

from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError

__all__ = [
    "MANIFEST_KEY",
    "WRITING_MARK",
    "State",
    "canonical_uri",
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
        If the scheme is not known.
    """
    text = os.fspath(location)
    if not text:
        raise InputError("the path of a store must not be empty")
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise InputError(f"cannot open {text!r}: known are paths and file:// URIs of this machine")
        text = unquote(parts.path)
    return str(Path(text).absolute())


def local_path(uri: str) -> Path:
    """Return the path of a canonical URI."""
    return Path(uri)


def zarr_store(uri: str, *, read_only: bool) -> Store:
    """Return the Zarr store of a canonical URI."""
    return LocalStore(local_path(uri), read_only=read_only)


def read_mark(uri: str) -> dict[str, Any] | None:
    """Return the manifest attribute as it lies there, or None if this is no group of ours.

    Raises
    ------
    StoreError
        If it cannot be read for want of permission.
    DamagedStoreError
        If the group's metadata is damaged.
    """
    try:
        group = zarr.open_group(zarr_store(uri, read_only=True), mode="r", zarr_format=3, use_consolidated=False)
    except (FileNotFoundError, NotADirectoryError, GroupNotFoundError, NodeNotFoundError, ContainsArrayError):
        return None
    except PermissionError as error:
        raise StoreError(f"cannot read {uri}: {error}") from error
    except Exception as error:  # A damaged zarr.json fails in as many ways as JSON and Zarr's metadata have fields.
        raise DamagedStoreError(f"{uri}: the metadata in zarr.json is unreadable: {error!r}") from error
    mark = group.attrs.asdict().get(MANIFEST_KEY)
    return cast("dict[str, Any]", mark) if isinstance(mark, dict) else None


def state_of(uri: str) -> State:
    """Say what lies at a canonical URI."""
    path = local_path(uri)
    if not path.exists():
        return State.NOTHING
    # A writer that was killed before its first metadata leaves an empty directory or Zarr's own temporary file.
    if path.is_dir() and all(entry.name.endswith(".partial") for entry in path.iterdir()):
        return State.NOTHING
    mark = read_mark(uri)
    if mark is None:
        return State.FOREIGN
    return State.COMPLETE if mark.get("state") == "complete" else State.WRITING


def remove(uri: str) -> None:
    """Remove a store; one whose removal is cut short looks half-written, hence is never opened and can be replaced."""
    path = local_path(uri)
    if read_mark(uri) is not None:
        zarr.open_group(zarr_store(uri, read_only=False), mode="r+", zarr_format=3).attrs[MANIFEST_KEY] = WRITING_MARK
    for entry in path.iterdir():
        if entry.name != "zarr.json":
            shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    shutil.rmtree(path)


def put_in_place(incoming: str, uri: str) -> None:
    """Let a complete store take the place of another.

    Between the two renamings nothing is at the place; whoever is killed there leaves both stores beside it, under
    their names with a dot before and ``.incoming`` and ``.outgoing`` behind.
    """
    target = local_path(uri)
    outgoing = target.with_name(f".{target.name}.outgoing")
    if outgoing.exists():
        remove(str(outgoing))
    target.rename(outgoing)
    local_path(incoming).rename(target)
    remove(str(outgoing))


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
    state = state_of(uri)
    if state is State.COMPLETE and not overwrite:
        raise StoreExistsError(f"{uri} is a complete store already; write elsewhere, or allow it to be overwritten")
    if state is State.FOREIGN:
        raise StoreExistsError(f"{uri} exists and is not a feature store; it is never overwritten: write elsewhere")
    return state
