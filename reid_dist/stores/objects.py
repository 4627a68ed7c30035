"""Objects on S3, by obstore: folders of objects, many requests in flight, and errors of one line.

Everything that decides where and as whom is in the environment, as other tools have it: `AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, and `AWS_ALLOW_HTTP` for plain http.
None of it is in a URI, so none of it gets into manifests, reports or what is sent to workers; and no text of the
client library is ever passed on, since an endpoint may hold a password.

An object appears at once and whole when its last byte has been taken: nothing is written under another name first.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, ParamSpec, TypeVar

from reid_dist.errors import InputError
from reid_dist.stores.object_errors import NO_BUCKET, SCHEME, is_object_uri, refuse_unusable_endpoint, storage_errors

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store
    from zarr.abc.store import Store

__all__ = [
    "ObjectFolder",
    "ahead",
    "begin",
    "canonical_object_uri",
    "in_flight",
    "is_object_uri",
    "storage_errors",
    "zarr_object_store",
]

# Requests in flight at a time, and the bytes that they may hold together.
_MOST_REQUESTS = 32
_MOST_BYTES = 64 << 20

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_YES = ("1", "true", "yes", "on")

_CONNECT_TIMEOUT = timedelta(seconds=3)
_READ_TIMEOUT = timedelta(seconds=10)
# Until a bucket has answered once, trouble is more likely a wrong setting than a passing one.
_FIRST_PATIENCE = timedelta(seconds=6)
_LATER_PATIENCE = timedelta(seconds=60)
_FIRST_RETRIES, _LATER_RETRIES = 2, 10

Item = TypeVar("Item")
Made = TypeVar("Made")
Given = ParamSpec("Given")


def canonical_object_uri(text: str) -> str:
    """Return ``s3://BUCKET/KEY`` in its one form, or ``s3://BUCKET``.

    Raises
    ------
    InputError
        If it is none, or could point outside of itself.
    """
    bucket, _, key = text.removeprefix(SCHEME).rstrip("/").partition("/")
    # What may be a key or a signature is not repeated.
    if "@" in bucket:
        raise InputError("an s3:// URI holds no credentials; put them into AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    if "?" in key or "#" in key or "?" in bucket or "#" in bucket:
        raise InputError("an s3:// URI is s3://BUCKET/KEY, without query or fragment (? or #)")
    if not _BUCKET.fullmatch(bucket):
        raise InputError(f"{text!r} names no bucket; an S3 location is s3://BUCKET/KEY")
    segments = key.split("/") if key else []
    if any(segment in ("", ".", "..") for segment in segments) or not text.isprintable() or "\\" in key:
        raise InputError(f"{text!r} is no plain S3 location: no part of it may be empty, '.' or '..'")
    return SCHEME + "/".join([bucket, *segments])


# ---- requests --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ObjectFolder:
    """All objects whose keys begin alike.

    Attributes
    ----------
    uri
        Canonical ``s3://BUCKET/KEY``; names of objects are relative to it.
    """

    uri: str

    def has(self, name: str) -> bool:
        """Whether there is an object of that name."""
        return self.size(name) is not None

    def size(self, name: str) -> int | None:
        """Size of an object in bytes, or None if there is none."""
        obstore = _library()
        return self._ask(lambda store: int(obstore.head(store, name)["size"]))

    def read(self, name: str) -> bytes | None:
        """Read a whole object; None if there is none.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        obstore = _library()
        return self._ask(lambda store: bytes(obstore.get(store, name).bytes()))

    def read_ranges(self, name: str, starts: Sequence[int], length: int) -> list[memoryview] | None:
        """Read equally long pieces of an object; what is near each other comes in one request.

        Returns
        -------
        The pieces; None if there is no such object, or it is too short.

        Raises
        ------
        StoreError
            If it cannot be read.
        """
        obstore = _library()
        lengths = [length] * len(starts)
        found = self._ask(lambda store: obstore.get_ranges(store, name, starts=starts, lengths=lengths))
        return None if found is None else [memoryview(piece) for piece in found]

    def write(self, name: str, content: bytes | memoryview) -> int:
        """Write an object, at once and whole; return its size in bytes."""
        obstore = _library()
        with self._answers(writing=True) as store:
            obstore.put(store, name, bytes(content))
        return len(content)

    def names(self) -> list[str]:
        """Names of the objects that lie directly in the folder, ascending."""
        return sorted(str(entry["path"]) for entry in self._listed()["objects"])

    def folders(self) -> list[str]:
        """Names of the folders that lie directly in the folder, ascending."""
        return sorted(map(str, self._listed()["common_prefixes"]))

    def _listed(self) -> dict[str, Any]:
        obstore = _library()
        with self._answers() as store:
            found: dict[str, Any] = obstore.list_with_delimiter(store)
        return found

    def walk(self, below: str | None = None) -> Iterator[str]:
        """Names of all objects in the folder, or below one of its folders."""
        obstore = _library()
        with self._answers() as store:
            for batch in obstore.list(store, prefix=below):
                yield from (str(entry["path"]) for entry in batch)

    def open(self, name: str) -> IO[bytes]:
        """Read a whole object, as a file.

        Raises
        ------
        FileNotFoundError
            If there is none.
        StoreError
            If it cannot be read.
        """
        content = self.read(name)
        if content is None:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return io.BytesIO(content)

    def remove(self, name: str) -> None:
        """Remove an object, whether or not it is there."""
        self.remove_all([name])

    def clear(self) -> None:
        """Remove all objects in the folder."""
        self.remove_all(list(self.walk()))

    def remove_all(self, names: Sequence[str]) -> None:
        """Remove objects, whether or not they are there."""
        if names:
            obstore = _library()
            self._ask(lambda store: obstore.delete(store, list(names)), writing=True)

    def copy_to(self, name: str, other: ObjectFolder) -> None:
        """Copy an object to another folder of the same bucket, within the storage."""
        obstore = _library()
        with self._answers(writing=True):
            source, target = (f"{_parts(folder.uri).key}/{name}".lstrip("/") for folder in (self, other))
            obstore.copy(_make_store(_parts(self.uri).bucket, None, True, _told()), source, target)

    def _ask(self, request: Callable[[S3Store], Made], *, writing: bool = False) -> Made | None:
        """Make a request for one object; None if it is missing, but for want of its bucket."""
        with self._answers(writing=writing) as store:
            try:
                return request(store)
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
            except Exception as error:
                # Of an object without a single byte there is no range.
                if "InvalidRange" not in str(error):
                    raise
            return None

    @contextlib.contextmanager
    def _answers(self, *, writing: bool = False) -> Iterator[S3Store]:
        place, told = _parts(self.uri), _told()
        store = _make_store(place.bucket, place.key or None, (place.bucket, told) in _ANSWERED, told)
        with storage_errors(self.uri, writing=writing):
            yield store
        _ANSWERED.add((place.bucket, told))


