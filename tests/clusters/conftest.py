"""Small stores on disk, certificates, and the command as a process of its own, as on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from certificate_files import write_certificates
from dask_processes import dask
from support.processes import COMMAND, wait_until
from support.refusals import printed_error
from support.small_stores import save_stores

from reid_dist import FeatureSet, evaluate


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str

    @property
    def digest(self) -> str:
        assert self.code == 0, self.err
        return json.loads(self.out)["result_digest"]

    def assert_one_line(self, code: int, *words: str) -> None:
        """The command ended with one clear error."""
        assert self.code == code, self.err
        assert "Traceback" not in self.err
        # Lines before it are what Dask and SSH log; the last word is ours.
        error = printed_error(self.err)
        for word in words:
            assert word in error


@dataclass(frozen=True)
class Sets:
    """A query and a gallery store, and the answer to both."""

    query: Path
    gallery: Path
    digest: str


def _save_sets(folder: Path, n_query: int, n_gallery: int, dim: int) -> Sets:
    query, gallery = save_stores(folder, n_query, n_gallery, dim)
    return Sets(query, gallery, evaluate(FeatureSet.open(query), FeatureSet.open(gallery)).result_digest)


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    return _save_sets(tmp_path_factory.mktemp("sets"), 40, 200, 24)


@pytest.fixture(scope="session")
def larger_sets(tmp_path_factory: pytest.TempPathFactory) -> Sets:
    """Sets that take two workers some ten seconds in small tiles."""
    return _save_sets(tmp_path_factory.mktemp("larger-sets"), 600, 12_000, 64)


class Running:
    """The command while it runs."""

    def __init__(self, process: subprocess.Popen[str], output: Path) -> None:
        self._process = process
        self._output = output

    def await_partial_results(self, n: int = 3) -> None:
        """Wait until it is in the middle of its work: some tasks are done, and it has not ended."""
        deadline = time.monotonic() + 90
        while self.n_partial_results < n:
            assert self._process.poll() is None, self._process.communicate()[1]
            assert time.monotonic() < deadline, "no task was finished"
            time.sleep(0.02)

    @property
    def n_partial_results(self) -> int:
        return len(list((self._output / "workspace").rglob("sweep-*")))

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.send(signal.SIGINT)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self, timeout: float = 180) -> Ended:
        out, err = self._process.communicate(timeout=timeout)
        return Ended(self._process.returncode, out, err)


Start = Callable[..., Running]
Evaluate = Callable[..., Ended]


@pytest.fixture
def start_on(tmp_path: Path) -> Iterator[Start]:
    """Start to evaluate sets on the cluster of a file with this text."""
    with contextlib.ExitStack() as stack:

        def start(text: str, sets: Sets, *words: str, env: dict[str, str] | None = None) -> Running:
            path = tmp_path / "cluster.yaml"
            path.write_text(text)
            output = tmp_path / "output"
            options = [] if "--output" in words else ["--output", output]
            process = subprocess.Popen(
                [*COMMAND, "evaluate", sets.query, sets.gallery, "--cluster", path, "--json", *options, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=tmp_path,
                env={**os.environ, **(env or {})},
            )
            # Unless the test has failed it has ended by then.
            stack.callback(process.communicate)
            stack.callback(process.kill)
            return Running(process, output)

        yield start


@pytest.fixture
def evaluate_on(sets: Sets, start_on: Start) -> Evaluate:
    """Evaluate the small sets on the cluster of a file with this text."""

    def call(text: str, *words: str, env: dict[str, str] | None = None) -> Ended:
        return start_on(text, sets, *words, env=env).end()

    return call


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A scheduler without workers, whose address is in ``scheduler.json``."""
    file = tmp_path / "scheduler.json"
    with dask(tmp_path, "scheduler", "--port", "0") as process:
        # Dask writes into the file that it has made; the last character is the brace of the whole.
        wait_until(lambda: file.exists() and file.read_text().rstrip().endswith("}"), "the scheduler", 60)
        yield process


@pytest.fixture(scope="session")
def certificate_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, cert.pem and key.pem, and another authority's under ``other``."""
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    write_certificates(folder / "other")
    return folder
