"""Another processor, another BLAS kernel and no compiler at all: the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.slow
def test_digests_of_kernels_in_python(python_kernels: PythonKernels, digests_here: dict[str, str]) -> None:
    assert python_kernels.call(tiny_digests) == digests_here
