"""A process in which kernels are plain Python: functions of test modules give the same bits there as compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PROGRAM = """
import importlib, json, sys, warnings
warnings.simplefilter("error")
for line in sys.stdin:
    folder, module, function = json.loads(line)
    sys.path.insert(0, folder)
    print(json.dumps(getattr(importlib.import_module(module), function)()), flush=True)
"""


class PythonKernels:
    """The process; it imports the package once for all functions that it calls."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            env=os.environ | {"NUMBA_DISABLE_JIT": "1", "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def call(self, function: Callable[[], Any]) -> Any:
        """Return what a function of a module without a package returns there, by way of JSON."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        module = sys.modules[function.__module__]
        assert module.__file__ is not None
        words = [str(Path(module.__file__).parent), module.__name__, function.__name__]
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process ended; its error is on standard error"
        return json.loads(answer)

    def close(self) -> None:
        self._process.communicate()
