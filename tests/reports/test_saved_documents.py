"""Reports, sweeps and splits as JSON: whatever is changed in the file, but for the timing, is found when it is read."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_report import every_field
from support.strategies import crowded_sets

from reid_dist import FeatureSet, evaluate_splits, sweep_parameters
from reid_dist.core.findings import info
from reid_dist.errors import DamagedStoreError, IncompleteStoreError, ReidDistError, StoreError
from reid_dist.evaluation.splits import SplitReport
from reid_dist.evaluation.sweeps import SweepReport
from reid_dist.reports import Report
from reid_dist.reports.documents import DIGEST

Loader = Callable[[Path], Any]
Path_ = tuple[str | int, ...]


@pytest.fixture
def saved(made: dict[str, tuple[Path, Loader]], tmp_path: Path) -> dict[str, tuple[Path, Loader]]:
    """Copies that a test may harm."""
    copies = {}
    for kind, (file, load) in made.items():
        shutil.copytree(file.parent, tmp_path / kind)
        copies[kind] = tmp_path / kind / file.name, load
    return copies


@pytest.fixture(scope="session")
def made(
    tmp_path_factory: pytest.TempPathFactory, make_report: Callable[..., Report]
) -> dict[str, tuple[Path, Loader]]:
    """One of each kind, with the file and what reads it."""
    place = tmp_path_factory.mktemp("saved")
    sets = [
        FeatureSet.from_arrays(each.features, each.pids, camids=each.camids, item_ids=each.item_ids)
        for each in crowded_sets(12, 60, 6, seed=41, n_distinct=30)
    ]
    small = make_report(n_query=40, n_invalid=3, k=4)
    replace(small, **every_field(small, place / "images")).save(place / "report")
    sweep_parameters(*sets, expand="aqe", k="0:1", metrics=["mAP", "CMC@1"]).save(place / "sweep")
    evaluate_splits(*sets, repeats=2, metrics=["mAP"], protocol="no_cameras").save(place / "splits")
    return {
        "report": (place / "report" / "report.json", Report.load),
        "sweep": (place / "sweep" / "sweep.json", SweepReport.load),
        "splits": (place / "splits" / "splits.json", SplitReport.load),
    }


def paths(value: Any, here: Path_ = ()) -> Iterator[Path_]:
    """Every place in a document: its leaves, and its mappings and lists themselves."""
    if here:
        yield here
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield from paths(value[key], (*here, key))


def changed(value: Any) -> Any:
    """Another value of the same kind, or of another kind for what holds others."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case float():
            return float(np.nextafter(value, 2.0))
        case str():
            return f"{value}x" if not value else value[:-1] + chr(ord(value[-1]) ^ 1)
        case None:
            return 0
        case _:
            return 5


def with_change(document: dict[str, Any], path: Path_) -> dict[str, Any]:
    made = copy.deepcopy(document)
    inner: Any = made
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = changed(inner[path[-1]])
    return made


KINDS = pytest.mark.parametrize("kind", ["report", "sweep", "splits"])


@KINDS
@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 300 + "1" + "}" * 300])
def test_a_document_of_very_many_levels(
    saved: dict[str, tuple[Path, Loader]], kind: str, text: str, reid_dist: Any
) -> None:
    """Deeper than the interpreter reads, and deeper than anything that walks through it could go."""
    file, load = saved[kind]
    file.write_text(text)
    with pytest.raises(DamagedStoreError, match="cannot be decoded: it is nested too deeply"):
        load(file.parent)
    reid_dist("report", file.parent).assert_refused("nested too deeply")


