"""A scheduler and workers as processes of `dask`, on loopback."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from support.local_workers import dask_words


@contextlib.contextmanager
def dask(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Dask on loopback; a scheduler writes ``scheduler.json``."""
    local = dask_words(folder / "scheduler.json")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(
        [sys.executable, "-m", "dask", *words, *local], cwd=folder, env={**os.environ, **(env or {})}, **quiet
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
