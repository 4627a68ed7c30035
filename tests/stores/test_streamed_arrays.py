"""Dask, Zarr and HDF5 arrays and memory maps in `FeatureSet.from_arrays`: read once, chunk by chunk, into a store."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import dask
import numpy as np
import pytest
import zarr

from reid_dist import FeatureSet, evaluate
from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.stores import writer as writer_module

N_ROWS, DIM = 230, 12
FEATURES = np.random.default_rng(0).standard_normal((N_ROWS, DIM)).astype(np.float32)
PIDS = np.arange(N_ROWS) % 7
CAMIDS = np.arange(N_ROWS) % 3
BLOCK_ROWS = 40


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Stream everything, some forty rows at a time; return the directory for temporary stores."""
    monkeypatch.setattr(writer_module, "_HELD_BYTES", 0)
    monkeypatch.setattr(writer_module, "_BLOCK_BYTES", BLOCK_ROWS * DIM * 4)
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


class Counting:
    """Chunks of rows that are read on demand, each of them counted."""

    def __init__(self, values: np.ndarray, rows: int) -> None:
        self.values, self.shape, self.dtype, self.chunks = values, values.shape, values.dtype, (rows, values.shape[1])
        self.reads: list[tuple[int, int]] = []

    def __getitem__(self, rows: slice) -> np.ndarray:
        self.reads.append((rows.start, min(rows.stop, len(self.values))))
        return self.values[rows]


def in_memory(values: np.ndarray = FEATURES) -> FeatureSet:
    return FeatureSet.from_arrays(np.array(values), PIDS, CAMIDS)


@pytest.mark.parametrize("rows", [1, 7, 40, 64, 230, 500])
def test_every_row_is_read_once_in_whole_chunks(rows: int) -> None:
    array = Counting(FEATURES, rows)
    made = FeatureSet.from_arrays(array, PIDS, CAMIDS)
    assert made.content_digest == in_memory().content_digest
    starts, stops = zip(*array.reads, strict=True)
    assert starts == (0, *stops[:-1])
    assert stops[-1] == N_ROWS
    assert all(start % rows == 0 for start in starts)
    assert max(stop - start for start, stop in array.reads) <= max(BLOCK_ROWS, rows)


@pytest.mark.parametrize("chunks", [(7, 12), (100, 5), ((1, 60, 60, 109), 12), (230, 12)])
def test_chunks_of_a_dask_array_are_computed_once(chunks: tuple) -> None:
    import dask.array as da

    computed: Counter = Counter()

    def note(block: np.ndarray, block_info: dict) -> np.ndarray:
        computed[tuple(block_info[0]["chunk-location"])] += 1
        return block

    array = da.from_array(FEATURES, chunks=chunks)
    # A client of another test would compute them, and count, in processes of its own.
    with dask.config.set(scheduler="threads"):
        made = FeatureSet.from_arrays(array.map_blocks(note, dtype=array.dtype), da.from_array(PIDS), CAMIDS)
    assert made.content_digest == in_memory().content_digest
    assert set(computed.values()) == {1}
    assert len(computed) == np.prod(array.numblocks)


def zarr_array(folder: Path) -> object:
    return zarr.create_array(str(folder / "a.zarr"), data=FEATURES, chunks=(33, 5))


def hdf5_dataset(folder: Path) -> object:
    return pytest.importorskip("h5py").File(folder / "a.h5", "w").create_dataset("x", data=FEATURES, chunks=(33, 5))


def plain_hdf5_dataset(folder: Path) -> object:
    return pytest.importorskip("h5py").File(folder / "a.h5", "w").create_dataset("x", data=FEATURES)


def mapped(folder: Path, dtype: str, order: str = "C") -> np.memmap:
    path = folder / "a.npy"
    array = np.lib.format.open_memmap(path, "w+", dtype=dtype, shape=FEATURES.shape, fortran_order=order == "F")
    array[:] = FEATURES
    array.flush()
    return np.load(path, mmap_mode="r")


@pytest.mark.parametrize("make", [zarr_array, hdf5_dataset, plain_hdf5_dataset])
def test_arrays_on_disk(make, tmp_path: Path) -> None:
    made = FeatureSet.from_arrays(make(tmp_path), PIDS, CAMIDS)
    assert made.is_stored
    assert made.content_digest == in_memory().content_digest
    assert made.describe()["uri"].endswith(" array")


@pytest.mark.parametrize(("dtype", "order"), [("f8", "C"), (">f4", "C"), ("f4", "F"), ("f2", "F")])
def test_memory_maps_that_must_be_converted(dtype: str, order: str, tmp_path: Path) -> None:
    made = FeatureSet.from_arrays(mapped(tmp_path, dtype, order), PIDS, CAMIDS)
    assert made.is_stored
    values = FEATURES.astype(dtype.removeprefix(">"))
    assert made.content_digest == in_memory(values).content_digest
    assert made.notes == in_memory(values).notes


def test_a_memory_map_of_a_kept_dtype_stays_mapped(tmp_path: Path) -> None:
    array = mapped(tmp_path, "f4")
    made = FeatureSet.from_arrays(array, PIDS, CAMIDS)
    assert not made.is_stored
    np.testing.assert_array_equal(made.read(0, N_ROWS), FEATURES)
    assert np.shares_memory(made._features, array)


