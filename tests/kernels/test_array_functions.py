"""Numba's array functions without the import of SciPy, and as Numba has them otherwise."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("scipy")

_PROGRAM = """
import sys
import numpy as np
import reid_dist.kernels.settings
import numba

print(any(name.startswith("scipy.linalg") for name in sys.modules))

@numba.njit
def product(a, b):
    return np.kron(a, b)

a, b = np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([[1.0, 3.0], [5.0, 7.0]])
assert (product(a, b) == product.py_func(a, b)).all()
import scipy.linalg.cython_blas
print(scipy.linalg.cython_blas.__name__)
"""


@pytest.mark.slow
def test_kernels_import_no_scipy_and_other_kernels_use_it() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["False", "scipy.linalg.cython_blas"], done.stderr
