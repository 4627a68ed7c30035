"""Limits of the system that leave no room for local workers: one line that names the limit."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from reid_dist.clusters import LocalCluster, connect


def _limited() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


@pytest.mark.slow
def test_few_open_files(sets, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "reid_dist.cli", "evaluate", sets.query, sets.gallery, "--workers", "2"]
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, timeout=60, preexec_fn=_limited, cwd=tmp_path, check=False
    )
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: 2 local workers need some 72 open files, and the limit of this process is 32")
    assert "ulimit -n 1024" in line


def test_what_is_asked_for_is_enough() -> None:
    """Files that are open before any work, of this process with one worker."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    with connect(LocalCluster(kind="local", workers=1, threads_per_worker=1)):
        opened = len(list(Path("/proc/self/fd").iterdir())) - before
    assert opened < 56
