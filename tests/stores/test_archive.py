"""Arrays in the workspace's files: what is written is read, without the parser that threads cannot share."""

from __future__ import annotations

import ast
import io
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from reid_dist.stores.archive import AnotherIdentityError, read_arrays, write_arrays

ARRAYS = {
    "integers": np.arange(12, dtype=np.int32).reshape(3, 4),
    "columns_first": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "none": np.empty((0, 5)),
    "one": np.array([7], np.uint16),
    "single": np.array(2.5),
    "flags": np.array([True, False]),
    "texts": np.array(["a", "bcd"]),
    "cube": np.arange(24, dtype=np.int64).reshape(2, 3, 4),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "part.npz"
    with path.open("wb") as out:
        write_arrays(out, ARRAYS)
    return path


def test_what_is_written_is_read(file: Path) -> None:
    found = read_arrays(file)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        np.testing.assert_array_equal(found[name], array)
        assert found[name].flags.writeable


def test_numpy_reads_it_too(file: Path) -> None:
    with np.load(file, allow_pickle=False) as content:
        assert {name: content[name].tolist() for name in content.files} == {
            name: array.tolist() for name, array in ARRAYS.items()
        }


@pytest.mark.parametrize("compressed", [False, True])
def test_equal_arrays_give_equal_bytes_at_any_time(monkeypatch: pytest.MonkeyPatch, *, compressed: bool) -> None:
    written = []
    for now in (1.0e9, 1.7e9):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        write_arrays(out := io.BytesIO(), ARRAYS, "one/0", compressed=compressed)
        written.append(out.getvalue())
    assert written[0] == written[1]
    with zipfile.ZipFile(out) as archive:
        assert all((entry.compress_type == zipfile.ZIP_DEFLATED) is compressed for entry in archive.infolist())


def test_arrays_of_another_identity_are_refused(file: Path) -> None:
    path = file.with_name("named.npz")
    with path.open("wb") as out:
        write_arrays(out, ARRAYS, "one/0")
    assert list(read_arrays(path, identity="one/0")) == list(read_arrays(path)) == list(ARRAYS)
    assert read_arrays(path, (), "one/0") == {}
    for names in ((), ["none"]):
        with pytest.raises(AnotherIdentityError, match=r"^one/0$"):
            read_arrays(path, names, "one/1")
        # Written without any.
        with pytest.raises(AnotherIdentityError, match=r"^$"):
            read_arrays(file, names, "one/0")


def test_no_python_is_parsed(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parser of CPython 3.11 fails now and then when threads use it side by side."""

    def parse(*_: object, **__: object) -> None:
        raise SystemError("AST constructor recursion depth mismatch")

    monkeypatch.setattr(ast, "parse", parse)
    with pytest.raises(SystemError), np.load(file) as content:
        content["cube"]
    assert read_arrays(file, ["cube"])["cube"][1, 2, 3] == 23


def test_a_changed_byte_is_noticed(file: Path) -> None:
    content = bytearray(file.read_bytes())
    place = content.index(ARRAYS["cube"].tobytes()) + 40
    content[place] ^= 1
    file.write_bytes(bytes(content))
    assert read_arrays(file, ["integers"])["integers"][2, 3] == 11
    with pytest.raises(zipfile.BadZipFile):
        read_arrays(file)


def test_objects_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pickled.npz"
    np.savez(path, things=np.array([{}, []], object))
    with pytest.raises(ValueError, match="objects"):
        read_arrays(path)
