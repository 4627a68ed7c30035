"""Galleries that grow: nights are compared on the items that both have."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_nights import run_night, save_model, write_suite

from reid_dist import FeatureSet, evaluate
from reid_dist.nightly.history.history_values import Code, Entry, Finding, Run
from reid_dist.nightly.outcomes import outcome
from reid_dist.nightly.wording import finding_text, headline


def accuracy(run: Run) -> Finding:
    (entry,) = run.entries
    found = entry.finding("accuracy")
    assert found is not None
    return found


def change_of_map(entry: Entry) -> Any:
    found = entry.finding("accuracy")
    assert found is not None
    return found.change("mAP")


def opened(folder: Path) -> tuple[FeatureSet, FeatureSet]:
    return FeatureSet.open(folder / "query.zarr"), FeatureSet.open(folder / "gallery.zarr")


def shuffled(folder: Path, target: Path, kept: np.ndarray, **labels: Any) -> None:
    """Write a model's sets elsewhere: the gallery as rows of it in that order, with other labels."""
    query, gallery = opened(folder)
    shutil.rmtree(target, ignore_errors=True)
    query.save(target / "query.zarr")
    columns = {"pids": gallery.pids, "camids": gallery.camids, "image_paths": gallery.image_paths} | labels
    features = gallery.read(0, gallery.n_rows)[kept]
    columns = {name: values[kept] for name, values in columns.items()}
    FeatureSet.from_arrays(features, **columns).save(target / "gallery.zarr")


def test_appended_rows_leave_a_frozen_prefix_that_is_compared(tmp_path: Path) -> None:
    """The values are those of an evaluation of tonight's features without the new rows."""
    model = save_model(tmp_path / "a", 0.8)
    suite = write_suite(tmp_path, {"a": model}, {"plain": {"topk": 3}})
    before = run_night(suite)
    save_model(model, 2.5, seed=1, n_more=40)
    run = run_night(suite)
    assert (run.exit_code, outcome(run.entries[0])) == (4, "worse")
    found = accuracy(run)
    assert (found.code, found.verdict, found.baseline) == (Code.TESTED, "worse", 1)
    query, gallery = opened(model)
    n = gallery.n_rows
    counts = {"n_query": 180, "of_query": 180, "n_gallery": n - 40, "of_gallery": n}
    assert found.facts["common"] == {"by": "prefix", **counts}
    expected = evaluate(query, gallery.take(np.arange(n - 40)))
    assert change_of_map(run.entries[0]).candidate == expected.metrics["mAP"]
    assert change_of_map(run.entries[0]).baseline == before.entries[0].metrics["mAP"].value
    whole = evaluate(query, gallery)
    assert run.entries[0].metrics["mAP"].value == whole.metrics["mAP"] != expected.metrics["mAP"]
    assert f"{n - 40:,} of {n:,} gallery rows" in finding_text(found)
    # The headline has the values of common items, which the line of the job does not.
    first = headline(run, [before])
    assert "is significantly worse on common items: mAP" in first.sentence
    assert first.quiet == ""
    # What lost most is named by the files of tonight's rows.
    change = change_of_map(run.entries[0])
    assert change.files == tuple(Path(str(query.image_paths[moved.row])).name for moved in change.lost)


def test_equal_features_of_a_grown_gallery_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    model = save_model(tmp_path / "a", 0.8)
    suite = write_suite(tmp_path, {"a": model}, {"plain": {}})
    before = run_night(suite)
    query, gallery = opened(model)
    features = np.concatenate([gallery.read(0, gallery.n_rows), gallery.read(0, 5)])
    labels = {name: np.concatenate([each, each[:5]]) for name, each in (
        ("pids", gallery.pids), ("camids", gallery.camids), ("image_paths", gallery.image_paths)
    )}  # fmt: skip
    query.save(tmp_path / "b" / "query.zarr")
    FeatureSet.from_arrays(features, **labels).save(tmp_path / "b" / "gallery.zarr")
    suite = write_suite(tmp_path, {"a": tmp_path / "b"}, {"plain": {}})
    run = run_night(suite)
    assert (run.exit_code, accuracy(run).code, accuracy(run).facts["common"]["by"]) == (0, Code.EQUAL, "prefix")
    # The values are those of the common items.
    change, value = change_of_map(run.entries[0]), before.entries[0].value("mAP")
    assert (change.baseline, change.candidate) == (value, value) != (value, run.entries[0].value("mAP"))


