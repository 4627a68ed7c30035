"""Named arrays in an uncompressed ``.npz``, read by many threads at once, and values of any structure as such arrays.

`numpy.load` has the header of every array parsed as Python, and the parser of CPython 3.11 keeps its depth of recursion
for all threads together: two that parse at a time end, once in some ten thousand times, in a ``SystemError``.  What is
written here has headers of one plain form, which need no parser.  The structure of a value is JSON: reading it runs no
code.
"""

from __future__ import annotations

import dataclasses
import json
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError

# Magic, version 1.0 and length, then the header that numpy writes for anything but structured arrays.
_HEADER = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([^']+)', 'fortran_order': (False|True), 'shape': \(([0-9, ]*)\), \} *\n",
    re.DOTALL,
)
_LONGEST_HEADER = 1024

# Of zlib.  The default, 6, takes six times as long for row numbers, and gives files some 5% smaller.
_LEVEL = 1


class AnotherIdentityError(ValueError):
    """An array that was written under another identity, which is the message, than the one it is read under."""


def write_arrays(
    file: IO[bytes], arrays: Mapping[str, NDArray[Any]], identity: str = "", *, compressed: bool = False
) -> None:
    """Write arrays of any dtype but objects, with an ASCII `identity` beside each; `numpy.load` reads them as well.

    Equal arrays give equal bytes.
    """
    # Not numpy.savez_compressed: it takes the names as keyword arguments, and a column may be called "file".
    # Members that are opened by name get a fixed date, which keeps the bytes equal from one run to the next.
    method = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", method, compresslevel=_LEVEL) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.asanyarray(array), allow_pickle=False)
            archive.getinfo(f"{name}.npy").comment = identity.encode("ascii")


def read_arrays(
    path: Path | IO[bytes], names: Sequence[str] | None = None, identity: str | None = None
) -> dict[str, NDArray[Any]]:
    """Read some arrays, or all of them, from a path or an open file; checksums and any `identity` are compared.

    The identity is that of all arrays, also of those that are not read.
    A damaged file raises OSError, ValueError, EOFError, KeyError, RuntimeError or zipfile.BadZipFile.
    """
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        if not entries:
            raise ValueError("it holds no array")
        for entry in entries if identity is not None else ():
            found = entry.comment.decode("ascii", "replace")
            if found != identity:
                raise AnotherIdentityError(found)
        wanted = [entry.filename.removesuffix(".npy") for entry in entries] if names is None else names
        return {name: _read(archive, f"{name}.npy") for name in wanted}


def _read(archive: zipfile.ZipFile, member: str) -> NDArray[Any]:
    content = archive.read(member)
    header = _HEADER.match(content[:_LONGEST_HEADER])
    if header is None:
        raise ValueError(f"{member} is no plain array")
    dtype, shape = np.dtype(header[1].decode()), tuple(int(size) for size in header[3].split(b",") if size.strip())
    if dtype.hasobject:
        raise ValueError(f"{member} holds objects")
    # A copy, since the caller may write to it.
    flat = np.frombuffer(content, dtype, offset=header.end()).copy()
    return flat.reshape(shape, order="F" if header[2] == b"True" else "C")


# ---- values of any structure -----------------------------------------------------------------------------------------

_STRUCTURE = "structure"


def encode(value: Any) -> dict[str, NDArray[Any]]:
    """Turn mappings, lists, tuples, dataclasses, arrays and plain values into arrays; TypeError for anything else."""
    arrays: dict[str, NDArray[Any]] = {}
    text = json.dumps(_as_json(value, arrays), separators=(",", ":"))
    return {_STRUCTURE: np.frombuffer(text.encode(), np.uint8), **arrays}


def _as_json(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": value}
    if isinstance(value, np.ndarray | np.generic):
        name = f"array{len(arrays)}"
        arrays[name] = np.asarray(value)
        return {"array": name}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = {each.name: _as_json(getattr(value, each.name), arrays) for each in dataclasses.fields(value)}
        return {"class": type(value).__name__, "fields": parts}
    if isinstance(value, Mapping):
        return {"mapping": [[_as_json(key, arrays), _as_json(each, arrays)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_as_json(each, arrays) for each in value]}
    raise TypeError(f"a {type(value).__name__} cannot be kept in a workspace")


def decode(arrays: Mapping[str, NDArray[Any]], classes: Iterable[type]) -> Any:
    """Return the value that `encode` turned into arrays; `classes` are the dataclasses that may be in it."""
    known = {each.__name__: each for each in classes}
    try:
        return _from_json(json.loads(bytes(arrays[_STRUCTURE])), arrays, known)
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedStoreError(
            f"a partial result in the workspace cannot be read ({error!r}); delete the stage and run again"
        ) from None


def _from_json(part: Any, arrays: Mapping[str, NDArray[Any]], known: Mapping[str, type]) -> Any:
    if "value" in part:
        return part["value"]
    if "array" in part:
        array = arrays[part["array"]]
        return array if array.ndim else array[()]
    if "class" in part:
        return known[part["class"]](**{name: _from_json(each, arrays, known) for name, each in part["fields"].items()})
    if "mapping" in part:
        return {_from_json(key, arrays, known): _from_json(each, arrays, known) for key, each in part["mapping"]}
    if "list" in part:
        return [_from_json(each, arrays, known) for each in part["list"]]
    return tuple(_from_json(each, arrays, known) for each in part["tuple"])
