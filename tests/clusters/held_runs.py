"""Runs that are held while their cluster is up: their processes, their ports, and who is admitted there."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_MARK = "REID_DIST_TESTED_RUN"
_UNAUTHORISED = Path(__file__).with_name("unauthorised_client.py")
_LISTENING = "0A"
_LOOPBACK = {"tcp": "0100007F", "tcp6": "0" * 24 + "01000000"}


@dataclass(frozen=True)
class Listener:
    """A port, and whether only this machine reaches it."""

    port: int
    on_loopback: bool


def descendants(processes: Iterable[int]) -> list[int]:
    """Some processes and all that they have started."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            parents[int(stat.parent.name)] = int(stat.read_text(errors="replace").rpartition(")")[2].split()[1])
    found = list(processes)
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def _marked(mark: str) -> list[int]:
    """Processes in whose environment a text is."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def _sockets_of(processes: Iterable[int]) -> set[str]:
    """Inodes of the sockets of some processes."""
    links = set()
    for process in processes:
        for path in Path(f"/proc/{process}/fd").glob("*"):
            with contextlib.suppress(OSError):
                links.add(str(path.readlink()))
    return {link.removeprefix("socket:[").removesuffix("]") for link in links if link.startswith("socket:[")}


def listeners(processes: Iterable[int]) -> set[Listener]:
    """What some processes listen on, of IPv4 and IPv6."""
    of_them = _sockets_of(processes)
    found = set()
    for name, loopback in _LOOPBACK.items():
        for line in Path("/proc/net", name).read_text().splitlines()[1:]:
            _, local, _, state, _, _, _, _, _, inode, *_ = line.split()
            address, _, port = local.rpartition(":")
            if state == _LISTENING and inode in of_them:
                found.add(Listener(int(port, 16), address == loopback))
    return found


def admitted(ports: list[int]) -> dict[int, list[str]]:
    """What an unauthorised client gets at ports, without those that gave nothing."""
    words = [sys.executable, str(_UNAUTHORISED), *map(str, ports)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, cwd=_UNAUTHORISED.parent, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    assert sorted(map(int, found)) == sorted(ports)
    return {int(port): each for port, each in found.items() if each}


def assert_closed(processes: list[int], at_least: int) -> None:
    """Some processes listen on loopback alone, and admit no unauthorised client."""
    found = listeners(processes)
    assert len(found) >= at_least
    assert all(each.on_loopback for each in found)
    assert admitted([each.port for each in found]) == {}


# Runs a command whose cluster is held, once it is up, until a file exists.
HELD = """
import contextlib, importlib, os, time
from pathlib import Path

if __name__ == "__main__":
    os.umask({umask})
    from reid_dist.clusters import connection

    module, name = connection._OPENERS["{kind}"]
    home = importlib.import_module("reid_dist.clusters." + module)
    real = getattr(home, name)

    @contextlib.contextmanager
    def held(*arguments):
        with real(*arguments) as client:
            Path("begun").touch()
            while not Path("go").exists():
                time.sleep(0.02)
            yield client

    setattr(home, name, held)
    from reid_dist.cli import main

    main()
"""


@dataclass
class Held:
    """A command whose cluster is up."""

    process: subprocess.Popen[str]
    folder: Path
    mark: str

    @property
    def processes(self) -> list[int]:
        return descendants(_marked(self.mark))

    def go_on(self) -> None:
        (self.folder / "go").touch()

    def end(self) -> str:
        """Let it end, and return what it has written."""
        self.go_on()
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, err
        return out + err


@contextlib.contextmanager
def held(
    folder: Path, *words: object, umask: int = 0o022, kind: str = "local", before: Sequence[str] = (), **env: str
) -> Iterator[Held]:
    """A command whose cluster is held, started by the words `before`; with `folder`/t for temporary files."""
    (folder / "t").mkdir(exist_ok=True)
    (folder / "program.py").write_text(HELD.format(umask=umask, kind=kind))
    mark = f"{_MARK}={uuid.uuid4().hex}"
    process = subprocess.Popen(
        [*before, sys.executable, "program.py", *map(str, words)],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **env, _MARK: mark.partition("=")[2], "TMPDIR": str(folder / "t")},
    )
    try:
        deadline = time.monotonic() + 90
        while not (folder / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the cluster did not come up"
            time.sleep(0.02)
        yield Held(process, folder, mark)
    finally:
        process.kill()
        process.communicate()


def private_keys(folder: Path) -> list[Path]:
    """Files of a folder that hold a private key."""
    return [path for path in folder.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
