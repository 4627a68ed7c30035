"""Workers over a real SSH server on loopback: the answer of threads, and nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificate_files import named
from held_runs import assert_closed, descendants, held
from loopback_sshd import Server, loopback_sshd, missing_programs
from support.processes import is_running, wait_until

from reid_dist.core.temporary import remove_abandoned

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


def test_the_answer_of_threads(evaluate_on, sets, server: Server, tmp_path: Path) -> None:
    done = evaluate_on(f"{CLUSTER}{server.lines}local_directory: {tmp_path / 'local'}\n")
    assert done.digest == sets.digest
    _await_end(descendants([server.process])[1:])
    assert "INFO" not in done.err


def test_an_unauthorised_client_is_not_admitted(sets, server: Server, tmp_path: Path) -> None:
    """Keys are in files of this user, not in words of commands, which every user can list."""
    local = tmp_path / "local"
    (tmp_path / "cluster.yaml").write_text(f"{CLUSTER}{server.lines}local_directory: {local}\n")
    words = ("evaluate", sets.query, sets.gallery, "--cluster", "cluster.yaml")
    with held(tmp_path, *words, kind="ssh") as run:
        processes = descendants([server.process])[1:]
        # Scheduler, two nannies, two workers, and the pages of three.
        assert_closed(processes, at_least=8)
        message = b"".join(Path(f"/proc/{each}/cmdline").read_bytes() for each in processes if is_running(each))
        keys = {Path(os.fsdecode(each)) for each in re.findall(rb'"(/[^"]+/key\.pem)"', message)}
        assert len(keys) == 1
        assert b"PRIVATE KEY" not in message
        (key,) = keys
        assert (stat.S_IMODE(key.stat().st_mode), stat.S_IMODE(key.parent.stat().st_mode)) == (0o600, 0o700)
        # Of the scheduler and of two nannies; what Dask makes itself is empty.
        assert list((local / "dask-scratch-space").iterdir()) == []
        scratch = list(local.glob("reid-dist-*"))
        assert len(scratch) == 3
        assert all(stat.S_IMODE(each.stat().st_mode) == 0o700 for each in scratch)
        run.end()
    _await_end(processes)
    # Dask ends remote processes by SIGKILL; the next one in this place removes what they leave.
    remove_abandoned(str(local))
    assert not list(local.glob("reid-dist-*"))
    # What a nanny of another program makes by itself is empty.
    assert not [path for path in (tmp_path / "t").rglob("*") if path.name != "dask-scratch-space"]


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_with_the_client(start_on, larger_sets, server: Server, sent: signal.Signals) -> None:
    running = start_on(CLUSTER + server.lines, larger_sets, "--chunk-rows", "256")
    running.await_partial_results(1)
    processes = descendants([server.process])[1:]
    assert len(processes) >= 5
    running.send(sent)
    ended = running.end()
    assert "INFO" not in ended.err
    _await_end(processes)


def _await_end(processes: list[int]) -> None:
    wait_until(lambda: not any(map(is_running, processes)), "the end of all processes", 20)


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


def test_a_server_that_refuses_the_key(evaluate_on, server: Server, tmp_path: Path) -> None:
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
