"""Arrays whose rows cannot be read where they are: every value is decoded once, in bounded memory."""

from __future__ import annotations

import itertools
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.io
import zarr
from support.peaks import needs_peaks, run_and_read

from reid_dist.errors import InputError, StoreError
from reid_dist.stores import ingest
from reid_dist.stores.importers import file_rows
from reid_dist.stores.importers.source import open_source

N, DIM = 60, 11
VALUES = np.arange(1, N * DIM + 1, dtype=np.float32).reshape(N, DIM)
Write = Callable[[Path, np.ndarray], Path]


def in_hdf5(chunk: tuple[int, ...], **filters: Any) -> Write:
    def write(path: Path, values: np.ndarray) -> Path:
        with h5py.File(path / "a.h5", "w") as file:
            chunks = tuple(map(min, chunk, values.shape))
            file.create_dataset("features", data=values, chunks=chunks, **(filters or {"compression": "gzip"}))
            file.create_dataset("pids", data=np.arange(len(values)), chunks=(7,), compression="gzip")
        return path / "a.h5"

    return write


def in_matlab_hdf5(chunk: tuple[int, int]) -> Write:
    def write(path: Path, values: np.ndarray) -> Path:
        with h5py.File(path / "a.mat", "w", userblock_size=512) as file:
            chunks = tuple(map(min, chunk, values.T.shape))
            file.create_dataset("features", data=values.T, chunks=chunks, compression="gzip", shuffle=True)
            file["pids"] = np.arange(len(values))[np.newaxis]
        with (path / "a.mat").open("r+b") as raw:
            raw.write(b"MATLAB 7.3 MAT-file".ljust(116))
        return path / "a.mat"

    return write


def in_zarr(chunk: tuple[int, int], shard: tuple[int, int] | None = None) -> Write:
    def write(path: Path, values: np.ndarray) -> Path:
        group = zarr.create_group(path / "a.zarr")
        chunks = tuple(map(min, chunk, values.shape))
        group.create_array("features", data=values, chunks=chunks, shards=shard)
        group.create_array("pids", data=np.arange(len(values)), chunks=(7,))
        return path / "a.zarr"

    return write


def in_npz(path: Path, values: np.ndarray) -> Path:
    np.savez_compressed(path / "a.npz", features=np.asfortranarray(values), pids=np.arange(len(values)))
    return path / "a.npz"


def in_stored_npz(path: Path, values: np.ndarray) -> Path:
    np.savez(path / "a.npz", features=values, pids=np.arange(len(values)))
    return path / "a.npz"


def in_matlab(path: Path, values: np.ndarray) -> Path:
    held = {"features": values, "pids": np.arange(float(len(values)))}
    scipy.io.savemat(path / "a.mat", held, do_compression=True)
    return path / "a.mat"


def in_parquet(path: Path, values: np.ndarray) -> Path:
    """One row group, as most libraries write it."""
    features = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), values.shape[1])
    table = pa.table({"features": features, "pids": np.arange(len(values))})
    pq.write_table(table, path / "a.parquet", row_group_size=len(values), compression="none", use_dictionary=False)
    return path / "a.parquet"


_ALL = 1 << 40
WRITERS: dict[str, Write] = {
    "npz": in_npz,
    "npz, stored": in_stored_npz,
    "mat 5": in_matlab,
    "hdf5, one chunk": in_hdf5((_ALL, _ALL)),
    "hdf5, columns": in_hdf5((_ALL, 1)),
    "hdf5, rows": in_hdf5((7, _ALL)),
    "hdf5, blocks": in_hdf5((7, 4)),
    "hdf5, other filters": in_hdf5((7, 4), compression="lzf", shuffle=True, fletcher32=True),
    "mat 7.3, one chunk": in_matlab_hdf5((_ALL, _ALL)),
    "mat 7.3, columns": in_matlab_hdf5((1, _ALL)),
    "mat 7.3, blocks": in_matlab_hdf5((4, 7)),
    "zarr, one chunk": in_zarr((_ALL, _ALL)),
    "zarr, columns": in_zarr((_ALL, 8)),
    "zarr, blocks": in_zarr((7, 4)),
    "zarr, shards": in_zarr((7, 4), (14, 12)),
    "parquet": in_parquet,
}


