"""Kernels before their first call, and their machine code on disk: never old, nor that of other types."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit

import reid_dist
from reid_dist.kernels import machine_code
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.canonical import pair_distances

_FIRST = """
from reid_dist.kernels.compiled import kernel

@kernel
def called(x):
    return x + {term}
"""
_SECOND = """
from reid_dist.kernels.first import called
from reid_dist.kernels.compiled import kernel

@kernel
def calling(x):
    return 10 * called(x)
"""
_CALL = "from reid_dist.kernels.second import calling; print(calling({argument}))"
# As where files cannot be locked.
_UNLOCKED = """
import contextlib
from reid_dist.kernels import dispatchers
dispatchers.locked = lambda name: contextlib.nullcontext(False)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package of two kernel files, one calling the other, under our settings."""
    kernels = tmp_path / "reid_dist" / "kernels"
    kernels.mkdir(parents=True)
    (kernels.parent / "__init__.py").touch()
    source = Path(reid_dist.__file__).parent
    shutil.copytree(source / "core", kernels.parent / "core")
    for name in ("_version", "errors"):
        shutil.copy(source / f"{name}.py", kernels.parent)
    for name in ("compilations", "dispatchers", "machine_code", "compiled"):
        shutil.copy(source / "kernels" / f"{name}.py", kernels)
    shutil.copy(source / "kernels" / "__init__.py", kernels)
    (kernels / "second.py").write_text(_SECOND)
    add(tmp_path, 1)
    return tmp_path


def add(package: Path, term: int) -> None:
    (package / "reid_dist" / "kernels" / "first.py").write_text(_FIRST.format(term=term))


def printed(package: Path, script: str) -> list[float]:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", script]
    done = subprocess.run(words, cwd=package, env=environment, capture_output=True, text=True, check=True, timeout=120)
    return [float(word) for word in done.stdout.split()]


_OF_A_CLASS = """
from typing import NamedTuple
from reid_dist.kernels.compiled import kernel

class {name}(NamedTuple):
    x: float

@kernel
def doubled(pair):
    return 2 * pair.x
"""
_CALL_OF_A_CLASS = "from reid_dist.kernels.first import {name}, doubled; print(doubled({name}({argument})))"


_WITHOUT_NUMBA = """
import sys
import reid_dist.clusters.connection, reid_dist.engine.graph, reid_dist.evaluation.runs, reid_dist.stages.reranking.top
print(int("numba" in sys.modules))
from reid_dist.kernels.canonical import squared_norms
import numpy
print(squared_norms(numpy.full((1, 2), 3, "f4"))[0])
print(int("numba" in sys.modules))
"""


def test_options_that_numba_does_not_document() -> None:
    """They leave out code for calls from Python and C, a third of the compilation; `pyproject.toml` bounds versions."""
    options: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    for chosen, has_wrappers in (({}, True), (options, False)):
        compiled: Any = njit("int64(int64)", **chosen)(lambda value: value + 1)
        code = next(iter(compiled.inspect_llvm().values()))
        assert [word in code for word in ("define ptr @_ZN7cpython", "@cfunc.")] == [has_wrappers] * 2


def test_numba_is_imported_at_the_first_call() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT_NUMBA], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "18.0", "1"]


def test_kernels_are_pickled_by_name_and_look_like_their_functions() -> None:
    assert pickle.loads(pickle.dumps(pair_distances)) is pair_distances
    assert copy.copy(pair_distances) is pair_distances
    assert inspect.signature(pair_distances) == inspect.signature(pair_distances.py_func)
    assert (pair_distances.__name__, pair_distances.__module__) == ("pair_distances", "reid_dist.kernels.canonical")
    # As libraries ask of any object.
    assert not hasattr(pair_distances, "__dask_graph__")


@pytest.mark.slow
def test_inner_kernels_cannot_be_called_from_python() -> None:
    values = np.array([1.0, 3.0, 5.0])
    words = r"^reid_dist\.kernels\.bisection\.first_at_least is an inner kernel: only other kernels can call it"
    with pytest.raises(TypeError, match=words):
        first_at_least(values, 0, 3, 2.0)
    assert first_at_least.py_func(values, 0, 3, 2.0) == 1


@pytest.mark.slow
def test_a_renamed_argument_type_is_compiled_anew(package: Path) -> None:
    results = []
    for name, argument in (("Before", 2.0), ("After", 3.0), ("After", 4.0)):
        (package / "reid_dist" / "kernels" / "first.py").write_text(_OF_A_CLASS.format(name=name))
        results += printed(package, _CALL_OF_A_CLASS.format(name=name, argument=argument))
    assert results == [4, 6, 8]


@pytest.mark.slow
def test_a_changed_callee_is_noticed(package: Path) -> None:
    answers = []
    for term in (1, 2, 2):
        add(package, term)
        answers += printed(package, _CALL.format(argument=1))
    assert answers == [20, 30, 30]
    assert list(package.rglob("*.nbi")), "nothing was cached, so nothing was tested"


@pytest.mark.slow
def test_types_of_arguments_have_machine_code_each(package: Path) -> None:
    """Compiled by a process each, one after the other, and found by others."""
    for _ in range(2):
        for argument, result in ((1, 20), (1.5, 25)):
            assert printed(package, _CALL.format(argument=argument)) == [result]
    # The code of the callee is in that of the caller.
    assert sorted(path.name.partition("-")[0] for path in package.rglob("*.nbc")) == ["second.calling"] * 2


@pytest.mark.slow
def test_processes_that_start_at_once_compile_a_kernel_once(package: Path) -> None:
    compiling = """
