"""Files of named arrays in any format, by the suffix of their path."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.io
import zarr
from handmade_pth import Tensor, write_pth
from safetensors.numpy import save_file


def write_arrays(path: Path, arrays: Mapping[str, Any]) -> Path:
    """Write arrays, lists of texts and single numbers, in the form that the writers of a format give them."""
    held = {name: np.asarray(values) for name, values in arrays.items()}
    texts = {name: array.tolist() for name, array in held.items() if array.dtype.kind == "U"}
    if path.suffix == ".npz":
        np.savez(path, **held)
    elif path.suffix == ".mat":
        scipy.io.savemat(path, {**held, **{name: np.array(each, dtype=object) for name, each in texts.items()}})
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            file.update({**held, **texts})
    elif path.suffix == ".parquet":
        pq.write_table(pa.table({name: list(array) if array.ndim > 1 else array for name, array in held.items()}), path)
    elif path.suffix == ".safetensors":
        save_file({name: np.ascontiguousarray(array) for name, array in held.items()}, path)
    elif path.suffix == ".pth":
        write_pth(path, {name: texts.get(name) or Tensor(array) for name, array in held.items()})
    else:
        group = zarr.create_group(path)
        for name, array in held.items():
            group.create_array(name, data=array)
    return path


def flip_bit(path: Path, at: int | bytes | None = None) -> None:
    """Flip a bit of a file: of the byte at a place, of the first one of some bytes, or in the middle."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[content.index(at) if isinstance(at, bytes) else middle if at is None else at] ^= 4
    path.write_bytes(content)
