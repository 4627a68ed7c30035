"""Workers over a real SSH server on loopback: the answer of threads, and nothing is left behind."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificate_files import named
from loopback_sshd import Server, loopback_sshd, missing_programs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing_programs()), reason=f"no SSH server here: {missing_programs()}"),
]

CLUSTER = (
    "kind: ssh\nscheduler_host: 127.0.0.1\nworker_hosts: [127.0.0.1, 127.0.0.1]\nthreads_per_worker: 1\n"
    "memory: 1GiB\nwait_for_workers: 2\ntimeout_s: 30\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with loopback_sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


def _remote_processes(mark: str) -> list[str]:
    """Commands of processes with a mark in their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "dask_spec" in words and mark in words:
            found.append(words)
    return found


def test_the_answer_of_threads(evaluate_on, sets, server: Server, tmp_path: Path) -> None:
    mark = tmp_path / "local"
    done = evaluate_on(f"{CLUSTER}{server.lines}local_directory: {mark}\n")
    assert done.digest == sets.digest
    deadline = time.monotonic() + 20
    while _remote_processes(str(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _remote_processes(str(mark)) == []


def test_the_answer_over_tls(evaluate_on, sets, server: Server, certificate_folder: Path) -> None:
    assert evaluate_on(CLUSTER + server.lines + named(certificate_folder)).digest == sets.digest


def test_a_server_with_another_key(evaluate_on, server: Server, tmp_path: Path) -> None:
    """Somebody else answers at this address."""
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True, capture_output=True)
    kind, key, *_ = other.with_suffix(".pub").read_text().split()
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} {kind} {key}\n")
    lines = server.lines.replace(str(server.known_hosts), str(tmp_path / "known_hosts"))
    evaluate_on(CLUSTER + lines).assert_one_line(3, "cannot start a cluster over SSH", "not trusted")


def test_a_server_that_does_not_let_us_in(evaluate_on, server: Server, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True, capture_output=True)
    lines = server.lines.replace(str(server.private_key), str(other))
    evaluate_on(CLUSTER + lines).assert_one_line(3, "cannot start a cluster over SSH", "ermission denied")


def test_a_host_that_is_not_there(evaluate_on, server: Server) -> None:
    lines = server.lines.replace(f"port: {server.port}", "port: 1")
    evaluate_on(CLUSTER + lines).assert_one_line(3, "cannot start a cluster over SSH")


def test_a_python_that_is_not_there(evaluate_on, server: Server) -> None:
    done = evaluate_on(f"{CLUSTER}{server.lines}python: /absent/python\n")
    done.assert_one_line(3, "cannot start a cluster over SSH")


def test_hosts_beyond_this_machine_without_certificates(evaluate_on) -> None:
    done = evaluate_on(CLUSTER.replace("[127.0.0.1,", "[worker.example,"))
    done.assert_one_line(2, "worker.example", "insecure: true")


def test_a_key_that_is_not_there(evaluate_on) -> None:
    evaluate_on(f"{CLUSTER}private_key_file: absent\n").assert_one_line(2, "there is no file 'absent'")
