"""Requests of another user to ports of this machine: ``python unauthorised_client.py PORT…`` prints, as JSON, those
that were admitted.

Run by root, it becomes a user without rights once its modules are imported; otherwise it is a client without the
certificate.  Each port is tried in the clear, over TLS without a certificate and with one of its own, for an
identity and for code to run, and for pages.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import urllib.request
from http.client import HTTPException
from typing import Any

from distributed import Security
from distributed.comm.core import CommClosedError
from distributed.core import connect, send_recv
from distributed.protocol.pickle import dumps

_NOBODY = 65534
_PATHS = ("", "status", "info/main/workers.html", "json/identity.json", "metrics", "health", "sitemap.json")
_EMPTY_LISTS = (b'{"paths": []}', b'{"paths": ["/sitemap.json"]}')
_WITHIN_S = 2.0


def _trivial() -> int:
    return 1


def _with_no_certificate() -> dict[str, Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return {"ssl_context": context}


def _ways(own: Security) -> list[tuple[str, dict[str, Any]]]:
    return [("tcp", {}), ("tls", _with_no_certificate()), ("tls", own.get_connection_args("client"))]


async def _try(port: int, scheme: str, words: dict[str, Any], operation: dict[str, Any]) -> str | None:
    # What serves something else may seem to announce a message of any length.
    with contextlib.suppress(OSError, CommClosedError, TimeoutError, ValueError, MemoryError):
        async with asyncio.timeout(_WITHIN_S):
            comm = await connect(f"{scheme}://127.0.0.1:{port}", timeout=_WITHIN_S, **words)
            try:
                await send_recv(comm, **operation)
            finally:
                comm.abort()
        return f"{scheme} {operation['op']}"
    return None


def _page(port: int, path: str) -> str | None:
    where = f"http://127.0.0.1:{port}/{path}"
    with contextlib.suppress(OSError, HTTPException), urllib.request.urlopen(where, timeout=_WITHIN_S) as page:
        # The list of pages is always there, and names itself where there is no other.
        return None if page.read() in _EMPTY_LISTS else f"page /{path}"
    return None


async def _try_all(ports: list[int], own: Security) -> dict[int, list[str]]:
    operations = [{"op": "identity"}, *({"op": each, "function": dumps(_trivial)} for each in ("run", "run_function"))]
    tried = [
        (port, _try(port, scheme, words, operation))
        for port in ports
        for scheme, words in _ways(own)
        for operation in operations
    ] + [(port, asyncio.to_thread(_page, port, path)) for port in ports for path in _PATHS]
    found = await asyncio.gather(*(each for _, each in tried))
    admitted: dict[int, list[str]] = {port: [] for port in ports}
    for (port, _), what in zip(tried, found, strict=True):
        if what is not None:
            admitted[port].append(what)
    return admitted


if __name__ == "__main__":
    certificate = Security.temporary()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(_NOBODY)
        os.setuid(_NOBODY)
        os.environ["TMPDIR"] = "/tmp"
    print(json.dumps(asyncio.run(_try_all([int(word) for word in sys.argv[1:]], certificate))))