def test_a_memory_map_whose_file_changes_is_refused(tmp_path: Path) -> None:
    """Its rows are compared with those that were there when the set was made, as those of a store are."""
    made = FeatureSet.from_arrays(mapped(tmp_path, "f4")[:], PIDS, CAMIDS)
    sent = pickle.loads(pickle.dumps(made))
    writable = np.lib.format.open_memmap(tmp_path / "a.npy", "r+")
    writable[[7, 8]] = writable[[8, 7]]
    writable.flush()
    rows = np.array([3, 8, 20])
    for read in (lambda: made.read(0, N_ROWS), lambda: made.read_rows(rows), lambda: evaluate(made, made)):
        with pytest.raises(DamagedStoreError, match="features of a memory map were changed while in use"):
            read()
    np.testing.assert_array_equal(made.read_rows(rows[[0, 2]]), FEATURES[rows[[0, 2]]])
    np.testing.assert_array_equal(made.read(9, N_ROWS), FEATURES[9:])
    np.testing.assert_array_equal(sent.read(0, N_ROWS), FEATURES)


def test_small_arrays_are_held_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    import dask.array as da

    monkeypatch.setattr(writer_module, "_HELD_BYTES", FEATURES.nbytes)
    assert not FeatureSet.from_arrays(da.from_array(FEATURES, chunks=50), PIDS, CAMIDS).is_stored


def test_the_result_is_that_of_arrays_in_memory() -> None:
    lazy = FeatureSet.from_arrays(Counting(FEATURES, 50), PIDS, CAMIDS)
    found = evaluate(lazy, in_memory(), protocol="no_cameras", confidence=None)
    assert (
        found.result_digest == evaluate(in_memory(), in_memory(), protocol="no_cameras", confidence=None).result_digest
    )
    assert found.inputs["query"]["content_digest"] == in_memory().content_digest


def test_workers_read_stores_in_the_workspace(two_workers, tmp_path: Path) -> None:
    expected = evaluate(in_memory(), in_memory(), protocol="no_cameras", confidence=None).result_digest
    workspace = tmp_path / "workspace"
    outside = FeatureSet.from_arrays(Counting(FEATURES, 50), PIDS, CAMIDS)
    inside = FeatureSet.from_arrays(Counting(FEATURES, 50), PIDS, CAMIDS, workspace=workspace)
    for lazy, copies in ((inside, 0), (outside, 1)):
        found = evaluate(lazy, lazy, protocol="no_cameras", confidence=None, client=two_workers, workspace=workspace)
        assert found.result_digest == expected
        assert len(list(workspace.glob("features-*.zarr"))) == copies


@pytest.mark.slow
def test_the_store_is_removed_with_the_set(small: Path, tmp_path: Path) -> None:
    made = FeatureSet.from_arrays(Counting(FEATURES, 50), PIDS, CAMIDS)
    assert len(list(small.iterdir())) == 1
    kept = made.save(tmp_path / "kept.zarr")
    del made
    gc.collect()
    assert list(small.iterdir()) == []
    assert kept.content_digest == in_memory().content_digest
    workspace = tmp_path / "workspace"
    made = FeatureSet.from_arrays(Counting(FEATURES, 50), PIDS, CAMIDS, workspace=workspace)
    assert len(list(workspace.glob("arrays-*.zarr"))) == 1
    assert list(small.iterdir()) == []
    del made
    gc.collect()
    assert list(workspace.iterdir()) == []


def test_what_cannot_be_kept_leaves_nothing(small: Path) -> None:
    import dask.array as da

    wrong = FEATURES.copy()
    wrong[57, 3] = np.nan
    with pytest.raises(InputError, match=r"NaN in 1 row \(row 57\)"):
        FeatureSet.from_arrays(Counting(wrong, 50), PIDS)
    array = Counting(FEATURES, 50)
    with pytest.raises(InputError, match="pids"):
        FeatureSet.from_arrays(array, PIDS[:-1])
    # Labels are checked before any row is read.
    assert array.reads == []
    unknown = da.from_array(FEATURES, chunks=50)
    with pytest.raises(InputError, match="compute_chunk_sizes"):
        FeatureSet.from_arrays(unknown[unknown[:, 0] > 0], PIDS)
    assert list(small.iterdir()) == []


PEAK = """
import resource, sys
import dask
import dask.array as da
import numpy as np
from reid_dist import FeatureSet
def block(block_info=None):
    (first, last), (_, dim) = block_info[None]["array-location"]
    return np.random.default_rng(first).standard_normal((last - first, dim), np.float32)
def made(n_rows):
    array = da.map_blocks(block, chunks=((4000,) * (n_rows // 4000), (512,)), dtype=np.float32)
    return FeatureSet.from_arrays(array, np.zeros(n_rows, int))
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
made(40_000)
before = peak()
large = made(200_000)
print(peak() - before, large.n_rows * large.dim * 4 / 2**20)
"""


@pytest.mark.slow
def test_the_peak_is_a_small_part_of_the_array(tmp_path: Path) -> None:
    """400 MB, after 80 MB that warm up what stays."""
    done = subprocess.run(
        [sys.executable, "-c", PEAK], capture_output=True, text=True, check=True, timeout=280, cwd=tmp_path
    )
    growth, size = map(float, done.stdout.split())
    assert size > 390
    assert growth < 150
