"""``.mat``: version 5 through scipy; version 7.3 is HDF5 (`reid_dist.stores.importers.hdf5_files`)."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.hdf5_files import is_hdf5, is_matlab, open_hdf5
from reid_dist.stores.importers.source import FORMATS, Format, RowArray, Source, begins_with, require

_IS_VERSION_5 = begins_with(b"MATLAB 5.0 MAT-file")
_NUMERIC = {"double": "f8", "single": "f4", "logical": "u1"} | {
    f"{sign}int{bits}": f"{sign or 'i'}{bits // 8}" for sign in ("u", "") for bits in (8, 16, 32, 64)
}


class Version5Rows(RowArray):
    """A variable of a version 5 file; scipy can only read it whole, which happens on first use."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], kind: str) -> None:
        if kind in _NUMERIC:
            super().__init__(shape, np.dtype(_NUMERIC[kind]))
        else:
            super().__init__((int(np.prod(shape)),), np.dtype(np.str_))
        self._path, self._name = path, name
        self._array: NDArray[Any] | None = None
        self._lock = threading.Lock()

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with self._lock:
            if self._array is None:
                self._array = self._load()
        return self._array[start:stop]

    def _load(self) -> NDArray[Any]:
        array = require("scipy.io", "mat").loadmat(self._path, variable_names=[self._name])[self._name]
        if array.dtype.kind == "O":
            array = np.array([_text_of_cell(cell) for cell in array.ravel()], dtype=np.str_)
        if array.dtype.kind == "U":
            # The rows of a character matrix are padded with blanks to one length.
            array = np.char.rstrip(array.ravel())
        return np.asarray(array)


def _text_of_cell(cell: Any) -> str:
    value = np.asarray(cell)
    if value.dtype.kind not in "Uiu" or value.size > 1:
        raise StoreError(f"a cell holds {value.dtype} of shape {value.shape}; only text and whole numbers are read")
    return str(value.reshape(-1)[0]) if value.size else ""


def _open_version_5(path: Path) -> Source:
    readable = {*_NUMERIC, "char", "cell"}
    found = {
        name: Version5Rows(path, name, shape, kind) if kind in readable else f"a MATLAB {kind}"
        for name, shape, kind in require("scipy.io", "mat").whosmat(path)
    }
    return Source.of(str(path), found)


def _open_mat(path: Path) -> Source:
    if not is_hdf5(path):
        return _open_version_5(path)
    return open_hdf5(path, notes=("read as plain HDF5, rows first: the file has no header or attributes of MATLAB",))


FORMATS.register(
    Format(
        "mat",
        "MATLAB files, version 5 and version 7.3",
        "MATLAB level 5 and HDF5",
        (".mat",),
        _open_mat,
        sniff=lambda path: _IS_VERSION_5(path) or (is_hdf5(path) and is_matlab(path)),
    )
)
