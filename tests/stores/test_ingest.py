"""What ingest does beyond reading: names, labels over both sides, drops, refusals, bounds."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
from array_files import flip_bit
from support.feature_arrays import Arrays, make_arrays, model_arrays, save_model

from reid_dist import append, evaluate
from reid_dist.errors import InputError, StoreError, StoreExistsError
from reid_dist.stores import ArrayNames, FeatureSet, ingest, open_features
from reid_dist.stores.labels import given_labels


def test_text_identities_are_numbered_over_both_sides(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "a.npz", 1,
        query_label=np.array(["m", "z"] * 15), gallery_label=np.array(["a", "z", "-1", "m", "k"] * 10),
    )  # fmt: skip
    query, gallery = ingest(source, tmp_path / "out")
    assert query.pids[:2].tolist() == [3, 4]
    assert gallery.pids[:5].tolist() == [1, 4, -1, 3, 2]
    assert query.pid_names == gallery.pid_names == ("a", "k", "m", "z")
    for role, store in (("query", query), ("gallery", gallery)):
        assert open_features(source, role).content_digest == store.content_digest
    again = ingest(tmp_path / "out", tmp_path / "again", chunk_rows=7)
    assert [store.content_digest for store in again] == [query.content_digest, gallery.content_digest]
    assert open_features(tmp_path / "out", "gallery").uri == gallery.uri


def test_dropped_identities(tmp_path: Path, arrays: Arrays) -> None:
    np.savez(tmp_path / "a.npz", features=arrays.features, **arrays.labels())
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "out.zarr", drop_pids=[-1, 0, 7])
    kept = ~np.isin(arrays.pids, [-1, 0, 7])
    assert 0 < kept.sum() < 300
    np.testing.assert_array_equal(store.read(0, store.n_rows), arrays.features[kept])
    np.testing.assert_array_equal(store.item_ids, arrays.item_ids[kept])
    with pytest.raises(InputError, match="no row"):
        ingest(tmp_path / "a.npz", tmp_path / "none.zarr", drop_pids=range(-1, 20))


def test_zero_rows_are_refused_unless_allowed(tmp_path: Path) -> None:
    gallery = make_arrays(50, seed=2).features
    gallery[[4, 40]] = 0
    source = save_model(tmp_path / "a.npz", 1, gallery_f=gallery)
    with pytest.raises(InputError, match=r"gallery holds 2 rows \(first: 4, 40\) of zeros.*--allow-zero"):
        ingest(source, tmp_path / "out")
    assert not (tmp_path / "out").exists(), "query.zarr went with gallery.zarr"
    query, kept = ingest(source, tmp_path / "out", allow_zero=True)
    assert (query.n_zero_rows, kept.n_zero_rows, kept.allow_zero) == (0, 2, True)
    assert open_features(source, "gallery").first_zero_rows == (4, 40)


def test_what_is_dropped_is_counted_side_by_side(tmp_path: Path) -> None:
    source = save_model(
        tmp_path / "a.npz", 1, query_label=np.arange(1, 31), gallery_label=np.repeat([-1, 1, 2, 3, 4], 10)
    )  # fmt: skip
    query, gallery = ingest(source, tmp_path / "out", drop_pids=[-1, 2, 77])
    assert query.notes == ["left out 1 of 30 rows: pid 2; no row has pid -1, 77"]
    assert gallery.notes == ["left out 20 of 50 rows: pid -1, 2; no row has pid 77"]
    assert open_features(source, "gallery", drop_pids=[4]).notes == ["left out 10 of 50 rows: pid 4"]
    (note,) = open_features(source, "gallery", drop_pids=[4, *range(100, 1000)]).notes
    assert note.startswith("left out 10 of 50 rows: pid 4; no row has pid 100, 101")
    assert note.endswith("and 890 more")
    assert ingest(source, tmp_path / "whole")[0].notes == []


def test_multi_query_features_are_named_and_can_be_read(tmp_path: Path) -> None:
    io = pytest.importorskip("scipy.io")
    multi = make_arrays(90, seed=3)
    held = model_arrays(1) | {"mquery_f": multi.features, "mquery_label": multi.pids, "mquery_cam": multi.camids}
    io.savemat(tmp_path / "a.mat", held)
    query, gallery = ingest(tmp_path / "a.mat", tmp_path / "out")
    (note,) = [note for note in query.notes if "mquery_f" in note]
    assert "mquery_label, mquery_cam" in note
    assert "\n" not in note
    assert not [note for note in gallery.notes if "mquery" in note]
    assert query.n_rows == 30
    names = {"features": "mquery_f", "pids": "mquery_label", "camids": "mquery_cam"}
    (store,) = ingest(tmp_path / "a.mat", tmp_path / "multi.zarr", names)
    np.testing.assert_array_equal(store.read(0, 90), multi.features)
    np.testing.assert_array_equal(store.camids, multi.camids)
    assert not [note for note in store.notes if "mquery" in note]


def test_dropping_the_zero_rows_makes_them_no_reason(tmp_path: Path) -> None:
    features = np.eye(4, 3, dtype=np.float32)
    np.savez(tmp_path / "a.npz", features=features, pids=[1, 2, 3, -1])
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "out.zarr", drop_pids=[-1])
    assert (store.n_rows, store.n_zero_rows) == (3, 0)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"gallery_f": np.full((50, 7), np.nan, np.float32)}, "NaN in 50 rows"),
        ({"gallery_label": np.arange(49)}, "49 entries for 50 rows"),
        ({"gallery_f": np.ones(50, np.float32)}, r"must be \(n, dim\)"),
        ({"gallery_cam": np.ones((50, 2))}, "one label per row"),
    ],
)
def test_a_bad_gallery_leaves_no_query(tmp_path: Path, changed: dict[str, np.ndarray], what: str) -> None:
    source = save_model(tmp_path / "a.npz", 1, **changed)
    with pytest.raises(InputError, match=what):
        ingest(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


class Stopped(BaseException):
    """As an interrupt, it is no Exception."""


def stop(done: int, total: int, what: str) -> None:
    raise Stopped


_ROWS = np.random.default_rng(0).standard_normal((400, 16)).astype(np.float32)
_LAST_NAN = np.vstack([_ROWS[:-1], np.full((1, 16), np.nan, np.float32)])
_LAST_ZERO = np.vstack([_ROWS[:-1], np.zeros((1, 16), np.float32)])
_TWO = {"query_f": _ROWS, "query_label": np.arange(400), "gallery_label": np.arange(400)}

FAILING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "not finite": ({"features": _LAST_NAN, "pids": np.arange(400)}, {}),
    "zeros": ({"features": _LAST_ZERO, "pids": np.arange(400)}, {}),
    "gallery not finite": ({**_TWO, "gallery_f": _LAST_NAN}, {}),
    "gallery of zeros": ({**_TWO, "gallery_f": _LAST_ZERO}, {}),
    "labels too few": ({"features": _ROWS, "pids": np.arange(399)}, {}),
    "no such dtype": ({"features": _ROWS, "pids": np.arange(400)}, {"dtype": "int8"}),
    "no such chunk": ({"features": _ROWS, "pids": np.arange(400)}, {"chunk_rows": 0}),
    "stopped": ({**_TWO, "gallery_f": _ROWS}, {"progress": stop}),
}


def save_parquet(path: Path, held: dict[str, Any]) -> None:
    columns = {name: array if array.ndim == 1 else list(array) for name, array in held.items()}
    pq.write_table(pa.table(columns), path, write_page_checksum=True)


def save_hdf5(path: Path, held: dict[str, Any]) -> None:
    with h5py.File(path, "w") as file:
        for name, array in held.items():
            file.create_dataset(name, data=array, chunks=(50, *array.shape[1:]), compression="gzip", fletcher32=True)


_SAVERS: dict[str, Callable[[Path, dict[str, Any]], object]] = {
    "a.npz": lambda path, held: np.savez_compressed(path, **held),
    "fortran.npz": lambda path, held: np.savez_compressed(path, **{k: np.asfortranarray(v) for k, v in held.items()}),
    "a.mat": lambda path, held: scipy.io.savemat(path, held, do_compression=True),
    "a.h5": save_hdf5,
    "a.parquet": save_parquet,
}


def everything_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("overwrites", [False, True])
@pytest.mark.parametrize(
    ("saver", "failing"),
    [
        (saver, failing)
        for saver in _SAVERS
        for failing in (*FAILING, "damaged", "cut short")
        # Columns of a table have one length.
        if (saver, failing) != ("a.parquet", "labels too few")
    ],
)
def test_whatever_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saver: str, failing: str, overwrites: bool
) -> None:
    """No store, lock, temporary file or new folder; and a store that was to be replaced is as it was."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    held, options = FAILING.get(failing, ({"features": _ROWS, "pids": np.arange(400)}, {}))
    path, output = tmp_path / saver, tmp_path / "new" / "folder" / "out"
    _SAVERS[saver](path, held)
    if failing == "damaged":
        # Where the features are.
        flip_bit(path)
    elif failing == "cut short":
        path.write_bytes(path.read_bytes()[:-2000])
    if overwrites:
        for each in [output / "query.zarr", output / "gallery.zarr"] if "query_f" in held else [output]:
            FeatureSet.from_arrays(_ROWS, np.arange(400)).save(each)
    before = everything_in(tmp_path)
    with pytest.raises((InputError, StoreError, Stopped)):
        ingest(path, output, overwrite=overwrites, **options)
    assert everything_in(tmp_path) == before


