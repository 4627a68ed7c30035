"""``reid-dist pool`` as users call it: files in, a store out, one clear line for a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate, pool


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


def test_junk_is_no_identity(reid_dist, tmp_path: Path) -> None:
    features = np.eye(4, dtype=np.float32)
    FeatureSet.from_arrays(features, [-1, -1, 2, 3], columns={"tracklet": [0, 0, 1, 2]}).save(tmp_path / "a.zarr")
    done = reid_dist("pool", tmp_path / "a.zarr", "--output", tmp_path / "out.zarr")
    assert "3 x 4 float32, of 4 rows, 2 identities" in done.out
    assert "identities: 2 " in reid_dist("check", tmp_path / "out.zarr").out


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


def test_a_pooled_store_is_sharded_and_replaced_on_request(reid_dist, frames, tmp_path: Path) -> None:
    target = tmp_path / "pooled.zarr"
    words = ("pool", frames, "--output", target, "--chunk-rows", 7, "--shard-rows", 20)
    assert reid_dist(*words).code == 0
    # A shard holds as many whole chunks as fit.
    layout = json.loads((target / "features" / "zarr.json").read_text())["chunk_grid"]
    assert layout["configuration"]["chunk_shape"] == [14, 12]
    before = FeatureSet.open(target).content_digest
    reid_dist(*words, "--method", "max").assert_refused("complete store already", "--overwrite")
    assert FeatureSet.open(target).content_digest == before
    assert reid_dist(*words, "--method", "max", "--overwrite").code == 0
    assert FeatureSet.open(target).content_digest != before


def test_pooled_tracklets_are_evaluated(reid_dist, frames, threads, tmp_path: Path) -> None:
    """Pooled by a process of its own, evaluated by the command."""
    target = tmp_path / "pooled.zarr"
    words = [sys.executable, "-m", "reid_dist.cli", "pool", str(frames), "--output", str(target)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    answer = reid_dist("evaluate", target, target, "--cluster", threads, "--json")
    document = json.loads(answer.out)
    assert document["counts"]["n_query"] == 60
    pooled = FeatureSet.open(target)
    assert document["result_digest"] == evaluate(pooled, pooled).result_digest


def test_a_file_is_a_source(reid_dist, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    np.savez(
        tmp_path / "frames.npz", features=rng.standard_normal((20, 4)).astype(np.float32), pids=np.repeat([1, 2], 10),
        camids=np.tile([1, 2], 10), tracklets=np.repeat([1, 2], 10) * 10 + np.tile([1, 2], 10),
    )  # fmt: skip
    done = reid_dist("pool", tmp_path / "frames.npz", "--output", tmp_path / "out.zarr")
    assert done.code == 0, done.err
    assert FeatureSet.open(tmp_path / "out.zarr").item_ids.tolist() == [11, 12, 21, 22]


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--by", "tracklett"), ("unknown label to pool by 'tracklett'", "did you mean 'tracklet'")),
        (("--by", "item_id"), ("no item ids",)),
        (("--method", "men"), ("unknown pooling method 'men'", "did you mean 'mean'")),
        (("--chunk-rows", "0"), ("--chunk-rows",)),
        (("--chunk-rows", "9", "--shard-rows", "8"), ("--shard-rows 8", "below --chunk-rows 9")),
        (("--dtype", "int8"), ("--dtype",)),
    ],
)
def test_mistakes_are_reported_in_one_line(reid_dist, frames, tmp_path: Path, words, parts) -> None:
    reid_dist("pool", frames, "--output", tmp_path / "out.zarr", *words).assert_refused(*parts)
    assert not (tmp_path / "out.zarr").exists()


def test_labels_that_do_not_fit_are_named(reid_dist, tmp_path: Path) -> None:
    features, tracklets = np.eye(4, dtype=np.float32), {"tracklet": [7, 7, 8, 8]}
    FeatureSet.from_arrays(features, [1, 1, 2, 3], [1, 2, 1, 1], columns=tracklets).save(tmp_path / "pids.zarr")
    FeatureSet.from_arrays(features, [1, 1, 2, 2], [1, 2, 1, 1], columns=tracklets).save(tmp_path / "camids.zarr")
    reid_dist("pool", tmp_path / "pids.zarr", "--output", tmp_path / "out.zarr").assert_refused(
        "tracklet 8 holds several identities: pid 2 in row 2 and pid 3 in row 3"
    )
    reid_dist("pool", tmp_path / "camids.zarr", "--output", tmp_path / "out.zarr").assert_refused("--drop-camids")
    assert reid_dist("pool", tmp_path / "camids.zarr", "--output", tmp_path / "out.zarr", "--drop-camids").code == 0
    assert "is a complete store already" in reid_dist(
        "pool", tmp_path / "camids.zarr", "--output", tmp_path / "out.zarr", "--drop-camids"
    ).err  # fmt: skip
