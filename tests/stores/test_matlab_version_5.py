"""MATLAB files of version 5: values as scipy reads them, and bytes that are no such file."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from reid_dist.errors import StoreError
from reid_dist.stores import open_features
from reid_dist.stores.importers.source import open_source

_FEATURES = np.random.default_rng(0).standard_normal((30, 8)).astype(np.float32)
_PIDS = np.arange(30.0) % 5
_NAMES = [f"{row % 5:04d}_c1s1_é{row}.jpg" for row in range(30)]
_OF_MATLAB = Path(scipy.io.__file__).parent / "matlab" / "tests" / "data"


def saved(compressed: bool, **held: Any) -> bytes:
    file = io.BytesIO()
    scipy.io.savemat(file, held, do_compression=compressed)
    return file.getvalue()


def every_kind(compressed: bool) -> bytes:
    return saved(
        compressed,
        features=_FEATURES,
        pids=_PIDS,
        camids=np.arange(30, dtype=np.uint8),
        paths=np.array(_NAMES, dtype=object),
        characters=np.array([f"row {row}" for row in range(30)]),
        sparse=scipy.sparse.random(9, 9, 0.3, format="csc", rng=1),
        record={"a": 1, "b": {"c": _FEATURES}},
        nested=np.array([[np.arange(6.0).reshape(2, 3), np.arange(4.0)]], dtype=object),
        complex=np.array([1 + 2j]),
        none=np.zeros((0, 3)),
        flags=np.array([[True, False]]),
        cube=np.arange(24.0).reshape(2, 3, 4),
    )


# ---- values ----------------------------------------------------------------------------------------------------------


def assert_as_scipy_reads(path: Path) -> int:
    """Compare all arrays of numbers and characters; return how many there were."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = scipy.io.loadmat(path)
    compared = 0
    with open_source(str(path), "mat") as source:
        for name, array in source.arrays.items():
            expected = known[name]
            if expected.dtype.kind == "U":
                np.testing.assert_array_equal(array.whole(), np.char.rstrip(expected))
            elif expected.dtype.kind != "O":
                assert array.dtype.newbyteorder("=") == expected.dtype.newbyteorder("=")
                np.testing.assert_array_equal(array.whole(), expected)
                np.testing.assert_array_equal(array.read(1, len(expected)), expected[1:])
            compared += expected.dtype.kind != "O"
    return compared


@pytest.mark.parametrize("compressed", [False, True])
def test_arrays_are_those_of_scipy(tmp_path: Path, compressed: bool) -> None:
    (tmp_path / "a.mat").write_bytes(every_kind(compressed))
    assert assert_as_scipy_reads(tmp_path / "a.mat") == 6
    held = open_source(str(tmp_path / "a.mat"))
    assert held.arrays["paths"].whole().tolist() == _NAMES
    assert held.refused == {
        "sparse": "a MATLAB sparse array",
        "record": "a MATLAB struct",
        "complex": "a complex MATLAB double",
        "none": "empty",
    }
    with pytest.raises(StoreError, match="cell 0 of nested holds a MATLAB double of shape"):
        held.arrays["nested"].whole()


@pytest.mark.skipif(not _OF_MATLAB.is_dir(), reason="scipy is installed without its test files")
def test_files_of_matlab_are_read_as_scipy_reads_them() -> None:
    files = [path for path in sorted(_OF_MATLAB.glob("test*_[567]*.mat")) if "hdf5" not in path.name]
    files += [_OF_MATLAB / "big_endian.mat", _OF_MATLAB / "little_endian.mat"]
    assert sum(map(assert_as_scipy_reads, files)) > 20
    with pytest.raises(StoreError, match=r"none of MATLAB's versions 5 and 7\.3; save it again with -v7"):
        open_source(str(_OF_MATLAB / "testdouble_4.2c_SOL2.mat"))


def element(kind: int, data: bytes, order: str = "<") -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


def matrix(name: bytes, number: int, shape: tuple[int, ...], values: bytes, order: str = "<") -> bytes:
    head = element(6, struct.pack(f"{order}II", number, 0), order)
    return element(
        14, head + element(5, struct.pack(f"{order}{len(shape)}i", *shape), order) + element(1, name, order) + values,
        order,
    )  # fmt: skip


def file_of(*elements: bytes, order: str = "<") -> bytes:
    mark = b"IM" if order == "<" else b"MI"
    return b"MATLAB 5.0 MAT-file".ljust(124) + struct.pack(f"{order}H", 0x0100) + mark + b"".join(elements)


def pids(order: str = "<") -> bytes:
    return matrix(b"pids", 6, (30, 1), element(9, _PIDS.astype(f"{order}f8").tobytes(), order), order)


def features(order: str = "<", kind: int = 7, shape: tuple[int, ...] = (30, 8)) -> bytes:
    return matrix(b"features", 7, shape, element(kind, _FEATURES.T.astype(f"{order}f4").tobytes(), order), order)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("compressed", [False, True])
def test_either_byte_order(tmp_path: Path, order: str, compressed: bool) -> None:
    parts = [features(order), pids(order)]
    if compressed:
        packed = [zlib.compress(part) for part in parts]
        parts = [struct.pack(f"{order}II", 15, len(part)) + part for part in packed]
    (tmp_path / "a.mat").write_bytes(file_of(*parts, order=order))
    found = open_features(tmp_path / "a.mat")
    np.testing.assert_array_equal(found.read(0, 30), _FEATURES)
    assert found.pids.tolist() == _PIDS.tolist()


