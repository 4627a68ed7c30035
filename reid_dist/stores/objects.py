"""Objects on S3, by obstore: folders of objects, many requests in flight, and errors of one line.

Endpoint, region and credentials come from the environment, as in other tools: `AWS_ENDPOINT_URL`,
`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`, and `AWS_ALLOW_HTTP` for plain http.
None of it is in a URI, so none of it gets into manifests, reports or what is sent to workers; and no text of the
client library is ever passed on: it holds the endpoint as it was given, which may have a password in it.

An object appears at once and whole when its last byte has been taken: nothing is written under another name first.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.limits import shortages
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import InputError, ReidDistError, StoreError, StoreNotFoundError

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig, S3Store
    from zarr.abc.store import Store

SCHEME = "s3://"

NO_BUCKET = "NoSuchBucket"
"""Error code of a missing bucket, also in requests for an object."""

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
# Endpoints of roles of machines and containers, which are requested where no keys are given.
_METADATA = ("/latest/api/token", "/latest/meta-data", "169.254.170.2")

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
    """Return ``s3://BUCKET/KEY`` in its one form, or ``s3://BUCKET``."""
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
    """All objects below a canonical ``s3://BUCKET/KEY``; names are relative to it."""

    uri: str

    def exists(self) -> bool:
        """Whether there is an object below the URI, or at it."""
        if next(self.walk(), None) is not None:
            return True
        above, _, name = self.uri.rpartition("/")
        return bool(_parts(self.uri)[1]) and ObjectFolder(above).size(name) is not None

    def size(self, name: str) -> int | None:
        """Size of an object in bytes; None if it is missing."""
        return self._request(lambda obstore, store: int(obstore.head(store, name)["size"]))

    def read(self, name: str) -> bytes | None:
        """Read a whole object; None if it is missing, StoreError if it cannot be read."""
        return self._request(lambda obstore, store: bytes(obstore.get(store, name).bytes()))

    def gather(self, name: str, rows: NDArray[np.int64], row_bytes: int, n_bytes: int) -> NDArray[np.uint8] | None:
        """Read rows of an object of `n_bytes` bytes, (n, row_bytes); None if it is missing or another answer comes.

        One request brings the rows from the first to the last: several ranges in one request are cut out of the answer
        by the library, which aborts when it is shorter than it should be.
        """
        first, stop = int(rows[0]), int(rows[-1]) + 1
        body = self._request(
            lambda obstore, store: bytes(
                obstore.get_range(store, name, start=first * row_bytes, length=(stop - first) * row_bytes)
            )
        )
        if body is None or len(body) != (stop - first) * row_bytes:
            return None
        return np.frombuffer(body, np.uint8).reshape(-1, row_bytes)[rows - first]

    def write(self, name: str, content: bytes | memoryview) -> int:
        """Write an object, at once and whole; return its size in bytes."""
        with self._client(writing=True) as (obstore, store):
            obstore.put(store, name, bytes(content))
        return len(content)

    def replace(self, name: str, content: bytes, expected: bytes) -> bool:
        """Replace an object that still holds what is expected, in one conditional request; False if it does not."""
        with self._client(writing=True) as (obstore, store):
            try:
                found = obstore.get(store, name)
                if bytes(found.bytes()) != expected:
                    return False
                obstore.put(store, name, content, mode={"e_tag": found.meta["e_tag"]})
            except (FileNotFoundError, obstore.exceptions.PreconditionError):
                # The answer to a request that was made twice may be that to the second one.
                return self.read(name) == content
        return True

    def force(self) -> None:
        """Do nothing: what object storage has taken stays."""

    def names(self) -> list[str]:
        """Names of the objects directly in the folder, ascending."""
        return sorted(str(entry["path"]) for entry in self._listed()["objects"])

    def folders(self) -> list[str]:
        """Names of the folders directly in the folder, ascending."""
        return sorted(map(str, self._listed()["common_prefixes"]))

    def _listed(self) -> dict[str, Any]:
        with self._client() as (obstore, store):
            found: dict[str, Any] = obstore.list_with_delimiter(store)
        return found

    def walk(self, below: str = "") -> Iterator[str]:
        """Names of all objects in the folder, or below one of its folders."""
        with self._client() as (obstore, store):
            for batch in obstore.list(store, prefix=below or None):
                yield from (str(entry["path"]) for entry in batch)

    def open(self, name: str) -> io.BytesIO:
        """Read a whole object, as a file."""
        content = self.read(name)
        if content is None:
            raise FileNotFoundError(f"{self.uri}/{name}")
        return io.BytesIO(content)

    def remove(self, *names: str) -> None:
        """Remove objects that may be there: a request for every thousand."""
        if names:
            self._request(lambda obstore, store: obstore.delete(store, list(names)), writing=True)

    def clear(self, last: str = "") -> None:
        """Remove all objects in the folder, one of them after all others."""
        self.remove(*(name for name in self.walk() if name != last))
        if last:
            self.remove(last)

    def refuse_link(self, name: str) -> None:
        """Do nothing: object storage has no links."""

    def refuse_links(self, *, but_to_files: bool = False) -> None:
        """Do nothing: object storage has no links."""

    def map(self, work: Callable[[Item], Made], items: Iterable[Item], n_bytes: int) -> Iterator[Made]:
        """Return results of work on items, `n_bytes` each, in order: in many threads, ahead of the consumer."""
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

    def zarr_store(self, *, read_only: bool) -> Store:
        """Zarr store of the folder."""
        _library()
        from zarr.storage import ObjectStore

        bucket, key = _parts(self.uri)
        return ObjectStore(_make_store(bucket, key or None, True, _environment()), read_only=read_only)

    def _request(self, request: Callable[[ModuleType, S3Store], Made], *, writing: bool = False) -> Made | None:
        """Make a request for one object; None if it is missing, but for want of its bucket."""
        with self._client(writing=writing) as (obstore, store):
            try:
                return request(obstore, store)
            except FileNotFoundError as error:
                if NO_BUCKET in str(error):
                    raise
            except Exception as error:
                # Of an object without a single byte there is no range.
                if "InvalidRange" not in str(error):
                    raise
            return None

    @contextlib.contextmanager
    def _client(self, *, writing: bool = False) -> Iterator[tuple[ModuleType, S3Store]]:
        library = _library()
        (bucket, key), environment = _parts(self.uri), _environment()
        store = _make_store(bucket, key or None, (bucket, environment) in _REACHED, environment)
        with storage_errors(self.uri, writing=writing):
            yield library, store
        _REACHED.add((bucket, environment))


