"""Evaluation of drawn galleries that is killed: what is finished is kept, and the rest gives the undisturbed report."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from disturbed_runs import begun, command, save_sets

pytestmark = pytest.mark.slow

N_SPLITS = 12

_PROGRAM = """
import time
from reid_dist.evaluation import splits

def noted(*sides, real=splits.evaluate_once, **options):
    with open("begun", "a") as file:
        file.write("split\\n")
    time.sleep(0.2)
    return real(*sides, **options)

splits.evaluate_once = noted
from reid_dist.cli import main
main()
"""
_WORDS = ("splits", "query.zarr", "gallery.zarr", "--cluster", "threads.yaml", "--seed", 3, "--json")


def finished(folder: Path) -> list[Path]:
    return sorted((folder / "out" / "workspace").glob("sweep-*/splits-*/split-*.npz"))


def test_killed_splits_go_on_where_they_were(tmp_path: Path) -> None:
    save_sets(tmp_path)
    words = (*_WORDS, "--repeats", N_SPLITS)
    with command(tmp_path, *words) as run:
        expected = run.report()
    with command(tmp_path, *words, "--output", "out", program=_PROGRAM) as run:
        run.wait_until(lambda: len(finished(tmp_path)) >= 3, "three splits")
        run.process.send_signal(signal.SIGKILL)
        run.end()
    n_kept, n_begun = len(finished(tmp_path)), len(begun(tmp_path))
    assert 3 <= n_kept < N_SPLITS
    assert not (tmp_path / "out" / "splits.json").exists()

    with command(tmp_path, *words, "--output", "out") as refused:
        assert "not empty" in refused.error(2)
    other = (*_WORDS, "--repeats", N_SPLITS - 1, "--output", "out", "--resume")
    with command(tmp_path, *other) as refused:
        assert "unfinished run of another job (different draw)" in refused.error(2)

    with command(tmp_path, *words, "--output", "out", "--resume", program=_PROGRAM) as resumed:
        shown = resumed.report()
    assert len(begun(tmp_path)) - n_begun == N_SPLITS - n_kept
    apart = ("timing", "environment", "run", "document_digest")
    assert {name: each for name, each in shown.items() if name not in apart} == {
        name: each for name, each in expected.items() if name not in apart
    }
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["splits.html", "splits.json"]
    with command(tmp_path, *words, "--output", "out", "--resume", program=_PROGRAM) as again:
        assert again.report() == shown
    assert len(begun(tmp_path)) - n_begun == N_SPLITS - n_kept