@pytest.mark.parametrize("held_bytes", [0, 1 << 20])
@pytest.mark.parametrize("name", WRITERS)
def test_rows_come_in_any_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, held_bytes: int) -> None:
    monkeypatch.setattr(file_rows, "_HELD_BYTES", held_bytes)
    path = WRITERS[name](tmp_path, VALUES)
    with open_source(str(path)) as source:
        features, pids = source.arrays["features"], source.arrays["pids"]
        for start, stop in itertools.pairwise((0, 5, 30, 30, 53, 60)):
            np.testing.assert_array_equal(features.read(start, stop), VALUES[start:stop])
        for start, stop in ((59, 60), (0, 1), (6, 8), (13, 47)):
            np.testing.assert_array_equal(features.read(start, stop), VALUES[start:stop])
        np.testing.assert_array_equal(features.whole(), VALUES)
        np.testing.assert_array_equal(pids.whole().reshape(-1), np.arange(N))
    (store,) = ingest(path, tmp_path / "out.zarr", chunk_rows=9)
    np.testing.assert_array_equal(store.read(0, N), VALUES)


def counts_of(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> list[int]:
    """Bytes that calls of a method have returned."""
    found: list[int] = []
    before = getattr(owner, method)

    def counted(*words: Any, **more: Any) -> Any:
        made = before(*words, **more)
        found.append(memoryview(made).nbytes)
        return made

    monkeypatch.setattr(owner, method, counted)
    return found


@pytest.mark.parametrize(
    ("name", "owner", "method"),
    [
        ("npz", zipfile.ZipExtFile, "read"),
        ("hdf5, one chunk", h5py.Dataset, "__getitem__"),
        ("hdf5, blocks", h5py.Dataset, "__getitem__"),
        ("mat 7.3, columns", h5py.Dataset, "__getitem__"),
        ("zarr, one chunk", zarr.Array, "__getitem__"),
    ],
)
@pytest.mark.parametrize("held_bytes", [0, 1 << 20])
def test_every_value_is_decoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, owner: type, method: str, held_bytes: int
) -> None:
    monkeypatch.setattr(file_rows, "_HELD_BYTES", held_bytes)
    path = WRITERS[name](tmp_path, VALUES)
    with open_source(str(path)) as source:
        found = counts_of(monkeypatch, owner, method)
        for row in range(N):
            source.arrays["features"].read(row, row + 1)
        assert VALUES.nbytes <= sum(found) <= VALUES.nbytes + 256


def test_the_temporary_file_has_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the process, however that ends."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    with open_source(str(in_npz(tmp_path, VALUES))) as source:
        source.arrays["features"].read(0, 1)
        assert not list(place.iterdir())


def test_no_room_is_one_line_that_says_where(reid_dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = in_npz(tmp_path, VALUES)
    words = ("ingest", path, "--output", tmp_path / "new" / "a.zarr")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 7, 3))
        reid_dist(*words).assert_refused("a.npz: features.npy", "2.6 KiB", "3 B are free there", "set TMPDIR")
    # What is free may be less for this user, or be taken meanwhile.
    for buffering in (-1, 0):
        with monkeypatch.context() as patch:
            patch.setattr(file_rows, "unnamed_file", lambda: open("/dev/full", "r+b", buffering))  # noqa: B023, SIM115, PTH123
            reid_dist(*words).assert_refused("a.npz: features.npy", "No space left on device", "set TMPDIR")
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.npz"]


# ---- what is not there -----------------------------------------------------------------------------------------------