def test_existing_stores_are_kept_without_overwrite(tmp_path: Path) -> None:
    source = save_model(tmp_path / "a.npz", 1)
    first = ingest(source, tmp_path / "out")
    with pytest.raises(StoreExistsError, match="already a complete store"):
        ingest(source, tmp_path / "out")
    again = ingest(source, tmp_path / "out", chunk_rows=9, overwrite=True)
    assert [store.content_digest for store in again] == [store.content_digest for store in first]
    assert again[0].chunk_rows == 9
    in_place = ingest(tmp_path / "out", tmp_path / "out", chunk_rows=11, overwrite=True)
    assert [store.content_digest for store in in_place] == [store.content_digest for store in first]
    assert in_place[0].chunk_rows == 11


@pytest.mark.parametrize("what", ["pids", "camids"])
def test_labels_by_name_and_by_file_are_not_chosen_between(tmp_path: Path, what: str) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((3, 2)), pids=np.arange(3), mine=np.ones(3))
    np.save(tmp_path / "labels.npy", np.arange(3))
    names, files = {what: "mine"}, {f"{what}_file": tmp_path / "labels.npy"}
    for read in (lambda **given: ingest(output=tmp_path / "out.zarr", **given), open_features):
        source = {"location" if read is open_features else "source": tmp_path / "a.npz"}
        with pytest.raises(InputError, match=rf"{what} are named twice: .*'mine'.*labels\.npy.*give one of them"):
            read(**source, names=names, **files)
    assert not (tmp_path / "out.zarr").exists()
    # What goes by a customary name only is no choice of the user's, and the file is.
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "out.zarr", **files)
    assert getattr(store, what).tolist() == [0, 1, 2]


