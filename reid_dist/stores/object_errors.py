"""Errors of S3, in one line each.

No text of the client library is passed on: it holds the endpoint as it was given, which may have a password in it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from urllib.parse import urlsplit

from reid_dist.core.limits import shortages
from reid_dist.errors import InputError, ReidDistError, StoreError, StoreNotFoundError

SCHEME = "s3://"

NO_BUCKET = "NoSuchBucket"
"""Error code of a missing bucket, also in requests for an object."""

_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
# Endpoints of roles of machines and containers, which are requested where no keys are given.
_METADATA = ("/latest/api/token", "/latest/meta-data", "169.254.170.2")


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
            f"no credentials for {uri}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (profiles are not read), or "
            "AWS_SKIP_SIGNATURE=true where the bucket is public"
        )
    if NO_BUCKET in text:
        return _no_bucket(uri)
    if "BadScheme" in text:
        return StoreError(
            f"cannot reach {uri} at {_endpoint()}: it is not https; set AWS_ALLOW_HTTP=true if that is meant"
        )
    if (status and status[1] in ("401", "403")) or "PermissionDenied" in named or "Unauthenticated" in named:
        return StoreError(
            f"cannot {what} {uri}: the credentials in the environment are refused ({named}); check AWS_ACCESS_KEY_ID, "
            "AWS_SECRET_ACCESS_KEY, AWS_REGION and the rights on the bucket"
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
