"""Listed splits: the rows of a list against plain evaluations of these rows, in every form of a list; bad lists."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sampling import examples
from support.strategies import crowded_sets

from reid_dist import FeatureSet, evaluate, evaluate_splits
from reid_dist.errors import InputError, StoreError, StoreNotFoundError
from reid_dist.evaluation.pipelines import read_job
from reid_dist.stores import LabelledRows
from reid_dist.stores.importers.row_lists import read_split_rows

N_QUERY, N_GALLERY = 14, 40
QUERY, GALLERY = crowded_sets(N_QUERY, N_GALLERY, 4, seed=8, n_distinct=12, n_pids=5)
LISTED = [{"gallery": [0, 3, 5, 7, 20, 21, 22, 30]}, {"gallery": [1, 2, 4, 9, 10, 11, 12, 13], "query": [0, 2, 5, 7]}]


def whole(items, paths=None) -> FeatureSet:
    return FeatureSet.from_arrays(items.features, items.pids, items.camids, items.item_ids, image_paths=paths)


def some(items, rows) -> FeatureSet:
    return whole(items.take(np.array(sorted(rows))))


@st.composite
def lists(draw):
    """Splits of any rows in any order; the queries of some."""

    def rows(n):
        return draw(st.lists(st.integers(0, n - 1), min_size=n // 2, max_size=n, unique=True))

    return [
        {"gallery": rows(N_GALLERY), **({"query": rows(N_QUERY)} if draw(st.booleans()) else {})}
        for _ in range(draw(st.integers(1, 3)))
    ]


@settings(max_examples=examples(15))
@given(listed=lists())
def test_every_split_is_the_evaluation_of_its_rows(listed) -> None:
    report = evaluate_splits(whole(QUERY), whole(GALLERY), rows=listed, protocol="no_cameras", metrics="mAP,CMC@2")
    plain = [
        evaluate(some(QUERY, each.get("query", range(N_QUERY))), some(GALLERY, each["gallery"]),
                 protocol="no_cameras", metrics="mAP,CMC@2", confidence=None)
        for each in listed
    ]  # fmt: skip
    assert report.digests["result"] == [each.result_digest for each in plain]
    for name in report.metrics:
        assert report.per_split[name].tolist() == [each.metrics[name] for each in plain]
        assert report.metrics[name] == pytest.approx(np.mean(report.per_split[name]))
    assert report.counts["n_gallery"] == [len(each["gallery"]) for each in listed]
    assert report.draw["repeats"] == report.n_splits == len(listed)


def write(folder: Path, name: str, content) -> Path:
    path = folder / name
    if name.endswith(".npz"):
        np.savez(path, **content)
    else:
        path.write_text(json.dumps(content))
    return path


def test_forms_of_a_list_give_one_result(tmp_path: Path) -> None:
    paths = [f"g/{row:03d}.jpg" for row in range(N_GALLERY)]
    query, gallery = whole(QUERY, [f"q/{row}.jpg" for row in range(N_QUERY)]), whole(GALLERY, paths)
    galleries = [each["gallery"] for each in LISTED]
    expected = evaluate_splits(query, gallery, rows=galleries)
    filled = np.full((2, 11), -1)
    for row, listed in zip(filled, galleries, strict=True):
        row[: len(listed)] = listed
    ids = [[int(GALLERY.item_ids[row]) for row in rows] for rows in galleries]
    names = np.array([[paths[row] for row in rows] for rows in galleries])
    forms = [
        (write(tmp_path, "lists.json", galleries), "rows"),
        (write(tmp_path, "object.json", {"gallery": galleries, "query": [*range(N_QUERY)]}), "rows"),
        (write(tmp_path, "rows.npz", {"gallery": filled, "query": np.arange(N_QUERY)}), "rows"),
        (write(tmp_path, "ids.json", [{"gallery": each} for each in ids]), "item_ids"),
        (write(tmp_path, "names.npz", {"gallery": names}), "image_paths"),
        (tuple(reversed(galleries))[::-1], "rows"),
    ]
    for source, by in forms:
        report = evaluate_splits(query, gallery, rows=source, by=by, chunk_rows=7)
        assert report.result_digest == expected.result_digest, (source, by)
    assert report.draw["rows"] == "given in Python"
    assert evaluate_splits(query, gallery, rows=galleries, repeats=1).n_splits == 1


def test_a_pipeline_states_splits_and_nothing_that_they_lack(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("query: q\ngallery: g\n")
    for overrides, message in (
        (["splits={repeats: 2}", "topk=5", "ties=true"], "topk, ties: these are of one gallery"),
        (["splits={rows: 5}"], "splits.rows"),
        (["splits={shots: 5}"], "splits.shots"),
        (["benchmark=marke1501"], "unknown benchmark 'marke1501'; did you mean 'market1501'"),
    ):
        with pytest.raises(InputError, match=message):
            read_job(tmp_path / "job.yaml", overrides).split_options()


BAD = {
    "beyond": ([[0, 40]], "gallery of split 0 names row 40, and memory has 40 rows, counted from 0"),
    "negative": ([[0, 1], [-2, 5]], "gallery of split 1 names row -2"),
    "queries": ([{"gallery": [0], "query": [14]}], "query of split 0 names row 14, and memory has 14 rows"),
    "twice": ([[3, 1, 3]], "gallery of split 0 names row 3 twice"),
    "empty": ([[0], []], "gallery of split 1 is empty"),
    "none": ([], "lists no split"),
    "numbers": ([1, 2], "gallery of split 0 must be a list of rows or of names, found 1"),
    "halves": ([[0.5, 1]], "holds no row numbers"),
    "flags": ([[True, False]], "must be a list of rows or of names"),
    "nested": ([[[0], [1, 2]]], "must be a list of rows or of names"),
    "texts": ([["a", "b"]], "for item ids or image paths, give --by item_ids"),
    "sides": ([{"galery": [0]}], "split 0 must have the entry 'gallery' and may have 'query', found 'galery'"),
    "text": ("abc", "must hold a list with one entry per split, found str"),
    "flat": ({"gallery": [0, 1]}, "gallery must be a list of rows for every split, such as"),
    "lengths": ({"gallery": [[0], [1]], "query": [[0]]}, "lists the gallery of 2 splits and the queries of 1"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_lists_are_refused(name: str, tmp_path: Path) -> None:
    content, message = BAD[name]
    path = write(tmp_path, "bad.json", content)
    with pytest.raises(InputError, match=message) as raised:
        evaluate_splits(whole(QUERY), whole(GALLERY), rows=path, protocol="no_cameras")
    assert str(path) in str(raised.value)


@pytest.mark.timeout(30)
@pytest.mark.parametrize("by", ["rows", "item_ids"])
def test_very_many_splits_are_read_at_once(by: str) -> None:
    """In a time that grows with the lists, and not with the lists times the gallery."""
    rng = np.random.default_rng(3)
    names = np.array([f"item {row}" for row in rng.permutation(2000)])
    gallery = LabelledRows(np.arange(2000) % 50, item_ids=names)
    rows = [rng.choice(2000, 5, replace=False) for _ in range(8000)]
    listed: list[Any] = [(each if by == "rows" else names[each]).tolist() for each in rows]
    found = read_split_rows({"gallery": listed, "query": listed[0]}, gallery, gallery, by=by)
    assert len(found) == 8000
    for each, expected in zip(found, rows, strict=True):
        assert each.gallery.tolist() == sorted(expected.tolist())
        assert each.query is not None
        assert each.query.tolist() == sorted(rows[0].tolist())
    listed[7000][2] = listed[7000][4]
    with pytest.raises(InputError, match=r"rows: gallery of split 7000 names row \d+ twice"):
        read_split_rows(listed, gallery, gallery, by=by)


def test_bad_files_and_names_are_refused(tmp_path: Path) -> None:
    query, gallery = whole(QUERY), whole(GALLERY)
    broken = tmp_path / "broken.json"
    broken.write_text("[[0, 1")
    twice = tmp_path / "twice.json"
    twice.write_text('{"gallery": [[0, 1]], "query": [2], "gallery": [[1, 2]]}')
    other = write(tmp_path, "other.npz", {"rows": np.arange(3)})
    cube = write(tmp_path, "cube.npz", {"gallery": np.zeros((2, 2, 2))})
    for source, options, message in (
        (broken, {}, "is not JSON"),
        (twice, {}, "'gallery' occurs twice in one object; keep one of the two"),
        (other, {}, "lists no splits: it needs an array 'gallery'"),
        (cube, {}, "must have one row per split"),
        ([[99999]], {"by": "item_ids"}, "has item_ids that memory lacks: 99999"),
        ([["a.jpg"]], {"by": "image_paths"}, "gives image_paths, and memory has none"),
        ([[0]], {"by": "names"}, "by must be rows, item_ids or image_paths"),
        ([[0]], {"repeats": 2}, "2 repeats were requested, and 1 split are listed|1 split is listed"),
        ([[0]], {"per_camera": True}, "per_camera has no effect on listed rows"),
        ([[0]], {"per_identity": 2}, "lists all rows of every split, and per_identity 2 has no effect on them: leave"),
        (None, {"by": "item_ids"}, "give the list as well"),
    ):
        with pytest.raises(InputError, match=message):
            evaluate_splits(query, gallery, rows=source, protocol="no_cameras", **options)
    with pytest.raises(StoreNotFoundError):
        evaluate_splits(query, gallery, rows=tmp_path / "nothing.json")
    with pytest.raises(InputError, match="every drawn row of one set would find itself"):
        evaluate_splits(gallery, gallery, rows=[[0, 1]], protocol="no_cameras")
    apart = evaluate_splits(gallery, gallery, rows=[{"gallery": [*range(20)], "query": [*range(20, 40)]}],
                            protocol="no_cameras")  # fmt: skip
    assert apart.counts["n_query"] == [20]


# ---- permutations of SYSU-MM01 ---------------------------------------------------------------------------------------


def permutations(sizes, n_splits, seed):
    """``rand_perm_cam`` as it is published: by camera, then identity, a row of a permutation from 1 for every split."""
    rng = np.random.default_rng(seed)
    cameras = np.empty((6, 1), object)
    for camera in range(6):
        cameras[camera, 0] = identities = np.empty((7, 1), object)
        for pid in range(7):
            n = sizes.get((camera + 1, pid + 1), 0)
            identities[pid, 0] = np.array([rng.permutation(n) + 1 for _ in range(n_splits if n else 0)])
    return cameras


def sysu():
    """Images of identities 2, 5 and 6 under some cameras, stored in any order; names say their order."""
    rng = np.random.default_rng(3)
    rows = [(camera, pid, image) for camera in (1, 2, 4, 5) for pid in (2, 5, 6) for image in range(1, 2 + camera)]
    rows = [rows[at] for at in rng.permutation(len(rows)) if rows[at][:2] != (4, 5)]
    camids, pids, images = (np.array(column) for column in zip(*rows, strict=True))
    paths = [f"cam{camera}/{pid:04d}/{image:04d}.jpg" for camera, pid, image in rows]
    gallery = FeatureSet.from_arrays(rng.integers(-2, 3, (len(rows), 3)) + 0.5, pids, camids, image_paths=paths)
    near = rng.choice([2, 5, 6], 20), rng.choice([3, 6], 20)
    return FeatureSet.from_arrays(rng.integers(-2, 3, (20, 3)) + 0.5, *near), gallery, images


def galleries_of(cameras, gallery, images, shots, split):
    """Rows of a split, as get_testing_set.m takes them: the first images of every permutation."""
    taken = []
    for row in range(gallery.n_rows):
        order = cameras[gallery.camids[row] - 1, 0][gallery.pids[row] - 1, 0][split]
        if images[row] in order[:shots]:
            taken.append(row)
    return taken


def save_hdf5(path: Path, cameras) -> None:
    """Write ``rand_perm_cam`` in the layout of MATLAB 7.3: cells are references, arrays are transposed."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w", userblock_size=512) as file:
        heap = file.create_group("#refs#")

        def put(name, values, kind):
            values = np.asarray(values)
            empty = not values.size
            data = np.array(values.shape, np.uint64) if empty else values.T
            made = (
                heap.create_dataset(name, data=data)
                if name != "rand_perm_cam"
                else file.create_dataset(name, data=data)
            )
            made.attrs["MATLAB_class"] = np.bytes_(kind)
            if empty:
                made.attrs["MATLAB_empty"] = np.uint8(1)
            return made.ref

        def cells(name, references):
            values = np.empty((len(references), 1), h5py.ref_dtype)
            values[:, 0] = references
            return put(name, values, "cell")

        inner = [
            cells(f"camera{at}", [put(f"orders{at}-{pid}", np.asarray(cell, float), "double")
                                  for pid, cell in enumerate(camera[:, 0])])
            for at, camera in enumerate(cameras[:, 0])
        ]  # fmt: skip
        cells("rand_perm_cam", inner)
    with path.open("r+b") as file:
        file.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(116) + bytes(8) + b"\x00\x02IM")


