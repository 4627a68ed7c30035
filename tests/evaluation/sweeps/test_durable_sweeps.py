"""What is finished of a sweep outlives the run: it is written as it comes, found by the next run, and then removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.passes import Count

import reid_dist.engine.tasks as tasks
from reid_dist import FeatureSet, evaluate
from reid_dist.core.model import Neighbours
from reid_dist.errors import DamagedStoreError
from reid_dist.stores.archive import decode, encode

EVERYTHING: dict[str, Any] = {
    "metrics": ["mAP", "CMC_single_shot@2", "TAR@FAR=0.01", "EER"],
    "topk": 5,
    "ties": True,
    "breakdowns": ["camera_pair", "gallery_size"],
    "chunk_rows": 16,
}


def sets(seed: int = 0) -> tuple[FeatureSet, FeatureSet]:
    rng = np.random.default_rng(seed)
    query, gallery = (
        FeatureSet.from_arrays(
            rng.standard_normal((n, 8)).astype(np.float32), rng.integers(0, 5, n), rng.integers(0, 3, n)
        )
        for n in (60, 900)
    )
    return query, gallery


def finished(workspace: Path) -> list[Path]:
    return sorted(workspace.glob("partials-*/*.npz"))


@pytest.mark.slow
@pytest.mark.parametrize("n_done", [1, 6])
def test_a_run_goes_on_where_another_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_done: int
) -> None:
    pair = sets()
    expected = evaluate(*pair, **EVERYTHING)
    real = tasks.tile_task

    def failing(*arguments: Any) -> Any:
        # Counted in files: another thread starts its tile before the first one is written.
        if len(finished(tmp_path)) >= n_done:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(tasks, "tile_task", failing)
    with pytest.raises(KeyboardInterrupt):
        evaluate(*pair, workspace=tmp_path, **EVERYTHING)
    left = finished(tmp_path)
    assert len(left) >= n_done
    times = {part.name: part.stat().st_mtime_ns for part in left}

    monkeypatch.setattr(tasks, "tile_task", real)
    # Another job finds nothing of it, and a job that is cut otherwise finds all of it.
    other = Count()
    evaluate(*pair, workspace=tmp_path, progress=other, **{**EVERYTHING, "topk": 4})
    assert {part.name: part.stat().st_mtime_ns for part in finished(tmp_path)} == times
    watched = Count()
    again = evaluate(*pair, workspace=tmp_path, progress=watched, **{**EVERYTHING, "chunk_rows": 7})
    assert watched.passes[0]["sweep"] == other.passes[0]["sweep"] - len(left)
    assert again.result_digest == expected.result_digest
    assert (again.ties, again.breakdowns) == (expected.ties, expected.breakdowns)
    assert not finished(tmp_path)


def test_values_come_back_as_they_went() -> None:
    neighbours = Neighbours(np.array([[1, -1]]), np.array([[0.5, np.inf]]))
    value = {"a": {0: (1, None, "x", True, 2.5, float("inf"))}, "b": [neighbours, np.float32(1.5)]}
    back = decode(encode(value), (Neighbours,))
    assert back["a"] == value["a"]
    assert (back["b"][0].index == neighbours.index).all()
    assert (back["b"][0].distance == neighbours.distance).all()
    assert back["b"][0].junk is None
    assert back["b"][1] == 1.5


def test_classes_that_are_not_listed_are_not_made() -> None:
    arrays = encode(Neighbours(np.zeros((1, 1), int), np.zeros((1, 1))))
    with pytest.raises(DamagedStoreError, match="Neighbours"):
        decode(arrays, ())
    with pytest.raises(TypeError, match="object"):
        encode(object())
