"""A workspace on a disk that is full, or becomes so."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path

import numpy as np
import pytest
from workspace_runs import run, stamps

from reid_dist.core.temporary import DRAFT_NAME
from reid_dist.errors import StoreError
from reid_dist.stores import Workspace


class FullDisk:
    """A file on a disk that takes some bytes of a part and no more."""

    def __init__(self, file, is_full):
        self._file, self._is_full = file, is_full

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def write(self, content):
        # A part is an archive; the description of its stage is none.
        if bytes(content[:2]) == b"PK" and self._is_full():
            self._file.write(bytes(content[:100]))
            raise OSError(28, "No space left on device")
        self._file.write(content)


@pytest.fixture
def full_disk(monkeypatch):
    """Let every write break off once some parts have been written."""
    opened = Path.open
    left = {"parts": 0}
    # One step, as several threads write at once.
    written = itertools.count()

    def open_file(self, mode="r", *arguments, **options):
        file = opened(self, mode, *arguments, **options)
        if mode != "wb" or not DRAFT_NAME.fullmatch(self.name):
            return file
        return FullDisk(file, lambda: next(written) >= left["parts"])

    monkeypatch.setattr(Path, "open", open_file)
    return left


def test_a_full_disk(tmp_path, full_disk):
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    with pytest.raises(StoreError, match=r"^cannot write .*part\.npz in the workspace: No space left.*--workspace$"):
        stage.write("part", {"one": np.arange(999)})
    assert [file.name for file in Path(stage.path).iterdir()] == ["stage.json"]


def test_the_error_of_a_full_disk_is_collected(tmp_path, full_disk):
    """With all that its frames refer to; what Python cannot collect, it reports, or it ends there."""
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    errors = []
    for _ in range(3):
        with pytest.raises(StoreError) as caught:
            stage.write("part", {"one": np.arange(999)})
        errors.append(caught.value)
        # A cycle, as of errors that are raised again by another thread.
        caught.value.errors = errors
    del caught, errors
    assert gc.collect() > 0


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("parts", [0, 4, 12])
def test_a_disk_that_fills_up_on_the_way(sets, tmp_path, full_disk, monkeypatch, parts, expected):
    """One clear message, nothing half-written, and the next run goes on from there."""
    full_disk["parts"] = parts
    with pytest.raises(StoreError, match="No space left on device; make room or choose another --workspace"):
        run(sets, tmp_path)
    files = [file.name for file in tmp_path.rglob("*") if file.is_file()]
    assert all(name == "stage.json" or name.endswith(".npz") for name in files), files
    assert sum(name.endswith(".npz") for name in files) <= parts
    monkeypatch.undo()
    before = stamps(tmp_path)
    assert run(sets, tmp_path).result_digest == expected
    after = stamps(tmp_path)
    assert all(after[name] == before[name] for name in before if name in after)


def test_a_workspace_that_cannot_be_written(sets, tmp_path):
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(StoreError, match=r"cannot write .* in the workspace"):
        run(sets, tmp_path / "file")
