"""``reid-dist pool`` as users call it: files in, a store out, one clear line for a mistake."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, pool
from reid_dist.errors import RunFailedError
from reid_dist.stages import row_groups
from reid_dist.stages.pooling_job import Pooled
from reid_dist.stores import FeatureWriter


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A store of the frames of 60 tracklets, some of them several chunks apart."""
    rng = np.random.default_rng(3)
    tracklets = np.sort(rng.integers(0, 60, 900))
    tracklets[::17] = rng.integers(0, 60, len(tracklets[::17]))
    features = (rng.standard_normal((60, 12))[tracklets] + rng.standard_normal((900, 12))).astype(np.float32)
    frames = FeatureSet.from_arrays(features, tracklets // 4, tracklets % 3, columns={"tracklet": tracklets})
    frames.save(tmp_path / "frames.zarr", chunk_rows=64)
    return tmp_path / "frames.zarr"


def test_pool_writes_the_store_that_python_writes(reid_dist, frames, tmp_path: Path) -> None:
    done = reid_dist("pool", frames, "--output", tmp_path / "pooled.zarr")
    assert done.code == 0, done.err
    expected = pool(FeatureSet.open(frames), tmp_path / "expected.zarr")
    assert FeatureSet.open(tmp_path / "pooled.zarr").content_digest == expected.content_digest
    assert "60 x 12 float32, of 900 rows, 15 identities" in done.out
    assert "note: pooled by tracklet: mean of 900 rows into 60, scaled to length 1" in done.out
    assert f"{tmp_path / 'pooled.zarr'}: 900/900 rows" in done.err
    assert reid_dist("check", tmp_path / "pooled.zarr").code == 0


def test_every_option_reaches_the_pooling(reid_dist, frames, tmp_path: Path) -> None:
    words = ("--by", "pid_camid", "--method", "max", "--normalise-rows", "--no-normalise", "--dtype", "float16")
    done = reid_dist("pool", frames, "--output", tmp_path / "a", *words, "--chunk-rows", 7, "--drop-camids")
    assert done.code == 0, done.err
    expected = pool(
        FeatureSet.open(frames), tmp_path / "b", by="pid_camid", method="max", normalise_rows=True, normalise=False,
        dtype="float16", camids="drop",
    )  # fmt: skip
    found = FeatureSet.open(tmp_path / "a")
    assert found.content_digest == expected.content_digest
    assert found.chunk_rows == 7


def test_a_file_is_a_source(reid_dist, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "frames.npz", features=rng.standard_normal((20, 4)).astype(np.float32), pids=np.repeat([1, 2], 10),
        camids=np.tile([1, 2], 10), tracklets=np.repeat([1, 2], 10) * 10 + np.tile([1, 2], 10),
    )  # fmt: skip
    done = reid_dist("pool", tmp_path / "frames.npz", "--output", tmp_path / "out.zarr")
    assert done.code == 0, done.err
    assert FeatureSet.open(tmp_path / "out.zarr").item_ids.tolist() == [11, 12, 21, 22]


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--by", "tracklett"), ("unknown label to pool by 'tracklett'", "did you mean 'tracklet'")),
        (("--by", "item_id"), ("no item ids",)),
        (("--method", "men"), ("unknown pooling method 'men'", "did you mean 'mean'")),
        (("--chunk-rows", "0"), ("--chunk-rows",)),
        (("--dtype", "int8"), ("int8",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, frames, tmp_path: Path, words, parts) -> None:
    reid_dist("pool", frames, "--output", tmp_path / "out.zarr", *words).assert_refused(*parts)
    assert not (tmp_path / "out.zarr").exists()


# ---- cluster, workspace and resumption -------------------------------------------------------------------------------


@pytest.fixture
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some 90 of the 900 rows."""
    monkeypatch.setattr(row_groups, "_LEAST_BYTES", 4 * 12 * 90)
    monkeypatch.setattr(row_groups, "_MOST_BYTES", 4 * 12 * 90)
    monkeypatch.setattr(row_groups, "_READ_AGAIN", 10.0)


def broken_run(reid_dist, monkeypatch: pytest.MonkeyPatch, *words: object) -> str:
    """Run a command whose third task fails, and return the error."""
    calls = itertools.count()

    def compute(*given, real=Pooled.compute):
        if next(calls) >= 2:
            raise RunFailedError("the disk is gone")
        return real(*given)

    with monkeypatch.context() as patched:
        patched.setattr(Pooled, "compute", compute)
        return reid_dist(*words).assert_refused("the disk is gone", code=3)


def test_a_broken_run_is_resumed(reid_dist, short_blocks, frames, threads, tmp_path: Path, monkeypatch) -> None:
    target, left = tmp_path / "pooled.zarr", tmp_path / "pooled.zarr.unfinished"
    words = ("pool", frames, "--output", target, "--cluster", threads)
    whole = reid_dist("pool", frames, "--output", tmp_path / "whole.zarr", "--cluster", threads)
    error = broken_run(reid_dist, monkeypatch, *words)
    assert f"what is finished is kept in {left}/workspace: the same command with --resume goes on from there" in error
    assert not target.exists()
    assert len([*left.glob("workspace/pooled-*/rows-*.npz")]) >= 2
    reid_dist(*words).assert_refused(f"{target} is unfinished", "--resume to continue", "--overwrite")
    reid_dist(*words, "--resume", "--method", "max").assert_refused("unfinished run of another job (different method)")
    done = reid_dist(*words, "--resume")
    assert done.code == 0, done.err
    assert done.out.replace("pooled.zarr", "whole.zarr") == whole.out
    # The rows of finished blocks are not read again.
    (total,) = {int(shown) for shown in re.findall(r"pooled.zarr: \d+/(\d+) rows", done.err)}
    (all_rows,) = {int(shown) for shown in re.findall(r"whole.zarr: \d+/(\d+) rows", whole.err)}
    assert total < all_rows
    assert sorted(path.name for path in tmp_path.glob("*.zarr*")) == ["frames.zarr", "pooled.zarr", "whole.zarr"]


def test_a_finished_store_is_kept_and_another_one_is_refused(reid_dist, frames, tmp_path: Path, monkeypatch) -> None:
    target = tmp_path / "pooled.zarr"
    words = ("pool", frames, "--output", target, "--resume")
    # Nothing is there yet.
    first = reid_dist(*words)
    assert first.code == 0, first.err
    files = {path: path.stat().st_mtime_ns for path in target.rglob("*")}
    monkeypatch.setattr(Pooled, "compute", None)
    again = reid_dist(*words)
    assert (again.code, again.out) == (0, first.out)
    for more, name in (
        (("--method", "max"), "method"),
        (("--no-normalise",), "normalise"),
        (("--allow-zero",), "allow_zero"),
        (("--dtype", "float16"), "dtype"),
        (("--chunk-rows", 7), "chunk_rows"),
        (("--drop-camids",), "camids"),
    ):
        reid_dist(*words, *more).assert_refused(
            f"{target} holds another store (different {name}); choose another --output"
        )
    reid_dist("pool", frames, "--output", frames, "--resume").assert_refused(f"{frames} holds another store")
    assert {path: path.stat().st_mtime_ns for path in target.rglob("*")} == files
    assert [path.name for path in tmp_path.iterdir() if "unfinished" in path.name] == []


@pytest.mark.slow
def test_a_broken_replacement_keeps_the_store_and_is_resumed(
    reid_dist, short_blocks, frames, tmp_path: Path, monkeypatch
) -> None:
    target = tmp_path / "pooled.zarr"
    assert reid_dist("pool", frames, "--output", target).code == 0
    before = FeatureSet.open(target).content_digest
    words = ("pool", frames, "--output", target, "--method", "max", "--overwrite")
    broken_run(reid_dist, monkeypatch, *words)
    assert FeatureSet.open(target).content_digest == before
    resumed = reid_dist(*words, "--resume")
    assert resumed.code == 0, resumed.err
    expected = pool(FeatureSet.open(frames), tmp_path / "expected.zarr", method="max").content_digest
    assert FeatureSet.open(target).content_digest == expected
    # Without --resume, --overwrite begins again, whatever the earlier run was.
    broken_run(reid_dist, monkeypatch, *words)
    assert reid_dist("pool", frames, "--output", target, "--overwrite").code == 0
    assert FeatureSet.open(target).content_digest == before
    assert sorted(path.name for path in tmp_path.glob("pooled*")) == ["pooled.zarr"]


def test_a_workspace_of_ones_own(reid_dist, short_blocks, frames, tmp_path: Path, monkeypatch) -> None:
    work = tmp_path / "work"
    words = ("pool", frames, "--output", tmp_path / "pooled.zarr", "--workspace", work)
    assert f"kept in {work}" in broken_run(reid_dist, monkeypatch, *words)
    assert len([*work.glob("pooled-*/rows-*.npz")]) >= 2
    done = reid_dist(*words)
    assert done.code == 0, done.err
    assert list(work.iterdir()) == []
    assert sorted(path.name for path in tmp_path.glob("pooled*")) == ["pooled.zarr"]


@pytest.mark.slow
def test_a_local_cluster_and_events(frames, tmp_path: Path) -> None:
    """By a process of its own, since workers are processes."""
    words = ["pool", str(frames), "--output", str(tmp_path / "pooled.zarr"), "--workers", "1", "--log-json"]
    command = [sys.executable, "-m", "reid_dist.cli", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    expected = pool(FeatureSet.open(frames), tmp_path / "expected.zarr")
    assert FeatureSet.open(tmp_path / "pooled.zarr").content_digest == expected.content_digest
    events = [json.loads(line) for line in done.stderr.splitlines()]
    (last,) = (each for each in events if each["event"] == "stage_done")
    assert (last["done"], last["total"], last["unit"]) == (900, 900, "rows")


def test_a_performance_report_needs_a_cluster(reid_dist, frames, tmp_path: Path) -> None:
    words = ("--performance-report", tmp_path / "page.html")
    reid_dist("pool", frames, "--output", tmp_path / "out.zarr", *words).assert_refused("threads of this process")
    assert [path.name for path in tmp_path.iterdir()] == ["frames.zarr"]


@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_a_store_that_another_process_writes(reid_dist, frames, tmp_path: Path, more: tuple[str, ...]) -> None:
    target, part = tmp_path / "pooled.zarr", tmp_path / "pooled.zarr.unfinished" / "workspace" / "part"
    part.parent.mkdir(parents=True)
    part.touch()
    with FeatureWriter(target, dim=2) as writer:
        line = reid_dist("pool", frames, "--output", target, *more).assert_refused("is being written by process")
        assert f"process {os.getpid()} on" in line
        assert part.exists()
        writer.append([[1, 2]], pids=[1])
