"""Workers over a real SSH server on loopback: the answer of threads, and nothing is left behind."""

from __future__ import annotations

import contextlib
import signal
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


def _remote_processes(mark: str = "") -> list[int]:
    """Processes that SSH has started for a cluster: those with a mark in their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "dask_spec" in words and mark in words:
            found.append(int(path.parent.name))
    return found


def _runs(process: int) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_answer_of_threads(evaluate_on, sets, server: Server, tmp_path: Path) -> None:
    mark = tmp_path / "local"
    done = evaluate_on(f"{CLUSTER}{server.lines}local_directory: {mark}\n")
    assert done.digest == sets.digest
    deadline = time.monotonic() + 20
    while _remote_processes(str(mark)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _remote_processes(str(mark)) == []
    assert "INFO" not in done.err


def _sockets_of(processes: list[int]) -> set[str]:
    """Inodes of the sockets of some processes."""
    links = set()
    for process in processes:
        for path in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                links.add(str(path.readlink()))
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


def _open_listeners(processes: list[int]) -> list[str]:
    """Addresses beyond loopback on which some processes listen."""
    of_them = _sockets_of(processes)
    found = []
    for name, loopback in (("tcp", "0100007F"), ("tcp6", "0" * 24 + "01000000")):
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            if state == "0A" and inode in of_them and not local.startswith(f"{loopback}:"):
                found.append(local)
    return found


def _descendants(processes: list[int]) -> list[int]:
    """Some processes and all that they have started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = list(processes)
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGKILL])
def test_workers_listen_on_loopback_and_end_with_the_client(
    start_on, larger_sets, server: Server, tmp_path: Path, sent: signal.Signals
) -> None:
    mark = str(tmp_path / "local")
    running = start_on(f"{CLUSTER}{server.lines}local_directory: {mark}\n", larger_sets, "--chunk-rows", "256")
    running.await_partial_results(1)
    # The scheduler has no directory to know it by.
    processes = _descendants([server.process])[1:]
    assert len(_remote_processes(mark)) >= 2
    assert _sockets_of(processes)
    assert _open_listeners(processes) == []
    running.send(sent)
    ended = running.end()
    assert "INFO" not in ended.err
    deadline = time.monotonic() + 20
    while (left := [each for each in processes if _runs(each)]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []


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
