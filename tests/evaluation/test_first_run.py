"""Kernels that a first run compiles: how many, for how many types, and in which process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reid_dist.evaluation.ahead import _sets
from reid_dist.kernels.usual import lacks_integers, lacks_usual

_RUN = """
import sys
from reid_dist import FeatureSet, evaluate
from reid_dist.kernels.compilations import compiled_spans
from reid_dist.kernels.usual import lacks_usual

assert not lacks_usual()
sets = [FeatureSet.open(uri) for uri in sys.argv[1:]]
evaluate(*sets, topk=10)
# In memory as well, where rows are read-only.
evaluate(*(FeatureSet.from_arrays(side.read(0, side.n_rows), side.pids, side.camids) for side in sets), topk=10)
print(len(compiled_spans()))
"""

_INTEGERS = """
import sys
from pathlib import Path
from reid_dist.evaluation.ahead import _sets, _stored
from reid_dist.evaluation.evaluate import evaluate
from reid_dist.evaluation.search import nearest
from reid_dist.kernels.compilations import INTEGERS
from reid_dist.kernels.usual import _named, compile_integers, lacks_integers

compile_integers()
assert not lacks_integers()
before = [len(_named(kernel).signatures) for kernel in INTEGERS]
sets = _sets(20, (40, 3000))
for query, gallery in (sets, _stored(sets, Path(sys.argv[1]))):
    nearest(query, gallery, k=4)
    nearest(gallery, gallery, k=4)
    evaluate(query, gallery)
print(*before, *(len(_named(kernel).signatures) for kernel in INTEGERS))
"""

_LOADED = """
import gc, sys
from reid_dist import FeatureSet, evaluate
from reid_dist.kernels.settings import Kernel
from reid_dist.kernels.usual import load_usual

def loaded():
    made = [each for each in gc.get_objects() if isinstance(each, Kernel) and each._dispatcher is not None]
    return {f"{each.__module__}.{each.__name__}" for each in made if each.signatures}

load_usual()
before = loaded()
evaluate(*(FeatureSet.open(uri) for uri in sys.argv[1:]), topk=10)
print(len(before), *(loaded() - before))
"""

# Look-ups in columns and in distances.
_TWICE = {"deciding.first_at_least"}
# With `arrays.filled`, in place of compilations of `np.full` that Numba does not keep, `lists.merge_lists`, in place of
# sorting, `canonical._given`, in place of a second compilation for rows of precomputed distances, and that of the
# process that workers are forked from.
_MOST = 50


_LACKING = """
from reid_dist.kernels.usual import lacks_integers, lacks_usual

print(lacks_integers(), lacks_usual(), lacks_usual(reranks=True))
"""


def _printed(program: str, *words: str, **variables: str) -> str:
    return _done([sys.executable, "-c", program, *words], **variables).stdout


def _done(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=600)


@pytest.mark.slow
def test_a_usual_evaluation_compiles_each_kernel_once(tmp_path: Path) -> None:
    """By a worker and the process beside it, which report it in one line and as a time of its own."""
    cache = tmp_path / "cache"
    sides = [str(tmp_path / side) for side in ("query.zarr", "gallery.zarr")]
    for features, side in zip(_sets(20, (40, 300)), sides, strict=True):
        features.save(side)
    command = [sys.executable, "-m", "reid_dist.cli", "evaluate", *sides]
    done = _done([*command, "--workers", "1", "--topk", "10", "--json"], NUMBA_CACHE_DIR=str(cache))
    assert done.stderr.splitlines().count("compiling kernels, once per machine") == 1
    timing = json.loads(done.stdout)["timing"]
    assert timing["compile"] > 5 * max(timing["pairs"], timing["sweep"]) / 4
    times = Counter(path.name.split("-")[0] for path in cache.rglob("*.nbc"))
    assert {name for name, number in times.items() if number > 1} <= _TWICE
    assert 20 <= len(times) <= _MOST, sorted(times)
    assert _printed(_RUN, *sides, NUMBA_CACHE_DIR=str(cache)) == "0\n"


@pytest.mark.parametrize("screen", ["int8", pytest.param("float32", marks=pytest.mark.slow)])
def test_what_is_loaded_early_is_what_an_evaluation_calls(tmp_path: Path, screen: str) -> None:
    if screen == "int8":
        pytest.importorskip("onnxruntime")
    sides = [str(tmp_path / side) for side in ("query.zarr", "gallery.zarr")]
    for features, side in zip(_sets(20, (40, 3000)), sides, strict=True):
        features.save(side)
    if lacks_usual() or lacks_integers():  # as where this test is the first
        _done([sys.executable, "-m", "reid_dist.cli", "compile"])
    number, *others = _printed(_LOADED, *sides, REID_DIST_SCREEN=screen).split()
    assert int(number) >= 14
    assert others == []


def test_an_empty_cache_lacks_kernels(tmp_path: Path) -> None:
    assert _printed(_LACKING, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "True True True\n"


@pytest.mark.slow
def test_products_of_integers_need_one_kernel_each(tmp_path: Path) -> None:
    """Types of arguments are counted alike whether a kernel is compiled or read from the cache."""
    pytest.importorskip("onnxruntime")
    assert _printed(_INTEGERS, str(tmp_path / "sets"), REID_DIST_SCREEN="int8") == " ".join(["1"] * 14) + "\n"