# Buckets that this process has reached, each with the environment of that time.
_REACHED: set[tuple[str, int]] = set()


def _parts(uri: str) -> tuple[str, str]:
    """Bucket and key of a canonical URI."""
    bucket, _, key = uri.removeprefix(SCHEME).partition("/")
    return bucket, key


def _library() -> ModuleType:
    return import_extra("obstore", "s3", "s3://")


def _environment() -> int:
    """Hash of the settings of storage: a process may change its endpoint while it runs."""
    return hash(tuple(sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))))


@lru_cache(maxsize=256)
def _make_store(bucket: str, key: str | None, patient: bool, _settings: int) -> S3Store:
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


def in_flight(n_bytes: int) -> int:
    """Return how many requests may be under way at a time, each of so many bytes."""
    return max(2, min(_MOST_REQUESTS, _MOST_BYTES // max(1, n_bytes)))


def begin(work: Callable[Given, Made], *given: Given.args, **named: Given.kwargs) -> Future[Made]:
    """Begin work that mostly waits, in a thread of its own."""
    with _POOL_LOCK:
        return _pool(os.getpid()).submit(work, *given, **named)


_POOL_LOCK = threading.Lock()


@lru_cache(maxsize=1)
def _pool(_process: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_MOST_REQUESTS, thread_name_prefix="objects")


# ---- errors ----------------------------------------------------------------------------------------------------------


def is_object_uri(uri: str) -> bool:
    """Whether a canonical URI is on S3."""
    return uri.startswith(SCHEME)


@contextlib.contextmanager
def storage_errors(uri: str, *, writing: bool = False) -> Iterator[None]:
    """Turn what the client library raises, and when writing what the system does, into a StoreError of one line.

    A thread or an open file that the system refuses is a ShortageError.
    """
    try:
        with shortages():
            yield
    except (ReidDistError, MemoryError):
        raise
    except OSError as error:
        if is_object_uri(uri) and NO_BUCKET in str(error):
            raise _no_bucket(uri) from None
        if writing:
            raise StoreError(f"cannot write {uri}: {error.strerror or error}") from error
        raise
    except Exception as error:
        if is_object_uri(uri) and type(error).__module__.startswith("obstore"):
            raise _explained(uri, error, writing=writing) from None
        if is_object_uri(uri) and writing:
            # Zarr looks at what is there before it writes.
            raise StoreError(
                f"cannot write {uri}: the storage answers with bytes that are no metadata ({type(error).__name__}); "
                "try again, or check it with its own tools"
            ) from error
        raise


def _explained(uri: str, error: Exception, *, writing: bool) -> StoreError:
    """Error without the text of the library, which holds the endpoint as it was given."""
    text, what = str(error), "write" if writing else "read"
    code, status = _CODE.search(text), _STATUS.search(text)
    named = code[1] if code else f"HTTP status {status[1]}" if status else type(error).__name__
    if any(sign in text for sign in _METADATA):
        return StoreError(
            f"no credentials for {uri}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
            details=("profiles are not read; for a public bucket set AWS_SKIP_SIGNATURE=true",),
        )
    if NO_BUCKET in text:
        return _no_bucket(uri)
    if "BadScheme" in text:
        return StoreError(
            f"cannot reach {uri} at {_endpoint()}: it is not https; set AWS_ALLOW_HTTP=true if that is meant"
        )
    if (status and status[1] in ("401", "403")) or "PermissionDenied" in named or "Unauthenticated" in named:
        return StoreError(
            f"cannot {what} {uri}: the credentials in the environment are refused ({named})",
            details=("check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION and the rights on the bucket",),
        )
    for sign, reason in (
        ("ConnectionRefused", "connection refused"),
        ("dns error", "its name is not known"),
        ("TimedOut", "no answer in time"),
        ("Timeout", "no answer in time"),
        ("error sending request", "no connection"),
    ):
        if sign in text and not status:
            return StoreError(
                f"cannot reach {uri} at {_endpoint()}: {reason}; check AWS_ENDPOINT_URL, AWS_REGION and the network"
            )
    return StoreError(f"cannot {what} {uri}: the storage answers {named}; try again, or check it with its own tools")


def _no_bucket(uri: str) -> StoreNotFoundError:
    bucket = uri.removeprefix(SCHEME).partition("/")[0]
    return StoreNotFoundError(
        f"{uri}: there is no bucket {bucket!r} at {_endpoint()}; make it, or check AWS_ENDPOINT_URL"
    )


def _endpoint() -> str:
    """Host and port of the endpoint, without what else may be in its URL."""
    given = _given_endpoint()[1]
    parts = urlsplit(given)
    return (parts.netloc.rpartition("@")[2] or "an endpoint without a host") if given else "Amazon S3"


def _given_endpoint() -> tuple[str, str]:
    """Name and value of the variable with the endpoint; empty texts if there is none."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next(((name, os.environ[name]) for name in names if os.environ.get(name)), ("", ""))


def refuse_unusable_endpoint() -> None:
    """Refuse an endpoint that is no URL: the client library aborts the process instead of raising.

    The message does not repeat it: it may hold a password.
    """
    name, given = _given_endpoint()
    if not given:
        return
    try:
        parts = urlsplit(given)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or not given.isprintable() or " " in given:
        raise InputError(f"{name} is no URL of an S3 endpoint; write https://HOST or https://HOST:PORT")