@pytest.mark.timeout(20)
@KINDS
def test_a_document_that_is_a_pipe(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    file.unlink()
    os.mkfifo(file)
    with pytest.raises(StoreError, match="is a pipe and no file"):
        load(file.parent)


@pytest.mark.quick_cases(2)
@KINDS
def test_every_change_but_of_the_timing_is_found(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    text = file.read_text()
    document = json.loads(text)
    # Values of a curve or a table are all alike: the first two will do.
    places = [
        path
        for path in paths(document)
        if path[0] != "timing" and all(not isinstance(key, int) or key < 2 for key in path)
    ]
    assert len(places) > 60
    for path in places:
        file.write_text(json.dumps(with_change(document, path)))
        with pytest.raises(StoreError) as caught:
            load(file.parent)
        assert "\n" not in str(caught.value), path
        assert caught.value.exit_code == 2
    file.write_text(text)
    load(file.parent)


@KINDS
def test_entries_that_are_gone_or_added_are_found(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    text = file.read_text()
    document = json.loads(text)
    changes = [{name: value for name, value in document.items() if name != gone} for gone in document]
    changes += [document | {"added": 1}, dict(reversed(document.items()))]
    for each in changes:
        file.write_text(json.dumps(each))
        with pytest.raises(StoreError):
            load(file.parent)


@KINDS
def test_flipped_bits_are_found(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    """A flipped bit of the file gives the same document or an error."""
    file, load = saved[kind]
    whole = file.read_bytes()
    expected = json.loads(whole)
    dice = random.Random(7)
    n_refused = 0
    for _ in range(150):
        at = dice.randrange(len(whole))
        file.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << dice.randrange(8))]) + whole[at + 1 :])
        try:
            found = load(file.parent)
        except ReidDistError:
            n_refused += 1
        else:
            again = json.loads(found.to_json())
            assert {**again, "timing": 0} == {**expected, "timing": 0}
    assert n_refused > 100


@KINDS
def test_another_timing_is_accepted_if_it_is_one(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    text = file.read_text()
    document = json.loads(text)
    file.write_text(json.dumps(document | {"timing": {"total": 1.5}}))
    assert load(file.parent).timing == {"total": 1.5}
    for wrong in (3, None, {"total": "long"}, {"total": [1]}, ["total"]):
        file.write_text(json.dumps(document | {"timing": wrong}))
        with pytest.raises(DamagedStoreError, match="timing"):
            load(file.parent)


@KINDS
def test_a_document_of_an_earlier_version_is_refused(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    text = file.read_text()
    document = json.loads(text)
    del document[DIGEST]
    file.write_text(json.dumps(document))
    with pytest.raises(StoreError, match="written by an earlier version, or is damaged; evaluate again"):
        load(file.parent)


@KINDS
def test_a_directory_without_its_document_is_unfinished(saved: dict[str, tuple[Path, Loader]], kind: str) -> None:
    file, load = saved[kind]
    file.unlink()
    with pytest.raises(IncompleteStoreError, match="never finished"):
        load(file.parent)


def test_equal_results_have_equal_document_digests_whatever_the_time(make_report: Callable[..., Report]) -> None:
    changes = ({"timing": {"total": 1.0}}, {"timing": {"total": 2.0}}, {"notes": [info("text", text="another")]})
    first, second, other = (make_report(n_query=9, n_invalid=0, **each).to_dict()[DIGEST] for each in changes)
    assert first == second != other


# ------------------------------------------------------------------------------------------------------- commands


@KINDS
def test_report_writes_the_page_of_a_whole_document_alone(
    saved: dict[str, tuple[Path, Loader]], kind: str, reid_dist: Any
) -> None:
    file, _ = saved[kind]
    page = file.with_suffix(".html")
    shown = page.read_bytes()
    page.unlink()
    assert reid_dist("report", file.parent).code == 0
    assert page.read_bytes() == shown
    page.write_text("as it was")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"added": 1}))
    reid_dist("report", file.parent).assert_refused(str(file.parent))
    file.unlink()
    reid_dist("report", file.parent).assert_refused(str(file.parent))
    assert page.read_text() == "as it was"


@pytest.mark.parametrize("harm", ["missing", "changed"])
def test_pictures_are_those_that_were_written(saved: dict[str, tuple[Path, Loader]], harm: str) -> None:
    file, load = saved["report"]
    pictures = file.with_name("pictures.json")
    whole = pictures.read_bytes()
    if harm == "missing":
        pictures.unlink()
    else:
        pictures.write_bytes(whole.replace(b"rank", b"rbnk", 1) if b"rank" in whole else whole[:-3] + b" }\n")
    with pytest.raises(DamagedStoreError, match="pictures"):
        load(file.parent)
