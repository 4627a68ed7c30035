"""Result digest: equal for two evaluations if their results are equal to the last bit.

The hash is SHA-256 over a byte string that can be read in one way only, so that no two different results share
it because of their layout (``{"a": [1, 2]}`` and ``{"a": [1], "b": [2]}`` are different byte strings):

    result  := "reid-dist result 1"  section("metrics") section("curves") section("per_query")
    section := text(tag) u64(number of entries) entry*          entries in the order of their names
    entry   := text(name) text(dtype) u64(ndim) u64(extent)* payload
    text    := u64(number of bytes) UTF-8 bytes
    payload := the elements in C order, little-endian; for strings, text(element) for each one

Equal and different results:

- The order of the entries of a mapping is sorted away; so are the byte order of an array, its
  strides, and the width of a fixed-width string array, which are storage.
- Every NaN is the same "no value": sign and payload bits of a NaN depend on the processor that made it.
- ``-0.0`` and ``0.0`` stay different, as do ``float32`` and ``float64``.  The digest is over exact bytes, and a
  zero of another sign is the result of different arithmetic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_HEADER = b"reid-dist result 1"


def result_digest(
    metrics: Mapping[str, float],
    curves: Mapping[str, NDArray[Any]],
    per_query: Mapping[str, NDArray[Any]],
) -> str:
    """Return the SHA-256 of a result as 64 lower-case hexadecimal digits; metrics are hashed as float64 scalars."""
    scalars = {name: np.asarray(value, dtype=np.float64) for name, value in metrics.items()}
    return arrays_digest({"metrics": scalars, "curves": curves, "per_query": per_query})


def arrays_digest(sections: Mapping[str, Mapping[str, NDArray[Any]]]) -> str:
    """Return the SHA-256 of named arrays in named sections; the sections are hashed in the order given."""
    digest = hashlib.sha256(_HEADER)
    for tag, arrays in sections.items():
        digest.update(_text(tag))
        digest.update(_u64(len(arrays)))
        for name in sorted(arrays):
            for piece in _entry(name, np.asarray(arrays[name])):
                digest.update(piece)
    return digest.hexdigest()


def _entry(name: str, values: NDArray[Any]) -> Iterator[bytes]:
    """Yield the bytes of one named array."""
    kind = values.dtype.kind
    if kind not in "biufU":
        raise TypeError(
            f"{name!r} has dtype {values.dtype}, which has no canonical bytes; "
            "use booleans, integers, real numbers or strings"
        )
    yield _text(name)
    yield _text("text" if kind == "U" else values.dtype.newbyteorder("<").str)
    yield _u64(values.ndim)
    yield from map(_u64, values.shape)
    if kind == "U":
        yield b"".join(map(_text, values.ravel().tolist()))
        return
    little = np.array(values, dtype=values.dtype.newbyteorder("<"), order="C", ndmin=1)
    if kind == "f":
        little[np.isnan(little)] = np.nan
    yield little.tobytes()


def _text(value: str) -> bytes:
    # surrogatepass: a file name that is not UTF-8 reaches Python as lone surrogates and must not end a run.
    encoded = value.encode("utf-8", "surrogatepass")
    return _u64(len(encoded)) + encoded


def _u64(value: int) -> bytes:
    return value.to_bytes(8, "little")