def test_two_candidates_are_not_guessed_between(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((3, 2)), pids=np.arange(3), labels=np.ones(3))
    with pytest.raises(InputError, match=r"pids and labels could both be pids; choose one with --pids of .*\(pids\)"):
        ingest(tmp_path / "a.npz", tmp_path / "out.zarr")
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "out.zarr", ArrayNames(pids="labels"))
    assert store.pids.tolist() == [1, 1, 1]


def test_misspelt_options_and_names_get_a_suggestion(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=np.ones((3, 2)), pids=np.arange(3))
    with pytest.raises(InputError, match="did you mean 'features'"):
        ingest(tmp_path / "a.npz", tmp_path / "out.zarr", {"feature": "features"})
    with pytest.raises(InputError, match="did you mean 'features'"):
        ingest(tmp_path / "a.npz", tmp_path / "out.zarr", {"features": "featurs"})


def test_further_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", feats=np.ones((3, 2)), y=[1, 2, 3], clothes_id=[7, 8, 9], tracklet=[0, 0, 1])
    (store,) = ingest(tmp_path / "a.npz", tmp_path / "out.zarr")
    assert {name: values.tolist() for name, values in store.columns.items()} == {
        "clothes": [7, 8, 9], "tracklet": [0, 0, 1]
    }  # fmt: skip