def test_characters_beyond_latin_1(tmp_path: Path) -> None:
    """MATLAB keeps UTF-16 units, column by column."""
    texts = ["é😀", "ab "]
    units = np.array([np.frombuffer(text.encode("utf-16-le"), "<u2") for text in texts])
    names = matrix(b"paths", 4, units.shape, element(17, units.tobytes(order="F")))
    (tmp_path / "a.mat").write_bytes(file_of(names))
    assert open_source(str(tmp_path / "a.mat")).arrays["paths"].whole().tolist() == ["é😀", "ab"]


# ---- what is no such file --------------------------------------------------------------------------------------------


def compressed_element(data: bytes) -> bytes:
    packed = zlib.compress(data)
    return struct.pack("<II", 15, len(packed)) + packed


def read_all(path: str, names: Sequence[str] = ("features", "pids", "paths", "characters")) -> None:
    with open_source(path, "mat") as source:
        for name in names:
            if name in source.arrays:
                source.arrays[name].whole()


_CLAIMS_2_GB = struct.pack("<II", 14, 0x7FFFFFF8) + features()[8:]

HOSTILE = {
    "type 20": (features(kind=20), "are of the type 20"),
    "type 100000": (features(kind=100_000), "are of the type 34464"),
    "type 8": (features(kind=8), "are of the type 8"),
    "negative": (features(shape=(-30, 8)), r"a matrix is of shape \(-30, 8\)"),
    "both negative": (features(shape=(-30, -8)), r"a matrix is of shape \(-30, -8\)"),
    "giant": (features(shape=(2**31 - 1, 2**31 - 1)), "cannot be in the 960 bytes of its values"),
    "giant and none": (features(shape=(2**31 - 1, 0)), "cannot be in the 960 bytes"),
    "more values": (features(shape=(30, 9)), "cannot be in the 960 bytes"),
    "many dimensions": (features(shape=(1,) * 40), "the shape of a matrix is of type 5 and 160 bytes"),
    "one dimension": (features(shape=(240,)), "the shape of a matrix takes 4 bytes"),
    "class": (matrix(b"features", 99, (30, 8), b""), "unknown class 99"),
    "many cells": (matrix(b"paths", 1, (2**31 - 1, 1), b""), "cannot be in 0 bytes"),
    "claims 2 GB": (_CLAIMS_2_GB, "claims 2147483640 bytes, and"),
    "claims 2 GB compressed": (compressed_element(_CLAIMS_2_GB), "claims 2147483648 bytes, and it holds 1024"),
    "cut short": (features()[:500], "claims 1016 bytes, and "),
    "compressed and cut short": (compressed_element(features()[:500]), "claims 1024 bytes, and it holds 500"),
    "compressed twice": (compressed_element(compressed_element(features())), "type 15 is in the place of a matrix"),
    "not compressed": (element(15, bytes(64)), "compressed values in it"),
    "twice": (features() + features(), "holds 'features' twice; keep one of the two"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_impossible_elements_are_refused_and_leave_nothing(
    reid_dist: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data, message = HOSTILE[name]
    monkeypatch.chdir(tmp_path)
    Path("a.mat").write_bytes(file_of(data, pids()))
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match=message):
            read_all("a.mat")
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()
    reid_dist("ingest", "a.mat", "--output", "new/a.zarr").assert_refused()
    reid_dist("evaluate", "a.mat", "a.mat").assert_refused()
    assert [path.name for path in tmp_path.iterdir()] == ["a.mat"]


_WORDS = (0, 1, 5, 14, 15, 20, 99, 1000, 0x10000, 0x1000000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF8, 0xFFFFFFFF)


def mutate(rng: random.Random, data: bytearray) -> None:
    """Change a byte or a word, cut something out, or put something in; once or a few times."""
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at, how = rng.randrange(len(data)), rng.random()
        if how < 0.4:
            data[at] = rng.randrange(256)
        elif how < 0.8:
            struct.pack_into("<I", data, min(at, len(data) - 4) & ~3, rng.choice(_WORDS))
        elif how < 0.9:
            del data[at : min(at + rng.randrange(1, 40), len(data) - 8)]
        else:
            data[at:at] = rng.randbytes(rng.randrange(1, 16))


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Mutate a file, or the elements within its compressed ones."""
    if data[128] == 14 or rng.random() < 0.3:
        changed = bytearray(data)
        mutate(rng, changed)
        return bytes(changed)
    made, at = data[:128], 128
    while at < len(data):
        n_bytes = struct.unpack_from("<I", data, at + 4)[0]
        inner = bytearray(zlib.decompress(data[at + 8 : at + 8 + n_bytes]))
        if rng.random() < 0.5:
            mutate(rng, inner)
        made += compressed_element(bytes(inner))
        at += 8 + n_bytes
    return made


@pytest.mark.parametrize("n", [200, pytest.param(3000, marks=pytest.mark.slow)])
def test_mutated_files_are_read_or_refused(tmp_path: Path, n: int) -> None:
    rng = random.Random(n)
    bases = [every_kind(False), every_kind(True), saved(True, features=_FEATURES, pids=_PIDS)]
    path, refused = tmp_path / "a.mat", 0
    tracemalloc.start()
    try:
        for _ in range(n):
            path.write_bytes(mutated(rng, rng.choice(bases)))
            try:
                read_all(str(path))
            except StoreError:
                refused += 1
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert 0.2 * n < refused < 0.9 * n
