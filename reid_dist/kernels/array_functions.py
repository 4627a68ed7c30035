"""Import of Numba's array functions without SciPy.

Numba imports SciPy's BLAS with them, at the first compilation or load of a kernel, to learn whether it is installed,
which takes some tenths of a second in every process.  Kernels call no BLAS.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_BLAS = "scipy.linalg.cython_blas"


def import_array_functions() -> None:
    """Import them; what Numba knows of SciPy is as after its own import, for the kernels of others."""
    modules: dict[str, Any] = sys.modules
    if _BLAS in modules:
        return
    # The import of a module that is None fails at once.
    modules[_BLAS] = None
    try:
        functions = importlib.import_module("numba.np.arraymath")
    finally:
        del modules[_BLAS]
    vars(functions)["_HAVE_BLAS"] = importlib.util.find_spec("scipy") is not None