# Buckets that have answered this process, each in the environment of that time.
_ANSWERED: set[tuple[str, int]] = set()


@dataclass(frozen=True)
class _Place:
    bucket: str
    key: str


def _parts(uri: str) -> _Place:
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return _Place(bucket, key)


def zarr_object_store(uri: str, *, read_only: bool) -> Store:
    """Return the Zarr store of a canonical URI on S3."""
    _library()
    from zarr.storage import ObjectStore

    place = _parts(uri)
    return ObjectStore(_make_store(place.bucket, place.key or None, True, _told()), read_only=read_only)


def _library() -> ModuleType:
    try:
        return importlib.import_module("obstore")
    except ImportError:
        raise InputError("s3:// needs obstore, which is not installed: pip install 'reid-dist[s3]'") from None


def _told() -> int:
    """Tell one environment from another: a process may be told of another endpoint while it runs."""
    return hash(tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


@lru_cache(maxsize=256)
def _make_store(bucket: str, key: str | None, patient: bool, _environment: int) -> S3Store:
    from obstore.store import S3Store

    patience: RetryConfig = {
        "max_retries": _LATER_RETRIES if patient else _FIRST_RETRIES,
        "retry_timeout": _LATER_PATIENCE if patient else _FIRST_PATIENCE,
    }
    client: ClientConfig = {
        "connect_timeout": _CONNECT_TIMEOUT,
        "read_timeout": _READ_TIMEOUT,
        # Without this the library stops after 30 s, however long an object is.
        "timeout": timedelta(hours=1),
        "allow_http": os.environ.get("AWS_ALLOW_HTTP", "").strip().lower() in _YES,
    }
    refuse_unusable_endpoint()
    with storage_errors(SCHEME + bucket):
        return S3Store(bucket, prefix=key, client_options=client, retry_config=patience)


# ---- many requests at once -------------------------------------------------------------------------------------------


def ahead(work: Callable[[Item], Made], items: Iterable[Item], n_bytes: int) -> Iterator[Made]:
    """Do work on items in many threads, ahead of whoever takes the results, and give them in their order.

    Parameters
    ----------
    work
        Mostly waits, for storage.
    items
        What for.
    n_bytes
        What one result holds in memory: it bounds how many there are at a time.
    """
    width = in_flight(n_bytes)
    waiting: deque[Future[Made]] = deque()
    try:
        for item in items:
            waiting.append(begin(work, item))
            if len(waiting) == width:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


def in_flight(n_bytes: int) -> int:
    """Return how many requests may be under way at a time, each of so many bytes."""
    return max(2, min(_MOST_REQUESTS, _MOST_BYTES // max(1, n_bytes)))


def begin(work: Callable[Given, Made], *given: Given.args, **named: Given.kwargs) -> Future[Made]:
    """Begin work that mostly waits, in a thread of its own."""
    return _pool().submit(work, *given, **named)


_POOL_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def _pool_of(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="objects")


def _pool() -> ThreadPoolExecutor:
    with _POOL_LOCK:
        return _pool_of(os.getpid())
