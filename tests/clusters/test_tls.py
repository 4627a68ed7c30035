"""A scheduler that speaks TLS: with certificates the answer of threads, without them one line."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificate_files import named
from distributed import Security
from support.local_workers import local_cluster

from reid_dist.clusters import connect, read_cluster
from reid_dist.clusters.security import new_certificates
from reid_dist.errors import ClusterError, InputError, StoreError, StoreNotFoundError


@pytest.fixture(scope="module")
def address(certificate_folder: Path) -> Iterator[str]:
    """A scheduler with two workers that accept only who shows a certificate."""
    cert, key = str(certificate_folder / "cert.pem"), str(certificate_folder / "key.pem")
    roles = {
        f"tls_{role}_{part}": path
        for role in ("client", "scheduler", "worker")
        for part, path in (("cert", cert), ("key", key))
    }
    security = Security(tls_ca_file=str(certificate_folder / "ca.pem"), require_encryption=True, **roles)
    with local_cluster(n_workers=2, protocol="tls://", security=security) as cluster:
        yield cluster.scheduler_address


def _refusal(tmp_path: Path, text: str, error: type[Exception]) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(error) as caught, connect(read_cluster(path)):
        pass
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.slow
def test_the_answer_over_tls(evaluate_on, sets, address: str, certificate_folder: Path) -> None:
    done = evaluate_on(f"kind: existing\naddress: {address}\nwait_for_workers: 2\n{named(certificate_folder)}")
    assert done.digest == sets.digest


@pytest.mark.slow
def test_a_client_without_certificates(evaluate_on, address: str) -> None:
    done = evaluate_on(f"kind: existing\naddress: {address}\n")
    done.assert_one_line(2, "refuses clients without certificates", "ca_file")


def test_a_client_with_certificates_of_another_authority(tmp_path, address: str, certificate_folder: Path) -> None:
    other = named(certificate_folder / "other")
    message = _refusal(tmp_path, f"kind: existing\naddress: {address}\ntimeout_s: 3\n{other}", ClusterError)
    assert "whether it trusts these certificates" in message


@pytest.mark.slow
def test_a_client_without_tls(evaluate_on, address: str) -> None:
    done = evaluate_on(f"kind: existing\naddress: {address.replace('tls', 'tcp')}\ntimeout_s: 3\n")
    done.assert_one_line(3, "cannot reach tcp://127.0.0.1", "does not speak TLS")


def test_certificates_for_an_address_without_tls(tmp_path, certificate_folder: Path) -> None:
    text = f"kind: existing\naddress: tcp://127.0.0.1:8786\n{named(certificate_folder)}"
    assert "write tls://127.0.0.1:8786" in _refusal(tmp_path, text, InputError)


@pytest.mark.parametrize("broken", ["ca", "cert", "key"])
def test_files_that_are_no_certificates(tmp_path, certificate_folder: Path, broken: str) -> None:
    lines = named(certificate_folder)
    absent = lines.replace(f"{broken}.pem", "absent.pem")
    head = "kind: existing\naddress: tls://127.0.0.1:8786\n"
    assert f"there is no {broken}_file of the cluster" in _refusal(tmp_path, head + absent, StoreNotFoundError)
    text = tmp_path / "text.pem"
    text.write_text("no certificate\n")
    wrong = lines.replace(str(certificate_folder / f"{broken}.pem"), str(text))
    assert "no certificate with its key" in _refusal(tmp_path, head + wrong, InputError)


def test_two_of_the_three_files(tmp_path, certificate_folder: Path) -> None:
    lines = named(certificate_folder).splitlines()[:2]
    text = "\n".join(["kind: existing", "address: tls://127.0.0.1:8786", *lines])
    assert "there is no key_file" in _refusal(tmp_path, text, InputError)


@pytest.mark.parametrize("host", ["192.0.2.1", "[2001:db8::1]", "scheduler.example", "0.0.0.0", "localhost.example"])
def test_an_open_address_beyond_this_machine(tmp_path, host: str) -> None:
    message = _refusal(tmp_path, f"kind: existing\naddress: tcp://{host}:8786\n", InputError)
    assert "can run code" in message
    assert "insecure: true" in message


def test_an_open_address_in_a_scheduler_file(tmp_path) -> None:
    (tmp_path / "scheduler.json").write_text('{"address": "tcp://192.0.2.1:8786"}')
    message = _refusal(tmp_path, f"kind: existing\nscheduler_file: {tmp_path / 'scheduler.json'}\n", InputError)
    assert "insecure: true" in message


@pytest.mark.timeout(30)
@pytest.mark.parametrize("kind", ["pipe", "device", "text of many levels", "long file"])
def test_a_scheduler_file_that_is_none(tmp_path, kind: str) -> None:
    """Before the timeout, and without reading what has no end; what is no JSON may still be written."""
    path = Path("/dev/zero") if kind == "device" else tmp_path / "scheduler.json"
    if kind == "pipe":
        os.mkfifo(path)
    if kind == "text of many levels":
        path.write_text("[" * 200_000)
    if kind == "long file":
        with path.open("wb") as file:
            file.truncate(9 << 30)
    timeout_s = 300 if kind in ("pipe", "device") else 0.1
    text = f"kind: existing\nscheduler_file: {path}\ntimeout_s: {timeout_s}\n"
    message = _refusal(tmp_path, text, (InputError, StoreError))
    assert re.search(f"is a {kind} and no file|is no scheduler_file", message)


@pytest.mark.timeout(30)
def test_a_certificate_that_is_a_pipe(tmp_path, certificate_folder: Path) -> None:
    os.mkfifo(tmp_path / "key.pem")
    lines = named(certificate_folder).replace(str(certificate_folder / "key.pem"), str(tmp_path / "key.pem"))
    text = f"kind: existing\naddress: tls://127.0.0.1:8786\n{lines}"
    assert "cannot read key_file of the cluster: " in _refusal(tmp_path, text, StoreError)


@pytest.mark.slow
def test_an_open_address_that_is_wanted(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = f"kind: existing\naddress: tcp://localhost.localdomain.invalid:{port}\ninsecure: true\ntimeout_s: 1\n"
    assert "cannot reach" in _refusal(tmp_path, text, ClusterError)


@pytest.mark.slow
def test_a_scheduler_that_is_not_there(tmp_path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    text = f"kind: existing\naddress: tcp://127.0.0.1:{port}\ntimeout_s: 1\n"
    assert f"cannot reach tcp://127.0.0.1:{port} within 1 s" in _refusal(tmp_path, text, ClusterError)


@pytest.mark.slow
def test_a_scheduler_file_that_does_not_come(tmp_path) -> None:
    text = f"kind: existing\nscheduler_file: {tmp_path / 'absent.json'}\ntimeout_s: 0.2\n"
    assert "after 0.2 s" in _refusal(tmp_path, text, ClusterError)
    (tmp_path / "absent.json").write_text("[]")
    assert "no JSON with an address" in _refusal(tmp_path, text, InputError)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the program openssl")
@pytest.mark.parametrize("year", [1971, 2020, 2153, 9000])
def test_certificates_of_a_run_hold_whatever_the_clock_is_set_to(tmp_path: Path, year: int) -> None:
    """Else a clock that jumps during a run would keep its processes from every new connection."""
    at = str((year - 1970) * 31_556_952)
    with new_certificates(tmp_path) as security:
        files = security.tls_ca_file, security.tls_worker_cert
        done = subprocess.run(
            ["openssl", "verify", "-attime", at, "-CAfile", *files], capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stdout + done.stderr


_ENDED_AT_ONCE = """
import os, shutil, sys, threading, time
from pathlib import Path
from reid_dist.cli import ending
from reid_dist.clusters.security import new_certificates

real = shutil.rmtree

def slow(*given, **options):
    if threading.current_thread() is threading.main_thread():
        threading.Thread(target=end).start()
        time.sleep(600)
    real(*given, **options)

def end():
    ending._end_at_once("as where it takes too long")
    os._exit(7)

shutil.rmtree = slow
with new_certificates(Path(sys.argv[1])):
    pass
"""


def test_keys_do_not_outlast_a_process_that_is_ended_while_it_removes_them(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _ENDED_AT_ONCE, str(tmp_path)], timeout=60, capture_output=True)
    assert done.returncode == 7, done.stderr
    assert list(tmp_path.iterdir()) == []
