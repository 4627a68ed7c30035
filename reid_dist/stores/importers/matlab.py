"""``.mat``: version 5 through scipy, version 7.3, which is HDF5, through h5py.

MATLAB keeps arrays by columns, so that HDF5 shows them transposed; they are turned back here.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.source import FORMATS, Format, RowArray, Source, require

__all__ = ["MAT"]

_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_NUMERIC = {"double": "f8", "single": "f4", "logical": "u1"} | {
    f"{sign}int{bits}": f"{sign or 'i'}{bits // 8}" for sign in ("u", "") for bits in (8, 16, 32, 64)
}


def is_hdf5(path: Path) -> bool:
    """Say whether a file is HDF5: its magic may stand at 0, 512, 1024, 2048, … (MATLAB writes 512 bytes before it)."""
    size = path.stat().st_size
    with path.open("rb") as file:
        position = 0
        while position < size:
            file.seek(position)
            if file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC:
                return True
            position = max(512, position * 2)
    return False


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
    arrays: dict[str, RowArray] = {}
    refused: dict[str, str] = {}
    for name, shape, kind in require("scipy.io", "mat").whosmat(path):
        if kind in _NUMERIC or kind in ("char", "cell"):
            arrays[name] = Version5Rows(path, name, shape, kind)
        else:
            refused[name] = f"a MATLAB {kind}"
    return Source(str(path), arrays, refused)


class HDF5Rows(RowArray):
    """A dataset of a version 7.3 file, turned back from MATLAB's order; the file is open only while it is read."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(shape[::-1], dtype)
        self._path, self._name = path, name

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with require("h5py", "mat").File(self._path, "r") as file:
            return np.ascontiguousarray(file[self._name][..., start:stop].T)


class HDF5Texts(RowArray):
    """Text of a version 7.3 file: a character matrix, or a cell array of references to character rows."""

    def __init__(self, path: Path, name: str, n_rows: int) -> None:
        super().__init__((n_rows,), np.dtype(np.str_))
        self._path, self._name = path, name

    def _read(self, start: int, stop: int) -> NDArray[Any]:
        with require("h5py", "mat").File(self._path, "r") as file:
            dataset = file[self._name]
            if dataset.dtype.kind == "O":
                codes = [np.asarray(file[reference]).T.ravel() for reference in dataset[()].ravel()[start:stop]]
            else:
                codes = list(np.atleast_2d(dataset[..., start:stop].T))
        return np.array(["".join(map(chr, code.tolist())).rstrip() for code in codes], dtype=np.str_)


def _open_version_73(path: Path) -> Source:
    h5py = require("h5py", "mat")
    arrays: dict[str, RowArray] = {}
    refused: dict[str, str] = {}
    with h5py.File(path, "r") as file:
        for name in file:
            if name.startswith("#"):  # MATLAB's own heap of cell contents.
                continue
            # A link or a dataset that points out of the file could make us read any file of this machine.
            if not isinstance(file.get(name, getlink=True), h5py.HardLink):
                refused[name] = "a link, which is not followed"
                continue
            node = file[name]
            if not isinstance(node, h5py.Dataset):
                refused[name] = "a group"
            elif node.external or node.is_virtual:
                refused[name] = "kept in another file, which is not followed"
            elif h5py.check_dtype(ref=node.dtype) is h5py.Reference:
                arrays[name] = HDF5Texts(path, name, node.size)
            elif node.attrs.get("MATLAB_class", b"") == b"char":
                arrays[name] = HDF5Texts(path, name, node.shape[-1])
            elif node.dtype.kind in "fiu" and node.shape:
                arrays[name] = HDF5Rows(path, name, node.shape, node.dtype)
            else:
                refused[name] = f"{node.dtype} of shape {node.shape}"
    return Source(str(path), arrays, refused)


def _open_mat(path: Path) -> Source:
    return _open_version_73(path) if is_hdf5(path) else _open_version_5(path)


MAT = FORMATS.register(
    Format("mat", "MATLAB files, version 5 and version 7.3", "MATLAB level 5 and HDF5", (".mat",), _open_mat)
)