@pytest.mark.slow
def test_permutations_in_hdf5_are_those_of_version_5(tmp_path: Path) -> None:
    scipy_io, h5py = (pytest.importorskip(name) for name in ("scipy.io", "h5py"))
    query, gallery, _ = sysu()
    sizes = {(c, p): int(((gallery.camids == c) & (gallery.pids == p)).sum()) for c in range(1, 7) for p in range(1, 8)}
    cameras = permutations(sizes, 4, seed=2)
    path, old = tmp_path / "rand_perm_cam.mat", tmp_path / "version5.mat"
    scipy_io.savemat(old, {"rand_perm_cam": cameras})
    save_hdf5(path, cameras)
    options = {"benchmark": "sysu_mm01_all_multi"}
    report, expected = (evaluate_splits(query, gallery, rows=source, **options) for source in (path, old))
    assert report.result_digest == expected.result_digest
    assert report.digests["gallery"] == expected.digests["gallery"]
    whole_bytes = path.read_bytes()

    def spoil(change, message):
        path.write_bytes(whole_bytes)
        with h5py.File(path, "r+") as file:
            change(file)
        with pytest.raises(InputError, match=f"rand_perm_cam is no cell array of cameras and identities .*{message}"):
            evaluate_splits(query, gallery, rows=path, **options)

    def replaced(file, name, **values):
        kept = dict(file[name].attrs)
        del file[name]
        file.create_dataset(name, **values).attrs.update(kept)
        return file[name].ref

    def link(file, name, at, reference):
        values = file[name][()]
        values[0, at] = reference
        file[name][...] = values

    def text_in_a_cell(file):
        link(file, "#refs#/camera0", 1, replaced(file, "#refs#/orders0-1", data=np.array([["a"]], "S1")))

    spoil(text_in_a_cell, r"cell 1 of cell 0 of rand_perm_cam holds \|S1 of shape")
    spoil(lambda file: link(file, "#refs#/camera0", 1, file["#refs#"].ref), "it is no array")
    spoil(
        lambda file: link(file, "rand_perm_cam", 0, file["#refs#/orders0-1"].ref), "cell 0 of rand_perm_cam is no cell"
    )
    spoil(lambda file: replaced(file, "rand_perm_cam", data=np.zeros((1, 6))), "rand_perm_cam is no cell array, but")
    path.write_bytes(whole_bytes[: len(whole_bytes) // 2])
    with pytest.raises(StoreError, match=r"rand_perm_cam\.mat"):
        evaluate_splits(query, gallery, rows=path, **options)


@pytest.mark.parametrize("shots", [1, 10])
def test_permutations_of_sysu_mm01_are_its_galleries(shots: int, tmp_path: Path) -> None:
    scipy_io = pytest.importorskip("scipy.io")
    query, gallery, images = sysu()
    sizes = {(c, p): int(((gallery.camids == c) & (gallery.pids == p)).sum()) for c in range(1, 7) for p in range(1, 8)}
    cameras = permutations(sizes, 4, seed=2)
    path = tmp_path / "rand_perm_cam.mat"
    scipy_io.savemat(path, {"rand_perm_cam": cameras})
    name = f"sysu_mm01_all_{'single' if shots == 1 else 'multi'}"
    report = evaluate_splits(query, gallery, benchmark=name, rows=path)
    listed = [galleries_of(cameras, gallery, images, shots, split) for split in range(4)]
    expected = evaluate_splits(query, gallery, benchmark=name, rows=listed)
    assert report.digests["gallery"] == expected.digests["gallery"]
    assert report.result_digest == expected.result_digest
    assert report.n_splits == 4
    assert report.benchmark["gallery"] == f"rows of {path}"
    if shots == 1:
        by_hand = evaluate_splits(query, gallery, rows=path, protocol="no_cameras")
        assert by_hand.digests["gallery"] == expected.digests["gallery"]
        return
    scipy_io.savemat(path, {"rand_perm_cam": permutations({**sizes, (5, 6): 9}, 4, seed=2)})
    with pytest.raises(InputError, match="9 images of identity 6 under camera 5, and the gallery has 6 rows"):
        evaluate_splits(query, gallery, rows=path)
    scipy_io.savemat(path, {"rand_perm_cam": permutations({**sizes, (1, 2): 0}, 4, seed=2)})
    with pytest.raises(InputError, match="no permutations of the images of identity 2 under camera 1"):
        evaluate_splits(query, gallery, rows=path)
    scipy_io.savemat(path, {"rand_perm_cam": np.arange(4)})
    with pytest.raises(InputError, match="is no cell array of cameras and identities"):
        evaluate_splits(query, gallery, rows=path)
    bare = FeatureSet.from_arrays(gallery.read(0, gallery.n_rows), gallery.pids)
    with pytest.raises(InputError, match="--layout sysu_mm01 reads them from the names"):
        evaluate_splits(bare, bare, rows=path)