def test_a_slide_under_a_gallery_that_grows_is_found_against_the_first_night(tmp_path: Path) -> None:
    """Losses of a third of a point a night, each within what matters; the gallery has a row more every night."""
    model = tmp_path / "a"
    suite = write_suite(tmp_path, {"a": model}, {"plain": {}}, gates={"trend": None, "speed": None, "memory": None})
    runs = []
    for number in range(4):
        save_model(model, 1.0 + 0.0025 * number, n_more=number)
        runs.append(run_night(suite))
    assert [run.exit_code for run in runs] == [0, 0, 4, 4]
    found = accuracy(runs[2])
    assert (found.verdict, found.baseline) == ("worse", 1)
    assert (found.facts["role"], found.facts["last"]) == ("first", ["same", 2])
    assert found.facts["common"]["n_gallery"] == opened(model)[1].n_rows - 3


@pytest.mark.slow
@pytest.mark.parametrize("names", ["item_ids", "image_paths"])
def test_items_that_moved_or_left_are_matched_by_name(tmp_path: Path, names: str) -> None:
    """Both nights are evaluated on the common ones, where the sets of the baseline are still there."""
    model = save_model(tmp_path / "a", 0.8)
    n = opened(model)[1].n_rows
    ids = np.array([f"item{row}" for row in range(n)])
    labels = {"item_ids": ids} if names == "item_ids" else {}
    shuffled(model, tmp_path / "first", np.arange(n), **labels)
    run_night(write_suite(tmp_path, {"a": tmp_path / "first"}, {"plain": {}}))
    # Of the second night: no 50 first rows, all in another order, ten with another identity, other features.
    save_model(model, 3.0, seed=1)
    kept = np.random.default_rng(0).permutation(np.arange(50, n))
    pids = opened(model)[1].pids.copy()
    pids[60:70] = 0
    shuffled(model, tmp_path / "second", kept, **labels, pids=pids)
    run = run_night(write_suite(tmp_path, {"a": tmp_path / "second"}, {"plain": {}}))
    found = accuracy(run)
    assert (found.code, found.verdict, run.exit_code) == (Code.TESTED, "worse", 4)
    common = np.setdiff1d(np.arange(50, n), np.arange(60, 70))
    assert (
        found.facts["common"] | {"by": "items", "n_gallery": len(common), "of_gallery": n - 50}
        == (found.facts["common"])
    )
    reports = []
    for folder in ("first", "second"):
        query, gallery = opened(tmp_path / folder)
        paths = [str(path) for path in gallery.image_paths]
        wanted = [str(path) for path in opened(model)[1].image_paths[common]]
        reports.append(evaluate(query, gallery.take([paths.index(path) for path in wanted])))
    change = change_of_map(run.entries[0])
    assert [change.baseline, change.candidate] == [report.metrics["mAP"] for report in reports]


def grown_in_front(tmp_path: Path, *, jobs: dict[str, Any] | None = None, **options: Any) -> Run:
    """The second of two nights, of which the gallery begins with another row, written over the first."""
    jobs = {"plain": {}} if jobs is None else jobs
    model = save_model(tmp_path / "a", 0.8)
    suite = write_suite(tmp_path, {"a": tmp_path / "b"}, jobs)
    n = opened(model)[1].n_rows
    shuffled(model, tmp_path / "b", np.arange(1, n))
    run_night(suite)
    shuffled(model, tmp_path / "b", np.arange(n))
    return run_night(suite, **options)


@pytest.mark.parametrize("allowed", [False, True])
def test_overwritten_sets_are_not_compared_and_the_night_says_so(tmp_path: Path, allowed: bool) -> None:
    """Where that is allowed, the outcome stays, and the code of the night is another."""
    run = grown_in_front(tmp_path, allow_incomparable=allowed)
    found = accuracy(run)
    code = 0 if allowed else 5
    assert (run.exit_code, outcome(run.entries[0]), found.code) == (code, "uncompared", Code.OTHER_CONDITIONS)
    assert found.facts["obstacle"] == "overwritten"
    assert "have moved or were deleted" in finding_text(found)
    assert run_night(write_suite(tmp_path, {"a": tmp_path / "b"}, {"plain": {}})).exit_code == 0


@pytest.mark.slow
def test_a_ground_truth_of_row_numbers_is_not_compared_on_other_rows(tmp_path: Path) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text(str([{"ok": [row], "junk": []} for row in range(180)]).replace("'", '"'))
    run = grown_in_front(tmp_path, jobs={"plain": {"ground_truth": str(truth), "protocol": "oxford"}})
    assert (run.exit_code, accuracy(run).facts["obstacle"]) == (5, "row_numbers")
