"""Arrays in an uncompressed ``.npz``, read by many threads at once.

`numpy.load` has the header of every array parsed as Python, and the parser of CPython 3.11 keeps its depth of recursion
for all threads together: two that parse at a time end, once in some ten thousand times, in a ``SystemError``.  What is
written here has headers of one plain form, which need no parser.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_arrays", "write_arrays"]

# Magic, version 1.0 and length, then the header that numpy writes for anything but structured arrays.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([^']+)', 'fortran_order': (False|True), 'shape': \(([0-9, ]*)\), \} *\n",
    re.DOTALL,
)
_LONGEST_HEADER = 1024


def write_arrays(file: IO[bytes], arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays; what `read_arrays` takes, and `numpy.load`.

    Raises
    ------
    ValueError
        For arrays of objects.
    """
    np.savez(file, allow_pickle=False, **arrays)


def read_arrays(path: Path | IO[bytes], names: Sequence[str] = ()) -> dict[str, NDArray[Any]]:
    """Read some arrays, or all of them, from a path or an open file; checksums are compared.

    Raises
    ------
    OSError, ValueError, EOFError, KeyError, zipfile.BadZipFile
        If the file is not there, or not what was written.
    """
    with zipfile.ZipFile(path) as archive:
        wanted = names or [name.removesuffix(".npy") for name in archive.namelist()]
        return {name: _read(archive, f"{name}.npy") for name in wanted}


def _read(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    content = archive.read(member)
    header = _HEADER.match(content[:_LONGEST_HEADER])
    if header is None:
        raise ValueError(f"{member} is no plain array")
    dtype, shape = np.dtype(header[1].decode()), tuple(int(size) for size in header[3].split(b",") if size.strip())
    if dtype.hasobject:
        raise ValueError(f"{member} holds objects")
    # A copy, for whoever takes it may write to it.
    flat = np.frombuffer(content, dtype, offset=header.end()).copy()
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C")
