"""Rows that `evaluate` and its kin leave out: options, resumed runs, thresholds, tables and files."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from reid_dist import FeatureSet, evaluate, fuse, sweep_parameters
from reid_dist.reports import Report
from reid_dist.reports.browse.subject import open_subject

N = 40


@pytest.fixture
def sides(tmp_path: Path) -> tuple[FeatureSet, FeatureSet]:
    """A query and a gallery on disk; the last four rows of the gallery repeat earlier ones."""
    rng = np.random.default_rng(3)
    pids, rows = np.arange(N) // 5, rng.standard_normal((N, 8)).astype(np.float32)
    again = np.array([*range(N), 3, 8, 13, 3])
    made = []
    for name, chosen, camids in (("q", np.arange(0, N, 4), 0), ("g", again, 1)):
        features = (rows + 2 * np.eye(8, dtype=np.float32)[pids % 8])[chosen]
        labels = {"camids": np.full(len(chosen), camids), "item_ids": np.array([f"{name}{row}" for row in chosen])}
        paths = np.array([f"{name}/{row:03d}.jpg" for row in chosen])
        made.append(
            FeatureSet.from_arrays(features, pids[chosen], **labels, image_paths=paths).save(tmp_path / f"{name}.zarr")
        )
    return made[0], made[1]


def test_listed_and_repeated_rows_are_left_out(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    (tmp_path / "bad.txt").write_text("g/007.jpg\ng11\nq/004.jpg\nnothing.jpg\n")
    options = ["--exclude", tmp_path / "bad.txt", "--drop-duplicates", "item_ids"]
    run = tmp_path / "run"
    done = reid_dist("evaluate", query.uri, gallery.uri, *options, "--left-out", tmp_path / "left.csv", "--output", run)
    assert done.code == 0, done.err
    near = query.filter(np.array([name != "q4" for name in query.item_ids]))
    far = gallery.filter((np.arange(N + 4) < N) & ~np.isin(gallery.item_ids, ["g7", "g11"]))
    report = Report.load(run)
    assert report.result_digest == evaluate(near, far).result_digest
    assert report.spec["query"] == near.content_digest
    assert report.spec["gallery"] == far.content_digest
    assert report.spec["drop_duplicates"] == "item_ids"
    assert report.spec["exclude"] == [str(tmp_path / "bad.txt")]
    assert report.inputs["gallery"]["uri"] == gallery.uri
    assert report.inputs["gallery"]["left_out"] == {"rows_before": N + 4, "excluded": 2, "duplicates": 4}
    assert report.inputs["query"]["left_out"] == {"rows_before": len(query), "excluded": 1, "duplicates": 0}
    assert "1 of 4 entries in the exclusion list matches no row: nothing.jpg" in map(str, report.notes)
    with (tmp_path / "left.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 1 + 2 + 4 + 1
    # The same command finds the finished run; another one does not.
    same = reid_dist("evaluate", query.uri, gallery.uri, *options, "--output", run, "--resume", "--json")
    assert json.loads(same.out)["result_digest"] == report.result_digest
    reid_dist("evaluate", query.uri, gallery.uri, "--output", run, "--resume").assert_refused(
        "gallery, exclude, drop_duplicates)"
    )
    # What reads the sets of the run again leaves the same rows out.
    points = reid_dist("thresholds", run, "--threshold", "0.5", "--json")
    assert points.code == 0, points.err
    assert json.loads(points.out)["inputs"]["gallery"]["shape"] == [N - 2, 8]
    (tmp_path / "bad.txt").write_text("g7\n")
    reid_dist("thresholds", run).assert_refused("(or a list of rows that it leaves out) has changed since the run")


def test_rows_that_are_not_finite_are_left_out_of_files(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    held, features = {}, gallery.read(0, N + 4).copy()
    features[[2, 7], [0, 3]] = np.nan, np.inf
    for side, each, rows in (("query", query, query.read(0, len(query))), ("gallery", gallery, features)):
        labels = {"label": each.pids, "cam": each.camids, "item_ids": each.item_ids}
        held |= {f"{side}_f": rows} | {f"{side}_{name}": values for name, values in labels.items()}
    source, run = tmp_path / "features.npz", tmp_path / "run"
    np.savez(source, **held)
    (tmp_path / "bad.txt").write_text("g2\ng7\n")
    (tmp_path / "one.txt").write_text("g7\n")
    options = ["--exclude", tmp_path / "bad.txt", "--topk", 5]
    done = reid_dist("evaluate", source, *options, "--output", run)
    assert done.code == 0, done.err
    far = gallery.filter(~np.isin(gallery.item_ids, ["g2", "g7"]))
    report = Report.load(run)
    assert report.metrics == evaluate(query, far).metrics
    subject = open_subject(report)
    assert subject.gallery is not None
    assert len(subject.gallery) == len(far)
    for words in ([], ["--exclude", tmp_path / "one.txt"]):
        reid_dist("evaluate", source, *words).assert_refused("gallery features", "found NaN in 1 row (row 2)")
    reid_dist("evaluate", source, *options[:2], "--fuse", f"{source}:0.5").assert_refused("must be finite")


def test_a_list_of_another_set_is_refused(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    (tmp_path / "bad.txt").write_text("other/007.jpg\nother/008.jpg\n")
    reid_dist("evaluate", query.uri, gallery.uri, "--exclude", tmp_path / "bad.txt").assert_refused(
        "2 of 2 entries in the exclusion list match no row", "--exclude", "'q/000.jpg'", "'g0'"
    )


def test_conventions_and_splits_leave_the_same_rows_out(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    (tmp_path / "bad.csv").write_text("row,side\n7,gallery\n")
    options = ["--exclude", tmp_path / "bad.csv", "--drop-duplicates", "features"]
    far = gallery.filter((np.arange(N + 4) < N) & (np.arange(N + 4) != 7))
    table = json.loads(reid_dist("conventions", query.uri, gallery.uri, *options, "--json").out)
    assert table["inputs"]["gallery"]["content_digest"] == far.content_digest
    splits = ["--repeats", 2, "--per-identity", 2, "--protocol", "no_cameras", "--json"]
    found = json.loads(reid_dist("splits", query.uri, gallery.uri, *options, *splits).out)
    assert found["inputs"]["gallery"]["content_digest"] == far.content_digest
    assert found["spec"]["drop_duplicates"] == "features"


@pytest.mark.parametrize("fused", [False, True])
def test_a_sweep_leaves_rows_out(reid_dist, sides, tmp_path: Path, fused: bool) -> None:
    query, gallery = sides
    (tmp_path / "bad.txt").write_text("g7\n")
    left_out = ["--exclude", tmp_path / "bad.txt", "--drop-duplicates", "item_ids"]
    model = ["--fuse", f"{query.uri},{gallery.uri}:0.3"] if fused else []
    words = ["sweep", query.uri, gallery.uri, *left_out, *model, "--expand", "aqe", "--k", "0:1", "--json"]
    found = json.loads(reid_dist(*words, "--left-out", tmp_path / "left.csv").out)
    near, far = (fuse(each, [(each, 0.3)]) if fused else each for each in sides)
    far = far.filter((np.arange(N + 4) < N) & (np.arange(N + 4) != 7))
    assert found["result_digest"] == sweep_parameters(near, far, expand="aqe", k=range(2)).result_digest
    assert found["spec"]["drop_duplicates"] == "item_ids"
    assert len((tmp_path / "left.csv").read_text().splitlines()) == 1 + 1 + 4


def test_a_sweep_over_weights_leaves_nothing_out(reid_dist, sides) -> None:
    query, gallery = (each.uri for each in sides)
    words = ["--fuse", f"{query},{gallery}", "--weight", "0:1:0.5", "--drop-duplicates", "item_ids"]
    reid_dist("sweep", query, gallery, *words).assert_refused("drop_duplicates leave", "a sweep over weight")


def test_a_pipeline_leaves_rows_out(reid_dist, sides, tmp_path: Path, threads: Path) -> None:
    query, gallery = sides
    (tmp_path / "job.yaml").write_text(
        f"query: {query.uri}\ngallery: {gallery.uri}\nexclude: [{tmp_path}/bad.txt]\ndrop_duplicates: image_paths\n"
    )
    (tmp_path / "bad.txt").write_text("g7\n")
    done = reid_dist("run", tmp_path / "job.yaml", "--cluster", threads, "--json")
    far = gallery.filter((np.arange(N + 4) < N) & (np.arange(N + 4) != 7))
    assert json.loads(done.out)["inputs"]["gallery"]["content_digest"] == far.content_digest
    assert f"\ngallery    {N - 1} x 8" in reid_dist("plan", tmp_path / "job.yaml", "--gflops", 9).out
    # Repeats of features are not looked for: a plan reads no features.
    found = reid_dist("plan", tmp_path / "job.yaml", "--gflops", 9, "--set", "drop_duplicates=features").out
    assert f"\ngallery    {N + 3} x 8" in found
    assert "with those that drop_duplicates leaves out" in found


def test_repeats_of_another_identity_are_refused(reid_dist, sides) -> None:
    query, gallery = sides
    pids = np.array(gallery.pids)
    pids[-1] = 77
    wrong = FeatureSet.from_arrays(
        gallery.read(0, N + 4), pids, gallery.camids, gallery.item_ids, image_paths=gallery.image_paths
    ).save(f"{gallery.uri}.wrong")
    reid_dist("evaluate", query.uri, wrong.uri, "--drop-duplicates", "item_ids").assert_refused(
        "gallery: 1 row has the item id of an earlier row and another pid", "rows 3 and 43, pids 0 and 77", "--exclude"
    )


def test_options_without_effect_are_refused(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    np.save(tmp_path / "d.npy", np.ones((len(query), len(gallery)), np.float32))
    reid_dist(
        "evaluate", query.uri, gallery.uri, "--distances", tmp_path / "d.npy", "--drop-duplicates", "item_ids"
    ).assert_refused("drop_duplicates leave rows of features out, and distances take their place")
    reid_dist("evaluate", query.uri, gallery.uri, "--left-out", tmp_path / "left.csv").assert_refused(
        "left_out lists the rows that exclude and drop_duplicates leave out; give one of these"
    )
    reid_dist("evaluate", query.uri, gallery.uri, "--exclude", tmp_path / "none.txt").assert_refused(
        "no file with labels at"
    )


def test_ingest_writes_what_it_leaves_out(reid_dist, sides, tmp_path: Path) -> None:
    _, gallery = sides
    (tmp_path / "bad.txt").write_text("g/007.jpg\nnothing.jpg\n")
    done = reid_dist(
        "ingest", gallery.uri, "--exclude", tmp_path / "bad.txt", "--drop-duplicates", "image_paths",
        "--left-out", tmp_path / "left.csv", "--output", tmp_path / "new.zarr",
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "note: left out 1 of 44 rows (exclusion list)" in done.out
    assert "note: left out 4 of 43 rows, whose image path an earlier row has" in done.out
    assert "note: 1 of 2 entries in the exclusion list matches no row: nothing.jpg" in done.out
    with (tmp_path / "left.csv").open() as file:
        found = [(row["row"], row["image_path"], row["reason"], row["same_as"]) for row in csv.DictReader(file)]
    assert found[:2] == [("7", "g/007.jpg", "excluded", ""), ("40", "g/003.jpg", "same image_paths", "3")]
    far = gallery.filter((np.arange(N + 4) < N) & (np.arange(N + 4) != 7))
    assert FeatureSet.open(tmp_path / "new.zarr").content_digest == far.content_digest


def test_ingest_and_evaluate_take_folders_and_globs(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    (tmp_path / "ranks").mkdir()
    for shard in range(12):
        rows = slice(4 * shard, 4 * shard + 4)
        held = {
            name: np.asarray(getattr(gallery, name))[rows] for name in ("pids", "camids", "item_ids", "image_paths")
        }
        np.savez(tmp_path / "ranks" / f"{shard}.npz", features=gallery.read(0, N + 4)[rows], **held)
    source = tmp_path / "ranks"
    assert reid_dist("ingest", f"{source}/*.npz", "--output", tmp_path / "one.zarr").code == 0
    assert FeatureSet.open(tmp_path / "one.zarr").content_digest == gallery.content_digest
    found = json.loads(reid_dist("evaluate", query.uri, source, "--json").out)
    assert found["result_digest"] == evaluate(query, gallery).result_digest
    reid_dist("evaluate", query.uri, f"{source}/*.parquet").assert_refused("no file matches", "quote the pattern")


def test_lists_of_a_run_are_shown_with_the_rows_that_it_kept(reid_dist, sides, tmp_path: Path) -> None:
    query, gallery = sides
    (tmp_path / "bad.txt").write_text("g1\nq4\n")
    options = ["--exclude", tmp_path / "bad.txt", "--drop-duplicates", "item_ids"]
    done = reid_dist("evaluate", query.uri, gallery.uri, *options, "--topk", 5, "--output", tmp_path / "run")
    assert done.code == 0, done.err
    report = Report.load(tmp_path / "run")
    subject = open_subject(report)
    assert subject.gallery is not None
    lists = report.topk.to_pandas()
    assert np.asarray(subject.gallery.item_ids)[lists["gallery_row"]].tolist() == lists["gallery_item_id"].tolist()
    assert {"g1", "q4"}.isdisjoint([*lists["gallery_item_id"], *lists["query_item_id"]])
    (tmp_path / "bad.txt").unlink()
    without = open_subject(report)
    assert without.gallery is None
    assert without.notes[0].startswith("Labels and pictures are not shown: rows were left out of the run, and there is")
