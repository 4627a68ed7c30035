"""``.safetensors``: a length, a JSON header, and raw arrays; simple enough to need no library."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from reid_dist.core.json_text import json_of
from reid_dist.errors import StoreError
from reid_dist.stores.importers.file_rows import RawRows, bfloat16_rows
from reid_dist.stores.importers.source import FORMATS, Format, RowArray, Source

_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "<u2",
    "BOOL": "u1",
    **{f"I{8 * size}": f"<i{size}" for size in (1, 2, 4, 8)},
    **{f"U{8 * size}": f"<u{size}" for size in (1, 2, 4, 8)},
}
_LONGEST_HEADER = 100_000_000
"""The limit of the format itself."""


def _open_safetensors(path: Path) -> Source:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(_LONGEST_HEADER, size - 8):
            raise StoreError(f"{path} is no safetensors file, or is cut short: its header claims {length} bytes")
        header = json_of(file.read(length), f"{path}: its header")
    found: dict[str, RowArray | str] = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = tuple(entry["shape"])
        begin, end = entry["data_offsets"]
        if entry["dtype"] not in _DTYPES:
            found[name] = f"of dtype {entry['dtype']}"
        elif not shape:
            found[name] = "a single value"
        elif not 0 <= begin <= end or 8 + length + end > size:
            raise StoreError(f"{path} is cut short: {name!r} ends at byte {8 + length + end} of {size}")
        elif not _is_shape(shape) or end - begin != math.prod(shape) * np.dtype(_DTYPES[entry["dtype"]]).itemsize:
            raise StoreError(
                f"{path} is damaged: {name[:80]!r} of shape {shape} and {entry['dtype']} does not take the "
                f"{end - begin} bytes that its offsets give it"
            )
        else:
            rows = RawRows(path, 8 + length + begin, end - begin, shape, np.dtype(_DTYPES[entry["dtype"]]))
            found[name] = bfloat16_rows(rows) if entry["dtype"] == "BF16" else rows
    return Source.of(str(path), found)


def _is_shape(shape: tuple[object, ...]) -> bool:
    return all(type(length) is int and length >= 0 for length in shape)


FORMATS.register(
    Format(
        "safetensors",
        "named tensors, read without a library",
        "huggingface/safetensors",
        (".safetensors",),
        _open_safetensors,
    )
)
