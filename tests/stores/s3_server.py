"""A real S3 API on loopback, in the process of the tests, that can be made slow, failing or corrupt."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from werkzeug.serving import WSGIRequestHandler, make_server

KEY, SECRET = "AKIAEXAMPLE000000KEY", "very-secret-words-that-show-nowhere"


class Quiet(WSGIRequestHandler):
    """A handler without a log."""

    def log(self, *_: Any) -> None:
        pass


def flipped(body: bytes) -> bytes:
    """The body of an answer with one bit in its middle flipped."""
    spoilt = bytearray(body)
    spoilt[len(body) // 2] ^= 4
    return bytes(spoilt)


class Server:
    """Moto's S3, served by threads.

    Attributes
    ----------
    delay
        Seconds before every answer.
    refuse
        Given method and path of a request: whether it is answered by an error.
    status
        That error.
    corrupt
        Given method and path of a request: whether its answer is spoilt.
    spoil
        Given the body of an answer, the one that is sent in its place; by default one bit in the middle is flipped.
    requests
        Method and path of all requests so far.
    listings
        Prefixes of all listings so far.
    """

    def __init__(self) -> None:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Quiet)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.reset()

    def reset(self) -> None:
        self.delay = 0.0
        self.refuse: Callable[[str, str], bool] = lambda method, path: False
        self.corrupt: Callable[[str, str], bool] = lambda method, path: False
        self.spoil: Callable[[bytes], bytes] = flipped
        self.status = "500 Internal Server Error"
        self.requests: list[tuple[str, str]] = []
        self.listings: list[str] = []

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append(request)
        query = parse_qs(environ["QUERY_STRING"])
        if "list-type" in query:
            self.listings += query.get("prefix", [""])
        time.sleep(self.delay)
        if self.refuse(*request):
            start_response(self.status, [("Content-Length", "0")])
            return [b""]
        if not self.corrupt(*request):
            answer: Iterable[bytes] = self._application(environ, start_response)
            return answer
        begun: list[Any] = []
        answer = self._application(environ, lambda *head: begun.extend(head[:2]))
        body = self.spoil(b"".join(answer))
        status, headers = begun
        kept = [each for each in headers if each[0].lower() != "content-length"]
        start_response(status, [*kept, ("Content-Length", str(len(body)))])
        return [body]

    def environment(self) -> dict[str, str]:
        """What a user would export."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def client(self) -> Any:
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@dataclass
class Bucket:
    """A bucket of one test.

    Attributes
    ----------
    name
        Its name.
    server
        Where it is.
    """

    name: str
    server: Server
    client: Any = field(init=False)

    def __post_init__(self) -> None:
        self.client = self.server.client()
        self.client.create_bucket(Bucket=self.name)

    def uri(self, key: str) -> str:
        return f"s3://{self.name}/{key}"

    def listed(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix=prefix)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def read(self, key: str) -> bytes:
        content: bytes = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def write(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=key, Body=content)

    def delete(self, key: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=key)
