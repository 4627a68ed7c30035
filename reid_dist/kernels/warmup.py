"""Warm-up: a process of its own compiles kernels while the first run on a machine computes, and after it.

A run and this process share the work: large kernels that the run calls last come first here, and a kernel that another
process compiles is loaded when it is done.  Kernels for products of integers follow at the lowest priority.  They take
longer than a short run, so that the process goes on when the run has ended: the next run finds them.  Until then, runs
screen in float32: see `reid_dist.engine.distances.quantised`.

Nothing here imports Numba in the process that starts a warm-up.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Iterable
from typing import Final

from reid_dist.core.environment import SCREEN_VARIABLE, has_integers, usable_cores
from reid_dist.kernels.machine_code import are_compiled, compiled_kernels, locked, machine_code_folder

WARMUP_SENTINELS: Final = {
    "evaluation": ("counting.count_tile", "symmetric.collect_rows"),
    "reranking": ("counting.count_tile", "jaccard.overlap_block"),
    "integers": ("quantising.quantise_rows",),
}
"""Kernels of each warm-up that are compiled last, as ``module.name``."""

_INTEGERS: Final = "integers"
_LEAST_PRIORITY: Final = 19

# Warm-ups that this process has started, or that it need not start.
_settled: Final[set[str]] = set()


def needs_warmup(name: str) -> bool:
    """Whether kernels of a warm-up, one of `WARMUP_SENTINELS`, have no machine code on disk."""
    return not are_compiled(WARMUP_SENTINELS[name])


def warmup(*, reranks: bool = False, integers: bool = True) -> None:
    """Start a process that compiles the kernels of a run that are not on disk, with re-ranking or without.

    Those for products of `integers` are among them unless the environment forces others.  The process is not waited
    for, and ends by itself.  A second call does nothing.
    """
    # On one core, it would only delay the run.
    wanted = [] if usable_cores() == 1 else ["reranking" if reranks else "evaluation"]
    if integers and os.environ.get(SCREEN_VARIABLE) != "float32" and has_integers():
        wanted.append(_INTEGERS)
    _start(wanted)


def lacks_integers() -> bool:
    """Whether kernels for products of integers are not on disk; if so, a process begins to compile them."""
    if not needs_warmup(_INTEGERS):
        return False
    _start([_INTEGERS])
    return True


def _start(names: Iterable[str]) -> None:
    new = [name for name in names if name not in _settled]
    _settled.update(new)
    missing = [name for name in new if needs_warmup(name)]
    if not missing or machine_code_folder() is None:
        return
    nothing = [(os.POSIX_SPAWN_OPEN, file, os.devnull, os.O_RDWR, 0) for file in range(3)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-P", "-m", __name__, *missing]
    # Kernels are compiled where they are called as well.  In a session of its own, an interruption does not end it.
    with contextlib.suppress(OSError, NotImplementedError):
        os.posix_spawn(sys.executable, words, environment, file_actions=nothing, setsid=True)


def compile_examples(name: str) -> None:
    """Compile, or load, the kernels of a warm-up in this process."""
    # They import all kernels.
    import reid_dist.kernels.examples as examples

    for function, arguments in getattr(examples, name)():
        function.prepare(*arguments)


def load_compiled() -> None:
    """Load the kernels of warm-ups of evaluations that are on disk."""
    import reid_dist.kernels.examples as examples

    found = {*compiled_kernels()}
    for function, arguments in (*examples.evaluation(), *examples.integers()):
        if function.name in found:
            function.prepare(*arguments)


def _run(names: Iterable[str]) -> None:
    """Do the work of a process that `warmup` starts."""
    # The process ends right after: collecting garbage would be a tenth of its time.
    gc.disable()
    for name in names:
        if name == _INTEGERS:
            os.nice(_LEAST_PRIORITY)
        # One process does it, of all that runs have started.
        with locked(f"warmup-{name}", wait_s=0.0) as is_first:
            if is_first and needs_warmup(name):
                compile_examples(name)


if __name__ == "__main__":
    _run(sys.argv[1:])
