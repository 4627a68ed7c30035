"""Stages of a workspace and their parts: what is read is what was written, and of the same stage."""

from __future__ import annotations

import math
import pickle
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from reid_dist.errors import DamagedPartError
from reid_dist.stores import Workspace
from reid_dist.stores.workspace import read_record, write_record


def test_a_stage_that_another_run_removes_meanwhile_is_begun_again(tmp_path, monkeypatch):
    replace, struck = Path.replace, []

    def removed_before(draft, target):
        if not struck:
            struck.append(target)
            shutil.rmtree(draft.parent)
        return replace(draft, target)

    monkeypatch.setattr(Path, "replace", removed_before)
    stage = Workspace(str(tmp_path / "parts")).stage("thing", [1], {"rows": 5})
    assert struck
    assert stage.description["rows"] == 5


def test_a_description_of_another_version_is_not_read(tmp_path):
    """Two runs that began one stage with other descriptions: what one of them wrote is not the other's."""
    first = Workspace(str(tmp_path / "one")).stage("thing", [1], {"rows": 5})
    other = Workspace(str(tmp_path / "two")).stage("thing", [1], {"rows": 6})
    assert first.description["rows"] == 5
    shutil.copy(Path(other.path) / "stage.json", Path(first.path) / "stage.json")
    with pytest.raises(DamagedPartError, match="missing or not what was written"):
        first.description  # noqa: B018


def test_a_description_that_was_edited_is_not_read(tmp_path):
    stage = Workspace(str(tmp_path)).stage("thing", [1], {"rows": 5})
    file = Path(stage.path) / "stage.json"
    file.write_text(file.read_text().replace('"rows": 5', '"rows": 6'))
    assert Workspace(str(tmp_path)).stages("thing") == []
    with pytest.raises(DamagedPartError, match="missing or not what was written"):
        stage.description  # noqa: B018
    assert Workspace(str(tmp_path)).stage("thing", [1], {"rows": 7}).description["rows"] == 7


def test_records_are_what_was_written(tmp_path):
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    warnings = []
    assert read_record(stage, "values", warnings.append) is None
    write_record(stage, "values", {"mAP": 0.1 + 0.2, "none": None, "infinite": -math.inf, "names": ["a"]})
    found = read_record(stage, "values", warnings.append)
    assert found == {"mAP": 0.30000000000000004, "none": None, "infinite": -math.inf, "names": ["a"]}
    assert warnings == []
    (Path(stage.path) / "values.npz").write_bytes(b"PK")
    assert read_record(stage, "values", warnings.append) is None
    (warning,) = warnings
    assert re.fullmatch(r".*values\.npz is damaged \(.*\): made again", warning)


def test_foreign_parts_are_counted_and_removed(tmp_path):
    """A part that was copied from another stage, and one that cannot be read, make room for the stage's own."""
    stage, other = (Workspace(str(tmp_path / name)).stage("thing", [1], {"n": name}) for name in ("one", "two"))
    for part in ("own", "foreign", "damaged"):
        stage.write(part, {"one": np.arange(9)})
        other.write(part, {"one": np.arange(9)})
    shutil.copy(Path(other.path) / "foreign.npz", Path(stage.path) / "foreign.npz")
    (Path(stage.path) / "damaged.npz").write_bytes(b"PK")
    assert stage.remove_foreign_parts() == 2
    assert sorted(stage.done()) == ["own"]
    assert stage.remove_foreign_parts() == 0


def test_a_half_written_part_is_never_seen(tmp_path, monkeypatch):
    """Whoever is killed before the file has its name leaves no part, and the next one writes it."""
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        stage.write("part", {"one": np.arange(9)})
    monkeypatch.undo()
    assert not stage.has("part")
    assert Workspace(str(tmp_path)).stages("thing") == [stage]
    stage.write("part", {"one": np.arange(9)})
    np.testing.assert_array_equal(stage.read("part", "one")["one"], np.arange(9))


def test_the_error_of_a_part_travels(tmp_path):
    """From a worker to the client, with what it takes to make the part again."""
    stage = Workspace(str(tmp_path)).stage("thing", [1], {})
    with pytest.raises(DamagedPartError, match=r"part\.npz is missing; the workspace must be a place") as caught:
        stage.read("part")
    travelled = pickle.loads(pickle.dumps(caught.value))
    assert (str(travelled), travelled.place, travelled.part) == (str(caught.value), stage.path, "part")
