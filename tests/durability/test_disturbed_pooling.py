"""Pooling that is killed or ended by a signal: what is finished is kept, and the rest gives the undisturbed store."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
from disturbed_runs import begun, command

from reid_dist import FeatureSet, pool
from reid_dist.errors import StoreError

pytestmark = pytest.mark.slow

N_BLOCKS = 12

# Every block of 50 rows takes a moment and is noted.
_PROGRAM = """
import time
from reid_dist.stages import row_groups
from reid_dist.stages.pooling_job import Pooled

row_groups._LEAST_BYTES = row_groups._MOST_BYTES = 4 * 8 * 50
row_groups._READ_AGAIN = 100.0

def noted(*given, real=Pooled.compute):
    with open("begun", "a") as file:
        file.write("block\\n")
    time.sleep(0.3)
    return real(*given)

Pooled.compute = noted
from reid_dist.cli import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Frames of 60 tracklets of 10 rows, in a row, and the cluster file of this process."""
    tracklets = np.arange(600) // 10
    features = np.random.default_rng(7).standard_normal((600, 8)).astype(np.float32)
    frames = FeatureSet.from_arrays(features, tracklets // 3, tracklets % 4, columns={"tracklet": tracklets})
    frames.save(tmp_path / "frames.zarr", chunk_rows=10)
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    return tmp_path


def finished(folder: Path) -> list[Path]:
    return sorted(folder.glob("out.zarr.unfinished/workspace/pooled-*/rows-*.npz"))


@pytest.mark.parametrize("on", [("--cluster", "threads.yaml"), ("--workers", "2")], ids=["threads", "local"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_pooling_goes_on_where_it_was(folder: Path, number: signal.Signals, on: tuple[str, ...]) -> None:
    expected = pool(folder / "frames.zarr", folder / "expected.zarr").content_digest
    words = ("pool", "frames.zarr", "--output", "out.zarr")
    # What this process ignores, as one in the background may, the command would ignore.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with command(folder, *words, "--cluster", "threads.yaml", program=_PROGRAM) as run:
        run.wait_until(lambda: len(finished(folder)) >= 3, "three blocks")
        run.process.send_signal(number)
        code = run.end()
        shown = run.err
    n_kept, n_begun = len(finished(folder)), len(begun(folder))
    assert 3 <= n_kept < N_BLOCKS
    with pytest.raises(StoreError):
        FeatureSet.open(folder / "out.zarr")
    if number != signal.SIGKILL:
        assert code == 128 + number
        line = shown.splitlines()[-1]
        assert line.startswith("Interrupted; " if number == signal.SIGINT else "Ended by SIGTERM; ")
        assert line.endswith("out.zarr.unfinished/workspace: the same command with --resume goes on from there")
        assert "Traceback" not in shown

    with command(folder, *words) as refused:
        assert "is unfinished" in refused.error(2)
    with command(folder, *words, *on, "--resume", program=_PROGRAM) as resumed:
        assert resumed.end() == 0, resumed.err
    if "--workers" not in on:
        # Workers load the tasks as they are.
        assert len(begun(folder)) - n_begun == N_BLOCKS - n_kept
    assert FeatureSet.open(folder / "out.zarr").content_digest == expected
    assert sorted(path.name for path in folder.glob("out*")) == ["out.zarr"]
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
