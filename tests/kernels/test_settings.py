"""What the cache of compiled kernels must not do: hold old code, or the code of another kernel, under a new name."""

from __future__ import annotations

import copy
import inspect
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import reid_dist
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.canonical import pair_distances

_FIRST = """
from reid_dist.kernels.settings import kernel

@kernel
def called(x):
    return x + {term}
"""
_SECOND = """
from reid_dist.kernels.first import called
from reid_dist.kernels.settings import kernel

@kernel
def calling(x):
    return 10 * called(x)
"""
# As where files cannot be locked.
_UNLOCKED = "from reid_dist.kernels import sharing; sharing._LONGEST_WAIT_S = 0.0\n"

_CALL = "from reid_dist.kernels.second import calling; print(calling({argument}))"
# As a process does that read the index before others wrote theirs.
_CALL_UNAWARE = """
from reid_dist.kernels.second import calling
calling._cache._cache_file._load_index = dict
print(calling({argument}))
"""
# As a process does that is held up between writing the index and writing the machine code.
_CALL_HELD_UP = """
import subprocess, sys
from reid_dist.kernels.second import calling
file = calling._cache._cache_file
write = file._save_data
def held_up(name, data):
    subprocess.run([sys.executable, "-c", {meanwhile!r}], check=True)
    write(name, data)
file._save_data = held_up
calling({argument})
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
    for name in ("array_functions", "compilations", "dispatchers", "inlining", "settings", "sharing", "signatures"):
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
from reid_dist.kernels.settings import kernel

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
    words = r"^reid_dist\.kernels\.deciding\.first_at_least is an inner kernel: only other kernels can call it"
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
def test_old_machine_code_is_not_found_under_a_new_index(package: Path) -> None:
    assert printed(package, _CALL.format(argument=1)) == [20]
    add(package, 2)
    assert printed(package, _CALL_HELD_UP.format(argument=1, meanwhile=_UNLOCKED + _CALL.format(argument=1))) == [30]


@pytest.mark.slow
def test_two_processes_that_compile_at_once_do_not_mix_up_their_kernels(package: Path) -> None:
    printed(package, _CALL_HELD_UP.format(argument=1, meanwhile=_UNLOCKED + _CALL_UNAWARE.format(argument=1.5)))
    assert printed(package, _CALL.format(argument=1.5)) == [25]
    assert printed(package, _CALL.format(argument=1)) == [20]


@pytest.mark.slow
def test_processes_that_start_at_once_compile_a_kernel_once(package: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(package), "PYTHONDONTWRITEBYTECODE": "1"}
    words = [sys.executable, "-c", _CALL.format(argument=1)]
    running = [
        subprocess.Popen(words, cwd=package, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert [float(each.communicate(timeout=120)[0]) for each in running] == [20, 20, 20]
    # Every compilation saves a file of its own name, unless it overwrites the entry of an earlier one.
    assert len(list(package.rglob("*.nbc"))) == 2


@pytest.mark.slow
def test_a_process_that_ends_while_it_compiles_holds_up_no_other(package: Path) -> None:
    killed = """
import os
from reid_dist.kernels.second import calling
calling._cache._cache_file._save_data = lambda name, data: os._exit(1)
calling(1)
"""
    with pytest.raises(subprocess.CalledProcessError):
        printed(package, killed)
    assert printed(package, _CALL.format(argument=1)) == [20]


@pytest.mark.slow
def test_a_failed_compilation_does_not_lock_out_its_own_process(package: Path) -> None:
    failing = """
from reid_dist.kernels.second import calling
file = calling._cache._cache_file
write = file._save_data
def full(name, data):
    file._save_data = write
    raise OSError("disk full")
file._save_data = full
for argument in (1, 1.5):
    try:
        print(calling(argument))
    except OSError:
        print(-1)
"""
    assert printed(package, failing) == [-1, 25]


_INNER = """
from reid_dist.kernels.settings import inner_kernel, kernel

@inner_kernel
def doubled(x):
    return 2 * x

@kernel
def next_to(x):
    return doubled(x) + 1
"""
_OUTER = """
from reid_dist.kernels.first import doubled, next_to
from reid_dist.kernels.settings import kernel

@kernel
def both(x):
    return doubled(x) + next_to(x)
"""
_LATER = """
from reid_dist.kernels.first import doubled, next_to
from reid_dist.kernels.second import both

def library_of(function):
    return next(iter(function.overloads.values())).library

print(next_to(3.0))
print(int(library_of(next_to)._shared_module is None))
print(both(3.0))
inner = next(iter(doubled.overloads.values()))
print(inner.library.get_pointer_to_function(inner.fndesc.llvm_func_name))
"""


@pytest.mark.slow
def test_cached_kernels_are_linked_and_decoded_no_earlier(package: Path) -> None:
    """Inner kernels without machine code of their own, and the code of others for linking when they are linked."""
    kernels = package / "reid_dist" / "kernels"
    (kernels / "first.py").write_text(_INNER)
    (kernels / "second.py").write_text(_OUTER)
    assert printed(package, "from reid_dist.kernels.first import next_to; print(next_to(3.0))") == [7]
    before = sorted(path.name for path in package.rglob("*.nbc"))
    assert [name.partition("-")[0] for name in before] == ["first.doubled", "first.next_to"]
    assert printed(package, _LATER) == [7, 1, 13, 0]
    added = {path.name for path in package.rglob("*.nbc")} - {*before}
    assert [name.partition("-")[0] for name in added] == ["second.both"]
    # What was linked from the cache is kept, and found, as what was compiled in one process.
    assert printed(package, "from reid_dist.kernels.second import both; print(both(3.0))") == [13]
