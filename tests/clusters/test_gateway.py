"""A real Dask Gateway on loopback: the answer of threads, and its refusals as one line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gateway_server import Gateway, gateway_server, missing_programs
from held_runs import admitted, descendants, held, listeners

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"Dask Gateway is not here: {missing_programs()}"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with gateway_server(tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture
def cluster_text(server: Gateway) -> str:
    return (
        f"kind: gateway\naddress: {server.address}\nauth: basic\nusername: tester\nworkers: 2\nthreads_per_worker: 1\n"
        "memory: 900MB\nwait_for_workers: 2\ntimeout_s: 60\n"
    )


def test_the_answer_of_threads(evaluate_on, sets, server: Gateway, cluster_text: str) -> None:
    done = evaluate_on(cluster_text, env={"DASK_GATEWAY_PASSWORD": server.password})
    assert done.digest == sets.digest
    assert server.password not in done.out + done.err


def test_an_unauthorised_client_is_not_admitted(sets, tmp_path: Path, server: Gateway, cluster_text: str) -> None:
    """Neither by the server and its proxies, nor by scheduler and workers; Dask's pages are up to the server."""
    (tmp_path / "cluster.yaml").write_text(cluster_text)
    words = ("evaluate", sets.query, sets.gallery, "--cluster", "cluster.yaml")
    with held(tmp_path, *words, kind="gateway", DASK_GATEWAY_PASSWORD=server.password) as run:
        ports = [each.port for each in listeners(descendants([server.process, *run.processes]))]
        # API, proxy of schedulers and of pages; scheduler, two nannies and two workers.
        assert len(ports) >= 7
        found = admitted(ports)
        run.end()
    given = [each for every in found.values() for each in every]
    assert [each for each in given if not each.startswith("page ")] == []


def test_a_wrong_password(evaluate_on, server: Gateway, cluster_text: str) -> None:
    done = evaluate_on(cluster_text, env={"DASK_GATEWAY_PASSWORD": "wrong-password"})
    done.assert_one_line(3, "gave no cluster")
    assert "wrong-password" not in done.err


def test_no_password(evaluate_on, cluster_text: str) -> None:
    evaluate_on(cluster_text).assert_one_line(2, "set DASK_GATEWAY_PASSWORD")


def test_an_option_that_the_server_does_not_have(evaluate_on, server: Gateway, cluster_text: str) -> None:
    done = evaluate_on(f"{cluster_text}options: {{absent: 1}}\n", env={"DASK_GATEWAY_PASSWORD": server.password})
    done.assert_one_line(2, "does not take these options", "absent")


def test_a_server_that_is_not_there(evaluate_on) -> None:
    text = "kind: gateway\naddress: http://127.0.0.1:1\nworkers: 1\nthreads_per_worker: 1\nmemory: 1GiB\n"
    evaluate_on(text).assert_one_line(3, "gave no cluster")


def test_an_address_without_tls(evaluate_on) -> None:
    text = "kind: gateway\naddress: http://gateway.example\nworkers: 1\nthreads_per_worker: 1\nmemory: 1GiB\n"
    evaluate_on(text).assert_one_line(2, "http://gateway.example", "insecure: true")
