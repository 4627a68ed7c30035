"""A real Dask Gateway server on loopback, with the backend that starts processes of this user."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = Path(sys.executable).with_name("dask-gateway-server")

# The server still calls Dask's programs by names that Dask no longer has.
_CONFIGURATION = """\
c.DaskGateway.backend_class = "dask_gateway_server.backends.local.UnsafeLocalBackend"
c.DaskGateway.authenticator_class = "dask_gateway_server.auth.SimpleAuthenticator"
c.SimpleAuthenticator.password = {password!r}
c.DaskGateway.address = "127.0.0.1:{api}"
c.Proxy.address = "127.0.0.1:{proxy}"
c.UnsafeLocalBackend.clusters_directory = {folder!r}
c.ClusterConfig.scheduler_cmd = [{python!r}, "-m", "distributed.cli.dask_scheduler"]
c.ClusterConfig.worker_cmd = [{python!r}, "-m", "distributed.cli.dask_worker"]
c.ClusterConfig.worker_cores = 1
c.ClusterConfig.worker_memory = "900 M"
"""


def missing_programs() -> list[str]:
    """What must be installed before `gateway_server` works."""
    absent = [name for name in ("dask_gateway", "dask_gateway_server") if importlib.util.find_spec(name) is None]
    return absent + ([] if _PROGRAM.exists() else [_PROGRAM.name])


@dataclass(frozen=True)
class Gateway:
    """A running server, the password that it takes, and its process, which starts all others."""

    address: str
    password: str
    process: int


@contextlib.contextmanager
def gateway_server(folder: Path) -> Iterator[Gateway]:
    """Start a server, and stop it with all that it has started."""
    with contextlib.ExitStack() as taken:
        servers = [taken.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        api, proxy = (server.getsockname()[1] for server in servers)
    password = secrets.token_hex(16)
    (folder / "clusters").mkdir()
    settings = {"password": password, "api": api, "proxy": proxy, "folder": str(folder / "clusters")}
    (folder / "config.py").write_text(_CONFIGURATION.format(**settings, python=sys.executable))
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [_PROGRAM, "--config", folder / "config.py"],
            stdout=log,
            stderr=log,
            cwd=folder,
            start_new_session=True,
            env={**os.environ, "PATH": f"{_PROGRAM.parent}:{os.environ['PATH']}"},
        )
        try:
            deadline = time.monotonic() + 30
            while not _answers(f"http://127.0.0.1:{proxy}/api/health"):
                assert process.poll() is None, (folder / "log.txt").read_text()
                assert time.monotonic() < deadline, (folder / "log.txt").read_text()
                time.sleep(0.1)
            yield Gateway(f"http://127.0.0.1:{proxy}", password, process.pid)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            shutil.rmtree(folder / "clusters", ignore_errors=True)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=2) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
