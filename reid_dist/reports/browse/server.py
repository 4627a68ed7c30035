"""A server of an explorer for one user of this machine.

It listens on 127.0.0.1 alone, and its address holds a random token, as other users of the machine can connect, too.
Requests are answered only under that token and for the address itself as host: a page of another origin whose name
resolves to 127.0.0.1 sends its own name.  Files are those of `Site`; no name of a request becomes a path.
"""

from __future__ import annotations

import hmac
import re
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from reid_dist.errors import InputError
from reid_dist.reports.browse.site import PAGE, REPORT, Site

HOST: Final = "127.0.0.1"

_TYPES: Final = {"html": "text/html; charset=utf-8", "js": "text/javascript", "css": "text/css", "jpg": "image/jpeg"}
_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
_SCRIPTED: Final = "script-src 'self'; style-src 'self'; img-src 'self'"
# The report holds its style and its pictures, and runs nothing.
_SELF_CONTAINED: Final = "style-src 'unsafe-inline'; img-src data:"
_HEADERS: Final = {
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "private, no-cache",
}
_PATH = re.compile(r"/([\w-]{1,100})/([\w./-]{0,100})", re.ASCII)
_SECONDS_IDLE: Final = 60


class ListServer(ThreadingHTTPServer):
    """A server of the files of a site; `address` is where they are.

    Parameters
    ----------
    site
        The files.
    port
        Of 127.0.0.1; 0 for a free one.

    Raises
    ------
    InputError
        If the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0) -> None:
        self.site = site
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            raise InputError(
                f"cannot listen on {HOST}:{port}: {error.strerror or error}; choose another --port, or 0 for a free one"
            ) from error

    @property
    def address(self) -> str:
        """URL of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore connections that browsers drop; anything else is reported as usual."""
        import sys

        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ListServer
    protocol_version = "HTTP/1.1"
    timeout = _SECONDS_IDLE

    def version_string(self) -> str:
        return "reid-dist"

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: lines would hold the token."""

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        host, port = self.headers.get("Host", ""), self.server.server_port
        if host not in (f"{HOST}:{port}", f"localhost:{port}"):
            self._refuse(HTTPStatus.FORBIDDEN)
            return
        path = _PATH.fullmatch(self.path)
        # In constant time, so that it cannot be found letter by letter.
        if path is None or not hmac.compare_digest(path[1], self.server.token):
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        name = path[2] or PAGE
        content = self.server.site.content(name)
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND)
            return
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", _TYPES[name.rpartition(".")[2]])
        self.send_header("Content-Security-Policy", _POLICY + (_SELF_CONTAINED if name == REPORT else _SCRIPTED))
        self._end(content if with_body else b"", len(content))

    def _refuse(self, status: HTTPStatus) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Security-Policy", _POLICY)
        text = f"{status.phrase}\n".encode()
        self._end(text if self.command != "HEAD" else b"", len(text))

    def _end(self, body: bytes, length: int) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(body)