def test_progress_counts_rows_of_both_sides(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    ingest(
        save_model(tmp_path / "a.npz", 1), tmp_path / "out", progress=lambda done, total, _: seen.append((done, total))
    )
    assert seen == [(30, 80), (80, 80)]


BOUNDED = """
import resource, sys
from reid_dist.stores import ingest
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
(store,) = ingest(sys.argv[1], sys.argv[2], pids_file=sys.argv[3], allow_zero=True)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_is_bounded(tmp_path: Path) -> None:
    """512 MiB of features (a sparse file of zeros) within 160 MiB over what the imports take."""
    n, dim = 65_536, 2048
    np.lib.format.open_memmap(tmp_path / "big.npy", mode="w+", dtype=np.float32, shape=(n, dim))
    np.save(tmp_path / "pids.npy", np.arange(n))
    arguments = [str(tmp_path / name) for name in ("big.npy", "out.zarr", "pids.npy")]
    done = subprocess.run(
        [sys.executable, "-c", BOUNDED, *arguments], capture_output=True, text=True, check=True
    )  # fmt: skip
    assert int(done.stdout) < 160
    assert FeatureSet.open(tmp_path / "out.zarr").n_zero_rows == n


class TestRealFiles:
    @pytest.mark.parametrize(
        ("name", "shapes", "first_pids"),
        [("market1501_sample.mat", [(100, 1536), (86, 1536)], [608, 750]),
         ("sketch_photo.mat", [(50, 512), (100, 512)], [151, 151])],
    )  # fmt: skip
    def test_two_sides(
        self, shared_data: Callable[[str], Path], tmp_path: Path, name: str, shapes: list[tuple[int, int]],
        first_pids: list[int],
    ) -> None:  # fmt: skip
        loadmat = pytest.importorskip("scipy.io").loadmat
        stores = ingest(shared_data(name), tmp_path / "out")
        assert [(store.n_rows, store.dim) for store in stores] == shapes
        assert [int(store.pids[0]) for store in stores] == first_pids
        whole = loadmat(shared_data(name))
        for role, store in zip(("query", "gallery"), stores, strict=True):
            np.testing.assert_array_equal(store.read(0, store.n_rows), whole[f"{role}_f"])
            np.testing.assert_array_equal(store.camids, whole[f"{role}_cam"][0])

    def test_one_side(self, shared_data: Callable[[str], Path], tmp_path: Path) -> None:
        (store,) = ingest(shared_data("veri776_sample.npz"), tmp_path / "out.zarr")
        assert (store.n_rows, store.dim, store.camids) == (500, 2048, None)
        assert np.unique(store.pids).size == 59
        norms = np.linalg.norm(store.read(0, 500), axis=1)
        assert 20 < norms.mean() < 32


@pytest.mark.parametrize("role", ["query", "gallery"])
def test_rows_that_are_not_finite_are_those_of_a_side(tmp_path: Path, role: str) -> None:
    held = model_arrays(1)
    held[f"{role}_f"][[2, 7]] = np.nan
    source = tmp_path / "a.npz"
    np.savez(source, **held)
    words = rf"{role} features of .*a\.npz must be finite: found NaN in 2 rows \(first: 2, 7\)"
    with pytest.raises(InputError, match=words):
        ingest(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match=words):
        open_features(source, role)


def test_a_file_of_distances_leads_to_the_option(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", distmat=np.ones((3, 4)), query_pids=np.arange(3), gallery_pids=np.arange(4))
    with pytest.raises(
        InputError, match=r"(?s)no features, and an array 'distmat' .* --distances FILE.*evaluate_distances"
    ):
        ingest(tmp_path / "a.npz", tmp_path / "out")
    np.savez(tmp_path / "b.npz", distractors=np.ones((3, 4)))
    with pytest.raises(InputError, match=r"found no features in .*; name the array"):
        ingest(tmp_path / "b.npz", tmp_path / "out")


def test_a_folder_of_stores_that_number_texts_differently(tmp_path: Path) -> None:
    """Rows that are appended to one of the two number its texts anew, or give names to what were numbers."""
    rng = np.random.default_rng(1)
    people, others = np.array(["dora", "7", "bert", "-1"])[rng.integers(0, 4, 60)], np.array(["7", "anna"] * 10)

    def held(pids: Any, start: int) -> FeatureSet:
        rows = np.random.default_rng(start).standard_normal((len(pids), 4)).astype(np.float32)
        return FeatureSet.from_arrays(rows, pids, camids=np.arange(len(pids)) % 3)

    for name, query_pids, gallery_pids in (
        ("texts", people[:20], people[20:]),
        ("numbers", rng.integers(-1, 9, 20), rng.integers(-1, 9, 40)),
    ):
        folder = tmp_path / name
        query = held(query_pids, 0).save(folder / "query.zarr")
        held(gallery_pids, 1).save(folder / "gallery.zarr")
        held(others, 2).save(folder / "more.zarr")
        gallery = append(folder / "gallery.zarr", folder / "more.zarr")
        near, far = ingest(folder, tmp_path / f"{name}-again")
        for found, given in ((near, query), (far, gallery)):
            assert [*map(str, given_labels(found.pids, found.pid_names))] == [
                *map(str, given_labels(given.pids, given.pid_names))
            ]
        assert near.pid_names == far.pid_names
        expected = evaluate(query, gallery)
        assert evaluate(near, far).metrics == expected.metrics
        assert expected.metrics["mAP"] > 0
