"""Tensors and numpy arrays that a pickle describes, made without calling anything that it names."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import StoreError
from reid_dist.stores.importers.pickled import Call, Global, Persistent

BFLOAT16 = "bfloat16"
_STORAGES = {
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
    "HalfStorage": "f2",
    "BFloat16Storage": BFLOAT16,
    "LongStorage": "i8",
    "IntStorage": "i4",
    "ShortStorage": "i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "u1",
}
_REBUILD_TENSOR = ("torch._utils", "_rebuild_tensor_v2")
_REBUILD_PARAMETER = ("torch._utils", "_rebuild_parameter")
_NUMPY_MODULES = ("numpy.core.multiarray", "numpy._core.multiarray")
_NUMPY_BUFFERS = ("numpy.core.numeric", "numpy._core.numeric")
_BYTES = (("builtins", "bytes"), ("__builtin__", "bytes"))
_ENCODE = ("_codecs", "encode")
_DTYPE = re.compile(r"[<>|=]?(?:[iu][1248]|f[248]|b1|[US][0-9]{1,6})")
_NEVER = "is never loaded; save tensors, arrays, lists and dictionaries of them with torch.save"


@dataclass(frozen=True, slots=True)
class Storage:
    """A storage: the member ``data/KEY`` of the archive, of items of the dtype `code`."""

    code: str
    key: str


@dataclass(frozen=True, slots=True)
class Tensor:
    """A view of a storage from item `offset` on; strides in items."""

    storage: Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A value that is not read, with the reason."""

    reason: str


def interpret(value: Any) -> Any:
    """Make a `Tensor`, array, number or `Refused` of what a pickle describes as a call; return other values."""
    if isinstance(value, Global):
        return Refused(f"{value}, which {_NEVER}")
    if not isinstance(value, Call):
        return value
    if value.made is None:
        value.made = _interpreted(value)
    return value.made


def _interpreted(value: Call) -> Any:
    name = _named(value.callee)
    if name == _REBUILD_PARAMETER and _is_tuple(value.arguments, 1):
        value, name = value.arguments[0], _named(getattr(value.arguments[0], "callee", None))
    if name == _REBUILD_TENSOR:
        return _tensor(value.arguments)
    if name == ("collections", "OrderedDict"):
        return value.entries
    if name[0] in _NUMPY_MODULES and name[1] == "_reconstruct":
        return _array(value.state)
    if name[0] in _NUMPY_MODULES and name[1] == "scalar":
        return _scalar(value.arguments)
    if name[0] in _NUMPY_BUFFERS and name[1] == "_frombuffer" and _is_tuple(value.arguments, 4):
        data, dtype, shape, order = value.arguments
        return _array((None, shape, dtype, order == "F", data))
    return Refused(f"of {'.'.join(name)}, which {_NEVER}" if name[0] else "of no plain type")


def _named(callee: Any) -> tuple[str, str]:
    return (callee.module, callee.name) if isinstance(callee, Global) else ("", "")


def _is_tuple(value: Any, shortest: int) -> bool:
    return isinstance(value, tuple) and len(value) >= shortest


def _are_counts(values: Any) -> bool:
    return isinstance(values, tuple) and all(type(value) is int and 0 <= value < 2**62 for value in values)


def _tensor(arguments: Any) -> Tensor:
    if not _is_tuple(arguments, 4) or not isinstance(arguments[0], Persistent):
        raise StoreError("the file describes an impossible tensor")
    _, offset, shape, strides = arguments[:4]
    # A shape may itself be an object of torch.Size, whose one argument is the tuple.
    shape = shape.arguments[0] if isinstance(shape, Call) and _is_tuple(shape.arguments, 1) else shape
    if not _are_counts(shape) or not _are_counts(strides) or not _are_counts((offset,)):
        raise StoreError("the file describes an impossible tensor")
    return Tensor(_storage(arguments[0].key), offset, shape, strides)


def _storage(key: Any) -> Storage:
    if _is_tuple(key, 3) and isinstance(key[1], Global) and isinstance(key[2], str):
        kind, (module, name), member = key[0], _named(key[1]), key[2]
        if isinstance(kind, str) and kind == "storage" and module == "torch" and name in _STORAGES:
            return Storage(_STORAGES[name], member)
    raise StoreError("the file describes an impossible storage")


def _bytes(value: Any) -> bytes | None:
    """Bytes as protocols before 3 write them: by a name, or as text to be encoded."""
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Call):
        if _named(value.callee) in _BYTES and value.arguments == ():
            return b""
        if _named(value.callee) == _ENCODE and _is_tuple(value.arguments, 1) and isinstance(value.arguments[0], str):
            try:
                return value.arguments[0].encode("latin-1")
            except UnicodeEncodeError:
                return None
    return None


def _dtype(value: Any) -> np.dtype[Any] | Refused:
    """The plain dtype that a call of ``numpy.dtype`` makes."""
    if not isinstance(value, Call) or _named(value.callee) != ("numpy", "dtype") or not _is_tuple(value.arguments, 1):
        raise StoreError("the file describes an impossible array")
    code = value.arguments[0]
    if not isinstance(code, str) or not _DTYPE.fullmatch(code):
        return Refused("an object array, which is never loaded" if code in ("O", "O8") else "an array of another dtype")
    order = value.state[1] if _is_tuple(value.state, 2) else "="
    if order not in ("<", ">", "=", "|"):
        raise StoreError("the file describes an impossible array")
    return np.dtype(code if code[0] in "<>|=" else f"{order}{code}")


def _array(state: Any) -> NDArray[Any] | Refused:
    """The array of ``(version, shape, dtype, is_fortran, data)``."""
    if not _is_tuple(state, 5):
        raise StoreError("the file describes an impossible array")
    _, shape, described, fortran, content = state[:5]
    dtype = _dtype(described)
    if isinstance(dtype, Refused):
        return dtype
    data = _bytes(content)
    if data is None or not _are_counts(shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise StoreError("the file describes an impossible array")
    if not dtype.itemsize:
        return Refused("an array of empty texts")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran is True else "C")


def _scalar(arguments: Any) -> Any:
    if not _is_tuple(arguments, 2):
        raise StoreError("the file describes an impossible number")
    dtype, data = _dtype(arguments[0]), _bytes(arguments[1])
    if isinstance(dtype, Refused):
        return dtype
    if data is None or len(data) != dtype.itemsize or not dtype.itemsize:
        raise StoreError("the file describes an impossible number")
    return np.frombuffer(data, dtype)[0].item()
