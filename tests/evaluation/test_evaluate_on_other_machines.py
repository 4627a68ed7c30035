"""Another processor, another BLAS kernel, no compiler at all, a system with fewer calls: the same bits."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lesser_system
import numpy as np
import pytest
from support.python_kernels import PythonKernels
from tiny_digests import tiny_digests

PROGRAM = Path(__file__).with_name("tiny_digests.py")


def printed(program: Path, *words: object, **settings: str) -> Any:
    """What a program prints, as JSON."""
    finished = subprocess.run(
        [sys.executable, str(program), *map(str, words)],
        env=os.environ | settings | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


@pytest.fixture(scope="module")
def digests_here():
    return tiny_digests()


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"OPENBLAS_CORETYPE": "Prescott"}, id="products-of-an-old-processor", marks=pytest.mark.slow),
        pytest.param({"OPENBLAS_NUM_THREADS": "1"}, id="products-of-one-thread", marks=pytest.mark.slow),
        # Compiles every kernel once more.
        pytest.param({"NUMBA_CPU_NAME": "generic"}, id="kernels-of-a-plain-processor", marks=pytest.mark.slow),
    ],
)
def test_digests(settings, digests_here):
    assert printed(PROGRAM, **settings) == digests_here


def test_calls_that_systems_lack_are_made_in_one_place_each() -> None:
    package = Path(lesser_system.__file__).parents[2] / "reid_dist"
    names = {f"{module.__name__}.{name}" for module, name in lesser_system.lacking_names()}
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    made = {path: names.intersection(re.findall(r"\b[a-z]+\.\w+", text)) for path, text in sources.items()}
    assert {path.relative_to(package).as_posix(): found for path, found in made.items() if found} == {
        "core/environment.py": {"os.sched_getaffinity"},
        "core/system_calls.py": {"os.preadv", "mmap.MADV_WILLNEED"},
    }


def test_a_system_without_the_calls_of_linux(tmp_path: Path) -> None:
    """Evaluation, neighbours, single rows and checks of stores; macOS has few of them, and no /proc."""
    rng = np.random.default_rng(7)
    sides = {"query": 40, "gallery": 300}
    labels = {side: (rng.integers(0, 9, n), rng.integers(0, 4, n)) for side, n in sides.items()}
    centres = rng.standard_normal((9, 24))
    arrays: dict[str, np.ndarray] = {}
    for side, (pids, camids) in labels.items():
        features = (centres[pids] + rng.standard_normal((len(pids), 24))).astype(np.float32)
        arrays |= {f"{side}_f": features, f"{side}_label": pids, f"{side}_cam": camids}
    # In Fortran order, so that rows are read at places of a temporary file.
    source = tmp_path / "both.npz"
    np.savez_compressed(source, **{name: np.asfortranarray(each) for name, each in arrays.items()})
    here = lesser_system.results(str(source), str(tmp_path / "here"))
    there = printed(Path(lesser_system.__file__), source, tmp_path / "there")
    assert there == here | {"knows peaks": False}
    squares = np.sum(arrays["gallery_f"][::2], dtype=np.float64)
    assert there["rows"] == [squares, squares]
    assert there["damaged"] == [False, False]


@pytest.mark.slow
def test_digests_of_kernels_in_python(python_kernels: PythonKernels, digests_here: dict[str, str]) -> None:
    assert python_kernels.call(tiny_digests) == digests_here
