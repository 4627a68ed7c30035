"""A real SSH server of this user on loopback, with keys of its own."""

from __future__ import annotations

import contextlib
import getpass
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_SSHD = Path("/usr/sbin/sshd")


def missing_programs() -> list[str]:
    """What must be installed before `loopback_sshd` works."""
    return ([] if _SSHD.exists() else ["sshd"]) + ([] if shutil.which("ssh-keygen") else ["ssh-keygen"])


@dataclass(frozen=True)
class Server:
    """A running server: its process, its port, the key that it accepts, and the file with its own key."""

    process: int
    port: int
    private_key: Path
    known_hosts: Path

    @property
    def lines(self) -> str:
        """Its entries in a cluster file."""
        return f"port: {self.port}\nprivate_key_file: {self.private_key}\nknown_hosts_file: {self.known_hosts}\n"


@contextlib.contextmanager
def loopback_sshd(folder: Path) -> Iterator[Server]:
    """Start a server, and stop it."""
    for name in ("host", "user"):
        words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(words, check=True, capture_output=True)
    shutil.copy(folder / "user.pub", folder / "authorized_keys")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    kind, key, *_ = (folder / "host.pub").read_text().split()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    settings = {
        "ListenAddress": f"127.0.0.1:{port}",
        "HostKey": folder / "host",
        "AuthorizedKeysFile": folder / "authorized_keys",
        "PidFile": folder / "pid",
        "AllowUsers": getpass.getuser(),
        "PermitRootLogin": "prohibit-password",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "UsePAM": "no",
        "MaxStartups": "50",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    Path("/run/sshd").mkdir(exist_ok=True)  # where sshd shuts in those who have not shown a key
    words = [str(_SSHD), "-D", "-f", str(folder / "config"), "-E", str(folder / "log")]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield Server(process.pid, port, folder / "user", folder / "known_hosts")
    finally:
        process.terminate()
        process.wait()
