"""Devices of torch: what products on a GPU need of it.

Nothing of torch is imported before a device is asked for.  The same code runs on torch's own CPU device, so that it can
be tested without a GPU.

*Trust.*  Products are IEEE float32 or float64: reduced precision (TF32) is switched off while they are computed, and a
product that would show it is tested at the first use of a device.  Those of eight-bit integers are exact in int32;
where this torch or device lacks them, or computes others, float32 is used.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.gpus import visible_gpus
from reid_dist.engine.distances.device_rows import ResidentRows, Uploads
from reid_dist.errors import RunFailedError
from reid_dist.kernels.quantising import LARGEST_INTEGER

_LOG: Final = logging.getLogger("reid_dist")

# Pairs of a tile: 1 GB of values and marks, of which two tiles are there at a time.
_MOST_PAIRS: Final = 3 << 26
_FEWEST_PAIRS: Final = 1 << 16
_BYTES_PER_PAIR: Final = 16
_AT_ONCE: Final = 2
_QUERY_ROWS: Final = 16384
_COPIED_TILE: Final = (2048, 8192)

_LOADING: Final = threading.Lock()

# Pairs of a sample that is checked by canonical distances: one of so many, and at least so many per tile.
SAMPLED_ONE_OF: Final = 1_000_000
LEAST_SAMPLED: Final = 1024


# Rows of matrices of integers are padded to multiples of this, and so are their lengths: CUDA takes no others.
_INTEGER_STEP: Final = 32
# Shapes of timed tiles, on CUDA and elsewhere.
_TIMED_TILE: Final = {True: (4096, 16384), False: (256, 2048)}
# Share of the time of float32 that a tile of integers may take: values that it leaves undecided are refined.
_WORTH_INTEGERS: Final = 0.8


class Rates(NamedTuple):
    """Seconds of a device per pair of a tile, which is compared with one level; infinite for products that it lacks."""

    float32: float
    int8: float

    @property
    def integers_pay(self) -> bool:
        """Whether tiles of integers are faster."""
        return self.int8 < _WORTH_INTEGERS * self.float32


# Of a GPU that cannot be asked: of a data centre, but none of the latest.
_ASSUMED_FLOPS, _ASSUMED_READING_S = 25e12, 1e-11
# Of an element of a row: as it is stored, prepared and in eight bits, and in float64 while it is prepared.
_BYTES_PER_ELEMENT: Final = 4 + 4 + 1 + 8


def assumed_seconds(dim: int) -> float:
    """Seconds per pair of rows of `dim` elements that a GPU is assumed to take which cannot be timed."""
    return 2 * dim / _ASSUMED_FLOPS + _ASSUMED_READING_S


def device_bytes(n_rows: int, dim: int) -> int:
    """Memory that a process takes of a device at most, for tasks of so many rows, besides rows that stay for others."""
    return _AT_ONCE * (_BYTES_PER_PAIR * _MOST_PAIRS + n_rows * dim * _BYTES_PER_ELEMENT)


class DeviceLostError(Exception):
    """A device that cannot be used any more; what it computed last is computed again elsewhere."""


class TorchDevice:
    """A device of torch, and the turns in which threads of this process use it.

    Attributes
    ----------
    torch
        The module.
    name, driver
        The device and its driver, as reports name them.
    """

    def __init__(self, where: str) -> None:
        self.torch: Any = importlib.import_module("torch")
        self.where = self.torch.device(where)
        self.is_cuda = self.where.type == "cuda"
        self.name = str(self.torch.cuda.get_device_name(self.where)) if self.is_cuda else "CPU of torch"
        self.driver = f"CUDA {self.torch.version.cuda}, torch {self.torch.__version__}"
        self.is_lost = False
        self._most_pairs = _MOST_PAIRS
        self._turns = threading.BoundedSemaphore(_AT_ONCE)
        self._exact = threading.Lock()
        self._n_exact = 0
        self._precision = "ieee"
        self.has_integers = False
        self.uploads = Uploads(self.torch, self.where)
        self.resident = ResidentRows(self)
        self._timing = threading.Lock()
        self._rates: dict[int, Rates] = {}

    def tile(self, *, is_reduced: bool) -> tuple[int, int]:
        """Queries and gallery rows of a tile, at most; `is_reduced` says that its values do not leave the device."""
        # Tiles that were halved grow again: the memory may have been another process's.
        self._most_pairs = min(2 * self._most_pairs, _MOST_PAIRS)
        if not is_reduced:
            return _COPIED_TILE
        return _QUERY_ROWS, max(1, min(self._most_pairs, self._fitting_pairs()) // _QUERY_ROWS)

    def _fitting_pairs(self) -> int:
        """Pairs of a tile that find room in memory that nobody uses, of which half is left to others."""
        return max(_FEWEST_PAIRS, self.free_bytes() // (2 * _AT_ONCE * _BYTES_PER_PAIR))

    def free_bytes(self) -> int:
        """Memory that this process could still use, now; that of torch's CPU device is that of its tiles."""
        if not self.is_cuda:
            return 2 * _AT_ONCE * _BYTES_PER_PAIR * _MOST_PAIRS
        cuda = self.torch.cuda
        unused = cuda.memory_reserved(self.where) - cuda.memory_allocated(self.where)
        return int(cuda.mem_get_info(self.where)[0] + unused)

    def give_back(self) -> None:
        """Return memory that this process does not use to others."""
        if self.is_cuda:
            self.torch.cuda.empty_cache()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn: few tiles are on the device at a time, whatever the number of threads.

        Raises `DeviceLostError` where the device cannot be used any more.
        """
        with self._turns:
            if self.is_lost:
                raise DeviceLostError(self.name)
            try:
                yield
            except self.torch.OutOfMemoryError:
                raise
            except RuntimeError as error:
                if not self.is_cuda:
                    raise
                self.is_lost = True
                raise DeviceLostError(f"{self.name}: {str(error).splitlines()[0]}") from error

    def halve(self) -> bool:
        """Give memory back after too large a tile; whether smaller ones are worth a try."""
        self.resident.forget()
        self.give_back()
        self._most_pairs //= 2
        return self._most_pairs >= _FEWEST_PAIRS

    @contextlib.contextmanager
    def exactly(self) -> Iterator[None]:
        """Compute products in the precision of their numbers; the setting of the process returns behind the last."""
        if not self.is_cuda:
            yield
            return
        settings = self.torch.backends.cuda.matmul
        name, full = ("fp32_precision", "ieee") if hasattr(settings, "fp32_precision") else ("allow_tf32", False)
        with self._exact:
            if not self._n_exact:
                self._precision = getattr(settings, name)
                setattr(settings, name, full)
            self._n_exact += 1
        try:
            yield
        finally:
            with self._exact:
                self._n_exact -= 1
                if not self._n_exact:
                    setattr(settings, name, self._precision)

    def upload(self, array: NDArray[Any]) -> Any:
        """Copy an array to the device.

        Arrays outlive the call, or have been copied by the driver when it returns; torch takes writeable ones alone.
        """
        given = array if array.flags.writeable and array.flags.c_contiguous else array.copy()
        copied = self.torch.from_numpy(given)
        return copied.to(self.where, non_blocking=True) if self.is_cuda else copied.clone()

    def download(self, tensor: Any) -> NDArray[Any]:
        """Copy a tensor of the device to an array."""
        found: NDArray[Any] = tensor.cpu().numpy()
        return found

    def multiply_integers(self, near: Any, far: Any) -> Any:
        """Exact products of eight-bit rows, shapes (n, dim) and (m, dim); a view (n, m) of a tensor of int32."""
        (n, dim), m = near.shape, len(far)
        pad, step = self.torch.nn.functional.pad, _INTEGER_STEP
        near, far = (
            pad(each, (0, -dim % step, 0, -len(each) % step)) if dim % step or len(each) % step else each
            for each in (near, far)
        )
        # There is no public name; versions and a test bound it.
        return self.torch._int_mm(near, far.T)[:n, :m]

    def integer_values(self, near: Any, far: Any, factor: Any, scale: Any) -> Any:
        """Products of eight-bit rows as float32, times a number per row of either side, shape (n, m)."""
        values = self.torch.empty(len(near), len(far), dtype=self.torch.float32, device=self.where)
        values.copy_(self.multiply_integers(near, far))
        values *= factor[:, None]
        values *= scale
        return values

    def rates(self, dim: int) -> Rates:
        """Seconds per pair of rows of `dim` elements: the shortest of three tiles each, timed at the first call.

        Raises `DeviceLostError` as `turn`.
        """
        with self._timing:
            if dim not in self._rates:
                try:
                    with self.turn():
                        found = self._time(dim)
                except self.torch.OutOfMemoryError:
                    return Rates(np.inf, np.inf)
                _LOG.info("%s, rows of %d elements, seconds a pair: %s", self.name, dim, found)
                self._rates[dim] = found
            return self._rates[dim]

    def _time(self, dim: int) -> Rates:
        torch, (n, m) = self.torch, _TIMED_TILE[self.is_cuda]
        near, far = (torch.ones(rows, dim, dtype=torch.float32, device=self.where) for rows in (n, m))
        whole = (near.to(torch.int8), far.to(torch.int8), near[:, 0], far[:, 0])
        level = torch.full((n, 1), 2.0 * dim, device=self.where)

        def shortest(multiply: Callable[[], Any]) -> float:
            taken = []
            for _ in range(4):
                began = time.perf_counter()
                # Waits for the device.
                int((multiply() >= level).count_nonzero())
                taken.append(time.perf_counter() - began)
            return min(taken[1:]) / (n * m)

        with self.exactly():
            floats = shortest(lambda: torch.mm(near, far.T))
        if not self.has_integers:
            return Rates(floats, np.inf)
        try:
            return Rates(floats, shortest(lambda: self.integer_values(*whole)))
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            # Not for rows of this length.
            return Rates(floats, np.inf)

    def _integers_are_exact(self) -> bool:
        """Whether the largest factors, and random ones, give exact integers."""
        rng, most = np.random.default_rng(0), LARGEST_INTEGER
        for n, dim, m in ((3, 5, 7), (65, 512, 130), (32, 2048, 64)):
            for sign in (-1, 0, 1):
                left, right = (rng.integers(-most, most + 1, (rows, dim), np.int8) for rows in (n, m))
                if sign:
                    left[:], right[:] = most, sign * most
                try:
                    found = self.download(self.multiply_integers(self.upload(left), self.upload(right)))
                except (AttributeError, RuntimeError):
                    return False
                if not np.array_equal(found, left.astype(np.int64) @ right.astype(np.int64).T):
                    return False
        return True

    def test(self) -> None:
        """Multiply numbers whose products are exact in float32, but not in a narrower format, and integers.

        Raises `RunFailedError` where a product of floating-point numbers differs.
        """
        rng = np.random.default_rng(0)
        left, right = (rng.integers(-2047, 2048, (n, 3)).astype(np.float32) for n in (65, 257))
        for dtype in (np.float32, np.float64):
            a, b = (self.upload(each.astype(dtype)) for each in (left, right))
            with self.exactly():
                found = self.download(self.torch.mm(a, b.T))
            if not np.array_equal(found, left.astype(np.float64) @ right.astype(np.float64).T):
                raise RunFailedError(
                    f"products of {self.name} ({self.driver}) are not exact where {np.dtype(dtype)} is; "
                    "compute on the CPU (--device cpu), and look for a setting that lowers their precision"
                )
        self.has_integers = self._integers_are_exact()


@cache
def may_have(where: str) -> bool:
    """Whether torch is installed, and for CUDA a driver that finds a device; nothing of torch is imported."""
    return importlib.util.find_spec("torch") is not None and (not where.startswith("cuda") or bool(visible_gpus()))


def device_of(where: str) -> TorchDevice | None:
    """A device by its name in torch, tested at the first call; None if this process cannot use it.

    Raises `RunFailedError` as `TorchDevice.test`.
    """
    # Threads that come together take turns on one device.
    with _LOADING:
        return _device_of(where)


@cache
def _device_of(where: str) -> TorchDevice | None:
    if not may_have(where):
        return None
    try:
        device = TorchDevice(where)
        if device.is_cuda and not device.torch.cuda.is_available():
            return None
        device.test()
    except (RuntimeError, AssertionError, ImportError, OSError):
        return None
    _LOADED.append(device)
    return device


# Devices that this process has used.
_LOADED: Final[list[TorchDevice]] = []


def are_loaded() -> bool:
    """Whether this process has a device."""
    return bool(_LOADED)


def forget_rows() -> None:
    """Let the rows go that have stayed on devices for further tasks: none follows at once."""
    for device in _LOADED:
        device.resident.forget()
