"""The server of an explorer: what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from browsed_runs import serving

from reid_dist import Report
from reid_dist.errors import InputError
from reid_dist.reports.browse import ListServer, Site, open_subject


@pytest.fixture(scope="module")
def server(make_report: Callable[..., Report]) -> Iterator[ListServer]:
    with serving(Site(open_subject(make_report(n_query=12, n_invalid=0, k=4)))) as made:
        yield made


class Answer(NamedTuple):
    status: int
    headers: http.client.HTTPMessage
    content: bytes


def ask(server: ListServer, path: str, *, method: str = "GET", host: str | None = None) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", f"127.0.0.1:{server.server_port}" if host is None else host)
    connection.endheaders()
    response = connection.getresponse()
    answer = Answer(response.status, response.headers, response.read())
    connection.close()
    return answer


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", "text/html; charset=utf-8"),
        ("browse.js", "text/javascript"),
        ("browse.css", "text/css"),
        ("data/run.js", "text/javascript"),
        ("data/lists-00000.js", "text/javascript"),
    ],
)
def test_files_under_the_token(server: ListServer, name: str, kind: str) -> None:
    answer = ask(server, f"/{server.token}/{name}")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == kind
    assert answer.content == server.site.content(name or "index.html")
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Access-Control-Allow-Origin"] is None
    head = ask(server, f"/{server.token}/{name}", method="HEAD")
    assert (head.status, head.content, head.headers["Content-Length"]) == (200, b"", str(len(answer.content)))


def test_the_report_runs_nothing_and_holds_its_style(server: ListServer) -> None:
    answer = ask(server, f"/{server.token}/report.html")
    assert answer.status == 200
    policies = answer.headers.get_all("Content-Security-Policy")
    assert policies is not None
    (policy,) = policies
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "style-src 'unsafe-inline'; img-src data:" in policy


@pytest.mark.parametrize(
    "path",
    ["/", "/index.html", "/{wrong}/", "/{token}", "/{token}x/", "/{token}/../{token}/", "/{token}//",
     "/{token}/../../../../etc/passwd", "/{token}/%2e%2e/report.json", "/{token}/report.json", "/{token}/data/",
     "/{token}/data/run.js?", "/{token}/pictures/query/0000/3.jpg", "http://127.0.0.1/{token}/"],
)  # fmt: skip
def test_all_else_is_not_found(server: ListServer, path: str) -> None:
    wrong = server.token[:-1] + ("A" if server.token[-1] != "A" else "B")
    answer = ask(server, path.format(token=server.token, wrong=wrong))
    assert answer.status == 404
    assert answer.content == b"Not Found\n"


@pytest.mark.parametrize(
    "host", ["", "evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "[::1]:{port}"]
)
def test_other_hosts_are_refused(server: ListServer, host: str) -> None:
    assert ask(server, f"/{server.token}/", host=f"localhost:{server.server_port}").status == 200
    answer = ask(server, f"/{server.token}/", host=host.format(port=server.server_port))
    assert (answer.status, answer.content) == (403, b"Forbidden\n")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(server: ListServer, method: str) -> None:
    assert ask(server, f"/{server.token}/", method=method).status == 501


def test_it_listens_on_loopback_alone_with_a_token_of_its_own(server: ListServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/{server.token}/"
    with ListServer(server.site) as other:
        assert len(other.token) >= 32
        assert other.token != server.token


def test_several_browsers_at_once(server: ListServer) -> None:
    # A connection that sends nothing blocks no other one.
    with socket.create_connection(("127.0.0.1", server.server_port)):
        assert ask(server, f"/{server.token}/").status == 200


def test_a_port_in_use_is_refused(server: ListServer) -> None:
    with pytest.raises(InputError, match=rf"cannot listen on 127.0.0.1:{server.server_port}: .*choose another --port"):
        ListServer(server.site, server.server_port)


def test_requests_leave_no_line(server: ListServer, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    ask(server, f"/{server.token}/")
    ask(server, "/nothing")
    assert capfd.readouterr() == ("", "")
