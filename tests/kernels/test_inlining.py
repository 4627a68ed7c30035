"""Compilation of kernels with fewer steps than Numba's own: references, collections, and signatures."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvmlite.binding import ffi
from numba import njit
from numba.core import event
from numba.core.errors import TypingError
from numba.core.runtime import _nrt_python, rtsys

from reid_dist.kernels.inlining import INNER_OPTIONS, OUTER_OPTIONS


def outer(function: Callable[..., Any]) -> Any:
    return njit(error_model="numpy", **OUTER_OPTIONS)(function)


def inner(function: Callable[..., Any]) -> Any:
    return njit(error_model="numpy", no_cpython_wrapper=True, **INNER_OPTIONS)(function)


# Another version of Numba, whose internals may differ: kernels are compiled by its own passes alone.
_OTHER_VERSION = """
import sys
import numba
numba.__version__ = "0.99.0"
import numpy as np
from reid_dist import FeatureSet, evaluate
rng = np.random.default_rng(0)
sets = (rng.standard_normal((n, 16)).astype(np.float32) for n in (20, 200))
made = [FeatureSet.from_arrays(each, np.arange(len(each)) % 10, np.arange(len(each)) % 7) for each in sets]
print(evaluate(*made, confidence=None).result_digest, "reid_dist.kernels.inlining" in sys.modules)
"""


@pytest.mark.slow
def test_kernels_of_another_numba(tmp_path: Path) -> None:
    """They are compiled without its internals, and give the same digest."""
    usual = _OTHER_VERSION.replace('numba.__version__ = "0.99.0"', "")
    printed = []
    for program, cache in ((_OTHER_VERSION, {"NUMBA_CACHE_DIR": str(tmp_path)}), (usual, {})):
        words = [sys.executable, "-c", program]
        environment = {**os.environ, **cache}
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment, check=False)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout.split())
    assert printed == [[printed[0][0], "False"], [printed[0][0], "True"]]


@inner
def add_to(values: Any, term: Any) -> None:
    for place in range(len(values)):
        values[place] += term[place]


@outer
def add_halves(values: Any) -> float:
    middle = len(values) // 2
    add_to(values[:middle], values[middle:])
    return float(values[0])


@outer
def sum_of_made(n: int) -> float:
    total = 0.0
    for length in range(n):
        made = np.zeros(2 * length + 2)
        made[length + 1 :] = 1.0
        add_to(made[: length + 1], made[length + 1 :])
        total += made[0]
    return total


@outer
def tail(values: Any) -> Any:
    return values[1:]


@pytest.fixture
def allocations() -> Iterator[Callable[[], int]]:
    """Number of arrays of kernels that are in memory."""
    enabled = _nrt_python.memsys_stats_enabled()
    _nrt_python.memsys_enable_stats()

    def held() -> int:
        stats = rtsys.get_allocation_stats()
        return int(stats.alloc - stats.free)

    yield held
    if not enabled:
        _nrt_python.memsys_disable_stats()


def test_a_kernel_of_views_counts_no_references() -> None:
    values = np.array([1.0, 2.0, 3.0, 4.0])
    references = sys.getrefcount(values)
    assert add_halves(values) == 4.0
    assert values.tolist() == [4.0, 6.0, 3.0, 4.0]
    assert sys.getrefcount(values) == references
    assert "NRT_" not in next(iter(add_halves.inspect_llvm().values()))


def test_arrays_that_a_kernel_makes_are_released(allocations: Callable[[], int]) -> None:
    assert sum_of_made(1) == 1.0
    before = allocations()
    assert sum_of_made(1000) == 1000.0
    assert allocations() == before


def test_a_returned_view_keeps_its_memory(allocations: Callable[[], int]) -> None:
    values = np.arange(1000.0)
    references, before = sys.getrefcount(values), allocations()
    found = tail(values)
    assert sys.getrefcount(values) > references
    assert found.tolist() == list(range(1, 1000))
    del found
    assert sys.getrefcount(values) == references
    assert allocations() == before


@pytest.mark.parametrize("collects", [True, False])
def test_garbage_and_calls_are_treated_after_a_compilation_as_before_it(collects: bool) -> None:
    """Garbage is collected, and calls of LLVM are recorded, or not, also after a compilation that fails."""
    records = ffi.lib._lock._cblist  # type: ignore[attr-defined]
    assert records

    @outer
    def broken(value: float) -> Any:
        return value.nothing  # type: ignore[attr-defined]

    @outer
    def whole(value: float) -> Any:
        return value

    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        with pytest.raises(TypingError):
            broken(1.0)
        assert (gc.isenabled(), ffi.lib._lock._cblist) == (collects, records)  # type: ignore[attr-defined]
        assert whole(1.0) == 1.0
        assert (gc.isenabled(), ffi.lib._lock._cblist) == (collects, records)  # type: ignore[attr-defined]
    finally:
        (gc.enable if before else gc.disable)()


class _Compiled(event.Listener):
    def __init__(self) -> None:
        self.names: list[str] = []

    def on_start(self, event: Any) -> None:
        self.names.append(event.data["dispatcher"].py_func.__qualname__)

    def on_end(self, event: Any) -> None:
        pass


def test_arrays_of_several_lengths_need_one_compilation() -> None:
    # A type that no kernel of the package makes.
    @outer
    def lengths() -> int:
        return len(np.empty(3, np.uint16)) + len(np.empty(5, np.uint16))

    heard = _Compiled()
    with event.install_listener("numba:compile", heard):
        assert lengths() == 8
    assert len([name for name in heard.names if "empty" in name]) == 1


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("one", "other"), [(1, 2), (2.5, 2), (np.float32(0.5), np.float64(2)), (np.uint8(3), np.int64(4))]
)
def test_operators_are_those_of_numpy(one: Any, other: Any) -> None:
    # The second occurrence of each operator has known types.
    @outer
    def combined(a: Any, b: Any) -> Any:
        return a + b, a * b, a - b, a < b, a == b, max(a, b), (a + b) + b, max(b, a), min(b, a)

    sums = (one + other, one * other, one - other, one < other, one == other)
    expected = (*sums, max(one, other), one + other + other, max(one, other), min(one, other))
    assert combined(one, other) == expected
