"""Providers of matrix products of eight-bit integers, exact in int32.

Such products take a quarter of the time of float32 on processors with instructions for them (VNNI, AMX).  Without
these, kernels add two products in 16 bits, which saturates.  A product is used only if it gives the exact integers on
this machine for the largest factors.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.environment import has_integers
from reid_dist.core.registry import Registry
from reid_dist.kernels.quantising import LARGEST_INTEGER

LARGEST_DIM: Final = (1 << 31) // (4 * LARGEST_INTEGER**2)
"""Elements of a row at most: sums of two products of longer ones may exceed int32."""


class IntegerProduct(Protocol):
    """Products of unsigned by signed eight-bit matrices, computed in the thread that calls."""

    def multiply(self, left: NDArray[np.uint8], right: NDArray[np.int8], out: NDArray[np.int32]) -> None:
        """Write the product of `left`, (m, dim), and `right`, (dim, n), to `out`, (m, n); all in C order."""


@dataclass(frozen=True)
class Provider:
    """What multiplies eight-bit integers.

    Attributes
    ----------
    name, summary, source
        As of every registered definition.
    extra
        The extra of this package that installs it.
    is_installed
        Whether it is installed in this process; it is not imported.
    make
        Imports it and makes its product.
    """

    name: str
    summary: str
    source: str
    extra: str
    is_installed: Callable[[], bool]
    make: Callable[[], IntegerProduct]


PROVIDERS: Registry[Provider] = Registry("provider of products of integers")

# A model of one node, Y = MatMulInteger(A, B), opset 13, written out so that the package that builds models is not
# needed.  Fields of onnx.proto, each as tag, length and content.
_UINT8, _INT8, _INT32 = 2, 3, 6


def _field(number: int, content: bytes | int) -> bytes:
    """One field of a protocol buffer: a number or bytes."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    return bytes([number << 3 | 2, len(content)]) + content


def _value(name: str, kind: int) -> bytes:
    """A matrix of unknown shape: ValueInfoProto."""
    shape = _field(1, _field(2, b"m")) + _field(1, _field(2, b"n"))
    tensor = _field(1, kind) + _field(2, shape.replace(b"m", name.encode()).replace(b"n", name.lower().encode()))
    return _field(1, name.encode()) + _field(2, _field(1, tensor))


def _model() -> bytes:
    """The model: ModelProto."""
    node = b"".join([_field(1, b"A"), _field(1, b"B"), _field(2, b"Y"), _field(4, b"MatMulInteger")])
    given = [_field(11, _value("A", _UINT8)), _field(11, _value("B", _INT8))]
    graph = b"".join([_field(1, node), _field(2, b"g"), *given, _field(12, _value("Y", _INT32))])
    return _field(1, 8) + _field(7, graph) + _field(8, _field(2, 13))


class OnnxProduct:
    """Products of ONNX Runtime."""

    def __init__(self) -> None:
        # The library sends events to its makers otherwise, and leaves a file among the temporary ones.
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
        runtime: Any = importlib.import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.enable_cpu_mem_arena = False
        self._session: Any = runtime.InferenceSession(_model(), options, providers=["CPUExecutionProvider"])

    def multiply(self, left: NDArray[np.uint8], right: NDArray[np.int8], out: NDArray[np.int32]) -> None:
        """See `IntegerProduct.multiply`."""
        binding = self._session.io_binding()
        given: dict[str, NDArray[Any]] = {"A": left, "B": right}
        for name, array in given.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)
        binding.bind_output("Y", "cpu", 0, out.dtype.type, out.shape, out.ctypes.data)
        self._session.run_with_iobinding(binding)


ONNX_RUNTIME = PROVIDERS.register(
    Provider(
        name="onnxruntime",
        summary="MatMulInteger of ONNX Runtime, on one thread",
        source="https://onnxruntime.ai",
        extra="int8",
        is_installed=has_integers,
        make=OnnxProduct,
    )
)


def _is_exact(product: IntegerProduct) -> bool:
    """Whether the largest factors, and random ones, give exact integers, in shapes of every kind."""
    rng, most = np.random.default_rng(0), LARGEST_INTEGER
    for m, dim, n in ((5, 67, 33), (64, 512, 96), (17, 2048, 16)):
        for left, right in (
            (np.full((m, dim), 2 * most, np.uint8), np.full((dim, n), -most, np.int8)),
            (np.full((m, dim), 2 * most, np.uint8), np.full((dim, n), most, np.int8)),
            (rng.integers(0, 2 * most + 1, (m, dim), np.uint8), rng.integers(-most, most + 1, (dim, n), np.int8)),
        ):
            out = np.empty((m, n), np.int32)
            product.multiply(left, right, out)
            if not np.array_equal(out, left.astype(np.int64) @ right.astype(np.int64)):
                return False
    return True


@cache
def exact_product(name: str) -> IntegerProduct | None:
    """Product of a provider, which is imported and tested at the first call; None if it is missing or not exact."""
    try:
        product = PROVIDERS.get(name).make()
    except ImportError:
        return None
    return product if _is_exact(product) else None
