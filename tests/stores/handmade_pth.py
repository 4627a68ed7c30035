"""Write the files of ``torch.save`` without torch: the same zip members and the same pickle program, by hand."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

STORAGE_OF = {
    "float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "int64": "LongStorage",
    "int32": "IntStorage", "uint8": "ByteStorage", "bfloat16": "BFloat16Storage",
}  # fmt: skip


class Tensor:
    """A tensor to be written: numbers, and the view of them."""

    def __init__(self, array: np.ndarray, *, view: tuple[int, tuple[int, ...], tuple[int, ...]] | None = None) -> None:
        self.array = array if array.flags.c_contiguous else np.ascontiguousarray(array)
        self.kind = STORAGE_OF[array.dtype.name]
        strides = tuple(s // array.itemsize for s in self.array.strides)
        self.offset, self.shape, self.strides = view or (0, array.shape, strides)


class BFloat16(Tensor):
    def __init__(self, halves: np.ndarray) -> None:
        self.array, self.kind = halves, STORAGE_OF["bfloat16"]
        self.offset, self.shape, self.strides = 0, halves.shape, (halves.shape[1], 1)


class Name:
    """A global of a pickle that need not exist here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Program(pickle._Pickler):
    """Pickler of protocol 2 that writes tensors as torch does."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, protocol=2)
        self.storages: list[np.ndarray] = []

    def save_tensor(self, tensor: Tensor) -> None:
        self.save_name(Name("torch._utils", "_rebuild_tensor_v2"))
        self.write(pickle.MARK)
        self.write(pickle.MARK)
        self.save("storage")
        self.save_name(Name("torch", tensor.kind))
        # Views of one storage share it, as rows of one batch do.
        key = next((at for at, held in enumerate(self.storages) if held is tensor.array), len(self.storages))
        self.save(str(key))
        self.save("cpu")
        self.save(tensor.array.size)
        self.write(pickle.TUPLE + pickle.BINPERSID)
        self.storages += [tensor.array] if key == len(self.storages) else []
        self.save(tensor.offset)
        self.save(tensor.shape)
        self.save(tensor.strides)
        self.save(False)
        self.save_name(Name("collections", "OrderedDict"))
        self.write(pickle.EMPTY_TUPLE + pickle.REDUCE)
        self.write(pickle.TUPLE + pickle.REDUCE)

    def save_name(self, name: Name) -> None:
        self.write(pickle.GLOBAL + f"{name.module}\n{name.name}\n".encode())

    dispatch[Tensor] = save_tensor
    dispatch[BFloat16] = save_tensor
    dispatch[Name] = save_name


def write_pth(path: Path, content: Any, *, raw_program: bytes | None = None) -> Path:
    """Write a file; `raw_program` replaces the pickle."""
    file = io.BytesIO()
    program = Program(file)
    program.dump(content)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", raw_program or file.getvalue())
        archive.writestr("archive/byteorder", "little")
        for key, storage in enumerate(program.storages):
            archive.writestr(f"archive/data/{key}", storage.tobytes())
        archive.writestr("archive/version", "3\n")
    return path
