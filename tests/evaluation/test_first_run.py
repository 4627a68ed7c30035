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

_INTEGERS = """
import sys
from pathlib import Path
from reid_dist.evaluation.ahead import _sets, _stored
from reid_dist.evaluation.evaluate import evaluate
from reid_dist.evaluation.search import nearest
from reid_dist.kernels.usual import _INTEGERS, compile_integers, lacks_integers

compile_integers()
assert not lacks_integers()
before = [len(kernel.signatures) for kernel in _INTEGERS]
sets = _sets(20, (40, 3000))
for query, gallery in (sets, _stored(sets, Path(sys.argv[1]))):
    nearest(query, gallery, k=4)
    nearest(gallery, gallery, k=4)
    evaluate(query, gallery)
print(*before, *(len(kernel.signatures) for kernel in _INTEGERS))
"""

# Look-ups in columns and in distances; lanes of sums and of bounds.
_TWICE = {"deciding.first_at_least", "canonical.fold"}
# With `arrays.filled`, in place of compilations of `np.full` that Numba does not keep, `lists.merge_lists`, in place of
# sorting, and `canonical._given`, in place of a second compilation for rows of precomputed distances.
_MOST = 49


_LACKING = """
from reid_dist.kernels.usual import lacks_integers, lacks_usual

print(lacks_integers(), lacks_usual(), lacks_usual(reranks=True))
"""


def _printed(program: str, folder: Path, **variables: str) -> str:
    """What a program prints that may write into a folder."""
    words = [sys.executable, "-c", program, str(folder / "sets")]
    environment = {**os.environ, **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=600).stdout


@pytest.mark.slow
def test_a_usual_evaluation_compiles_each_kernel_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert _printed(_RUN, tmp_path, NUMBA_CACHE_DIR=str(cache)) == "0\n"
    times = Counter(path.name.split("-")[0] for path in cache.rglob("*.nbc"))
    assert {name for name, number in times.items() if number > 1} <= _TWICE
    assert 20 <= len(times) <= _MOST, sorted(times)


def test_an_empty_cache_lacks_kernels(tmp_path: Path) -> None:
    assert _printed(_LACKING, tmp_path, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "True True True\n"


@pytest.mark.slow
def test_products_of_integers_need_one_kernel_each(tmp_path: Path) -> None:
    """Types of arguments are counted alike whether a kernel is compiled or read from the cache."""
    pytest.importorskip("onnxruntime")
    assert _printed(_INTEGERS, tmp_path, REID_DIST_SCREEN="int8") == " ".join(["1"] * 12) + "\n"
