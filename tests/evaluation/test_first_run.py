"""Kernels that a first run compiles: how many, for how many types, and in which process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

_RUN = """
import sys
from reid_dist.evaluation.ahead import _sets, _stored
from reid_dist.evaluation.evaluate import evaluate
from reid_dist.kernels.settings import compiled_spans
from reid_dist.kernels.usual import compile_usual, lacks_usual
from pathlib import Path

assert lacks_usual()
compile_usual()
assert not lacks_usual()
sets = _sets(20, (40, 300))
evaluate(*_stored(sets, Path(sys.argv[1])), topk=10)
before = len(compiled_spans())
# In memory as well, where rows are read-only.
evaluate(*sets, topk=10)
print(len(compiled_spans()) - before)
"""

# Look-ups in columns and in distances; lanes of sums and of bounds.
_TWICE = {"deciding.first_at_least", "canonical.fold"}
_MOST = 46


@pytest.mark.slow
def test_a_usual_evaluation_compiles_each_kernel_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    words = [sys.executable, "-c", _RUN, str(tmp_path / "sets")]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=600)
    assert done.stdout == "0\n"
    times = Counter(path.name.split("-")[0] for path in cache.rglob("*.nbc"))
    assert {name for name, number in times.items() if number > 1} <= _TWICE
    assert 20 <= len(times) <= _MOST, sorted(times)