from reid_dist.kernels.compilations import compiled_spans
from reid_dist.kernels.second import calling
print(calling({argument}), len(calling.kept.stats.cache_misses))
"""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", compiling.format(argument=argument)],
            cwd=package,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for argument in (1, 1, 1.5, 1.5)
    ]
    found = [each.communicate(timeout=120)[0].split() for each in running]
    assert [float(value) for value, _ in found] == [20, 20, 25, 25]
    assert sum(int(misses) for _, misses in found) == 2
    # Of two types that were compiled at once, neither has the code of the other.
    for argument, result in ((1, 20), (1.5, 25)):
        assert printed(package, _CALL.format(argument=argument)) == [result]


@pytest.mark.slow
def test_a_process_that_ends_while_it_compiles_holds_up_no_other(package: Path) -> None:
    killed = """
import os
from reid_dist.kernels import dispatchers
from reid_dist.kernels.second import calling
dispatchers._made_to_keep = lambda *_: os._exit(1)
calling(1)
"""
    with pytest.raises(subprocess.CalledProcessError):
        printed(package, killed)
    assert printed(package, _CALL.format(argument=1)) == [20]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["unlocked", "unwritable"])
def test_a_kernel_that_cannot_be_kept_is_compiled_all_the_same(package: Path, fault: str) -> None:
    full = """
from pathlib import Path
from typing import Any
def touch(*_):
    raise OSError("disk full")
Path.touch = touch
"""
    found = printed(package, (_UNLOCKED if fault == "unlocked" else full) + _CALL.format(argument=1))
    assert found == [20]
    assert not list(package.rglob("*.compiled"))
    assert printed(package, _CALL.format(argument=1)) == [20]


_CLASSES = """
from typing import Any
from reid_dist.kernels.compiled import kernel

@kernel
def first_of(values: Any) -> Any:
    return values[0]
"""
_OF_MANY_TYPES = """
import numpy as np
from reid_dist.kernels.first import first_of
rows = np.arange(6.0).reshape(2, 3)
fixed = rows[1].copy()
fixed.flags.writeable = False
for values in (rows[0], rows[1, ::2], fixed, rows[0].astype("f4"), rows[1].astype("i8"), (4, 5.0), (5.5, 6)):
    print(first_of(values))
print(len(first_of.kept.signatures))
"""


@pytest.mark.slow
def test_arrays_are_told_apart_by_type_order_and_whether_they_can_be_written(package: Path) -> None:
    (package / "reid_dist" / "kernels" / "first.py").write_text(_CLASSES)
    assert printed(package, _OF_MANY_TYPES) == [0, 3, 3, 0, 3, 4, 5.5, 7]


def test_least_used_machine_code_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of eight versions stays, among them the newest, and nothing else is touched."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    (tmp_path / "kernels_of_others").mkdir()
    for age in range(10):
        folder = tmp_path / f"reid-dist-{age:016x}"
        folder.mkdir()
        (folder / "a.compiled").touch()
        os.utime(folder, (1e9 - age,) * 2)
    machine_code.machine_code_folder.cache_clear()
    try:
        folder = machine_code.machine_code_folder()
    finally:
        machine_code.machine_code_folder.cache_clear()
    assert folder is not None
    expected = {folder.name, "kernels_of_others", *(f"reid-dist-{age:016x}" for age in range(7))}
    assert {path.name for path in tmp_path.iterdir()} == expected
