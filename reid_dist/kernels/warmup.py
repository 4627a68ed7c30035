"""Warm-up: a process of its own compiles kernels while the first run on a machine computes, and after it.

It runs small jobs of `reid_dist.evaluation.precompile` that reach first what a run calls last.  A kernel that another
process compiles is loaded when it is done, so that run and process share the work.  Kernels for products of integers
follow at the lowest priority.  They take longer than a short run, so that the process goes on when the run has ended:
the next run finds them.  Until then, runs screen in float32: see `reid_dist.engine.distances.quantised`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable
from typing import Final

from reid_dist.core.environment import SCREEN_VARIABLE, has_integers, usable_cores
from reid_dist.kernels.machine_code import has_record, machine_code_folder

EVALUATION: Final = "evaluation"
INTEGERS: Final = "integers"
"""Names of warm-ups, which are recorded when they have been done."""

_PROGRAM: Final = "reid_dist.evaluation.precompile"

# Warm-ups that this process has started, or that it need not start.
_settled: Final[set[str]] = set()


def warmup(*, integers: bool = True) -> None:
    """Start a process that compiles the large kernels of an evaluation, unless they are on disk.

    Those for products of `integers` are among them unless the environment forces others.  The process is not waited
    for, and ends by itself.  A second call does nothing.
    """
    # On one core, it would only delay the run.
    wanted = [] if usable_cores() == 1 else [EVALUATION]
    if integers and os.environ.get(SCREEN_VARIABLE) != "float32" and has_integers():
        wanted.append(INTEGERS)
    _start(wanted)


def lacks_integers() -> bool:
    """Whether kernels for products of integers are not on disk; if so, a process begins to compile them."""
    if has_record(INTEGERS):
        return False
    _start([INTEGERS])
    return True


def _start(names: Iterable[str]) -> None:
    new = [name for name in names if name not in _settled]
    _settled.update(new)
    missing = [name for name in new if not has_record(name)]
    if not missing or machine_code_folder() is None:
        return
    nothing = [(os.POSIX_SPAWN_OPEN, file, os.devnull, os.O_RDWR, 0) for file in range(3)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-P", "-m", _PROGRAM, *missing]
    # Kernels are compiled where they are called as well.  In a session of its own, an interruption does not end it.
    with contextlib.suppress(OSError, NotImplementedError):
        os.posix_spawn(sys.executable, words, environment, file_actions=nothing, setsid=True)
