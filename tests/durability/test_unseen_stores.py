"""Stores and workspaces visible to the client only: one clear line before any work.

Below ``/proc/self/cwd`` every process has a folder of its own, as machines without a shared file system have.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from disturbed_runs import cluster_of_processes, command, save_sets, undisturbed

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")]

_HERE = "/proc/self/cwd"


def test_what_workers_cannot_see(tmp_path: Path) -> None:
    """Of several commands, for the cluster takes its time to start."""
    mine, theirs = tmp_path / "client", tmp_path / "workers"
    for folder in (mine, theirs):
        folder.mkdir()
    save_sets(mine)
    save_sets(theirs, n_gallery=800)
    (theirs / "gallery.zarr").rename(theirs / "other.zarr")
    shutil.copytree(mine / "gallery.zarr", mine / "only-here.zarr")
    (tmp_path / "empty.py").touch()
    with cluster_of_processes(theirs) as processes:
        processes.start(preload=tmp_path / "empty.py")
        cluster = ("--cluster", theirs / "cluster.yaml")
        for words, message in (
            (
                ("evaluate", "query.zarr", f"{_HERE}/only-here.zarr"),
                ("no such", "only-here.zarr", "same path"),
            ),
            (
                ("sweep", "query.zarr", f"{_HERE}/only-here.zarr", "--expand", "aqe", "--k", "1"),
                ("no such",),
            ),
            (("evaluate", "query.zarr", "gallery.zarr", "--workspace", f"{_HERE}/work"), (f"workspace {_HERE}/work",)),
        ):
            with command(mine, *words, *cluster) as run:
                error = run.error(2)
            assert "cannot read the " in error
            assert all(part in error for part in message), error
        assert not list((mine / "work").iterdir())
        # Another store under the same name is not taken for it.
        (theirs / "other.zarr").rename(theirs / "gallery.zarr")
        with command(mine, "evaluate", f"{_HERE}/query.zarr", f"{_HERE}/gallery.zarr", *cluster) as run:
            assert "holds something else there" in run.error(2)
        with command(mine, "evaluate", "query.zarr", "gallery.zarr", "--json", *cluster) as run:
            assert run.report()["result_digest"] == undisturbed(mine)