def test_rows_that_were_never_written_are_no_zeros(
    reid_dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with h5py.File("all.h5", "w") as file:
        file.create_dataset("features", (30_000_000, 512), "f4", chunks=(1024, 512))
        file.create_dataset("pids", (30_000_000,), "i8", chunks=(1024,))
    with h5py.File("plain.h5", "w") as file:
        file.create_dataset("features", (30_000_000, 512), "f4")
        file["pids"] = np.arange(3)
    with h5py.File("some.h5", "w") as file:
        features = file.create_dataset("features", (N, DIM), "f4", chunks=(7, 4), compression="gzip")
        features[:35] = VALUES[:35]
        file["pids"] = np.arange(N)
    with h5py.File("labels.h5", "w") as file:
        file["features"] = VALUES
        file.create_dataset("pids", (N,), "i8", chunks=(7,))[:14] = 5
    group = zarr.create_group("some.zarr")
    group.create_array("features", shape=(30_000_000, 512), chunks=(1024, 512), dtype="f4")[:2048] = 1
    group.create_array("pids", data=np.arange(3))
    files = sorted(Path().iterdir())
    for name, missing in {
        "all.h5": "'features' cannot be read: it is missing all of its values, which were never written",
        "plain.h5": "'features' cannot be read: it is missing all of its values, which were never written",
        "some.h5": "'features' cannot be read: it is missing 12 of its 27 chunks, which were never written",
        "labels.h5": "'pids' cannot be read: it is missing 7 of its 9 chunks, which were never written",
        "some.zarr": "'features' cannot be read: it is missing 29295 of its 29297 chunks, which were never written",
    }.items():
        reid_dist("ingest", name, "--output", "new/a.zarr").assert_refused(missing)
    assert sorted(Path().iterdir()) == files


def test_labels_of_zarr_may_be_chunks_of_zeros(tmp_path: Path) -> None:
    """Zarr leaves them out."""
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("features", data=VALUES, chunks=(7, 4))
    group.create_array("pids", data=np.repeat([0, 3], N // 2), chunks=(6,))
    assert not (tmp_path / "a.zarr/pids/c/0").exists()
    (store,) = ingest(tmp_path / "a.zarr", tmp_path / "out.zarr")
    assert store.pids.tolist() == [0] * 30 + [3] * 30


def test_chunks_that_do_not_fit_memory_are_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        features = file.create_dataset("features", (1 << 20, 256), "f4", chunks=(1 << 20, 256), compression="gzip")
        features.id.write_direct_chunk((0, 0), zlib.compress(b"\0" * 1000))
        file["pids"] = np.arange(1 << 20)
    with pytest.raises(InputError, match=r"in chunks of \(1048576, 256\), 1\.0 GiB each, .* 512 MiB at most"):
        ingest(tmp_path / "a.h5", tmp_path / "out.zarr")


def test_chunks_that_decode_to_more_than_they_hold_are_refused(tmp_path: Path) -> None:
    """HDF5 decodes whatever is there: of one megabyte a thousand."""
    with h5py.File(tmp_path / "a.h5", "w") as file:
        features = file.create_dataset("features", (N, DIM), "f4", chunks=(10, DIM), compression="gzip")
        features[:] = VALUES
        features.id.write_direct_chunk((20, 0), zlib.compress(bytes(20 << 20)))
        file["pids"] = np.arange(N)
    with pytest.raises(
        InputError, match=r"'features' cannot be read: it is damaged: a chunk of 440 bytes takes 20\d\d\d"
    ):
        ingest(tmp_path / "a.h5", tmp_path / "out.zarr")


@pytest.mark.parametrize("fortran", [False, True])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_headers_that_claim_another_size_are_refused(tmp_path: Path, fortran: bool, method: int) -> None:
    header = {"descr": "<f4", "fortran_order": fortran, "shape": (10**9, 512)}
    with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive, archive.open("features.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, header)
        member.write(bytes(4096))
    with pytest.raises(StoreError, match=r"takes 2048000000000 bytes, and features\.npy holds 4096"):
        open_source(str(tmp_path / "a.npz"))


# ---- memory ----------------------------------------------------------------------------------------------------------

_INGESTED = """
import os
import sys
os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # Others keep what is freed.
from support.peaks import peak_since, start_peak
from reid_dist import FeatureSet
from reid_dist.stores import ingest
import h5py, pyarrow.parquet, zarr
import numpy as np
small = FeatureSet.from_arrays(np.ones((3, 8), np.float32), [1, 2, 3])
small.save(sys.argv[2] + "/small.zarr")
before = start_peak(64)
ingest(sys.argv[1], sys.argv[2] + "/out.zarr")
print(peak_since(before))
"""


@pytest.mark.slow
@needs_peaks
@pytest.mark.parametrize(
    ("name", "most"),
    [
        ("npz", 90),
        ("npz, stored", 90),
        ("mat 5", 90),
        ("hdf5, columns", 90),
        ("mat 7.3, columns", 90),
        ("zarr, columns", 110),
        ("parquet", 110),
    ],
)
def test_memory_does_not_grow_with_the_array(tmp_path: Path, name: str, most: int) -> None:
    """128 MiB of features."""
    values = np.zeros((1 << 16, 512), np.float32)
    values[np.arange(1 << 16), np.arange(1 << 16) % 512] = 1
    path = WRITERS[name](tmp_path, values)
    (peak,) = run_and_read(_INGESTED, path, tmp_path)
    assert peak < most << 20
