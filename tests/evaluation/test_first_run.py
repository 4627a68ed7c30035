"""Kernels that a first run compiles: how many, for how many types, and in which process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from reid_dist.evaluation.precompile import _sets

_RUN = """
import sys
from reid_dist import FeatureSet, evaluate
from reid_dist.kernels.compilations import compiled_spans
from reid_dist.kernels.warmup import needs_warmup

assert not needs_warmup("evaluation")
sets = [FeatureSet.open(uri) for uri in sys.argv[1:]]
evaluate(*sets, topk=10)
# In memory as well, where rows are read-only.
evaluate(*(FeatureSet.from_arrays(side.read(0, side.n_rows), side.pids, side.camids) for side in sets), topk=10)
print(len(compiled_spans()))
"""

_INTEGERS = """
import sys
from pathlib import Path
from reid_dist.evaluation.precompile import _sets, _stored
from reid_dist.evaluation.evaluate import evaluate
from reid_dist.evaluation.search import nearest
from reid_dist.kernels import examples
from reid_dist.kernels.warmup import compile_examples, lacks_integers

compile_examples("integers")
assert not lacks_integers()
before = [len(kernel.signatures) for kernel, _ in examples.integers()]
sets = _sets(20, (40, 3000))
for query, gallery in (sets, _stored(sets, Path(sys.argv[1]))):
    nearest(query, gallery, k=4)
    nearest(gallery, gallery, k=4)
    evaluate(query, gallery)
# Others are those of tiles that are read again, in float32, and of many thresholds, the last argument.
repeated = []
for kernel, _ in examples.integers():
    products = [(str(types[0]).partition(",")[0], str(types[-1])) for types in kernel.signatures]
    repeated.append(len(products) - len({*products}))
print(*before, *repeated)
"""

# With that of the process that workers are forked from.
_MOST = 20

_LACKING = """
from reid_dist.kernels.warmup import WARMUP_SENTINELS, needs_warmup

print(*(needs_warmup(name) for name in WARMUP_SENTINELS))
"""


def _printed(program: str, *words: str, **variables: str) -> str:
    return _done([sys.executable, "-c", program, *words], **variables).stdout


def _done(words: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables}
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=600)


@pytest.mark.slow
def test_a_usual_evaluation_compiles_each_kernel_once(tmp_path: Path) -> None:
    """By a worker or the warm-up beside it, in one line and as a time of its own."""
    # Kernels for integers would be compiled meanwhile, some of them of the same names.
    alone = {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "REID_DIST_SCREEN": "float32"}
    sides = [str(tmp_path / side) for side in ("query.zarr", "gallery.zarr")]
    for features, side in zip(_sets(20, (40, 300)), sides, strict=True):
        features.save(side)
    command = [sys.executable, "-m", "reid_dist.cli", "evaluate", *sides]
    done = _done([*command, "--workers", "1", "--topk", "10", "--json"], **alone)
    assert done.stderr.splitlines().count("compiling kernels, once per machine") == 1
    timing = json.loads(done.stdout)["timing"]
    assert timing["compile"] > 5 * max(timing["pairs"], timing["sweep"]) / 4
    # Others are compiled for later runs.
    times = Counter(path.name.split("-")[0] for path in (tmp_path / "cache").rglob("*.compiled"))
    assert {name for name, number in times.items() if number > 1} == set()
    assert 10 <= len(times) <= _MOST, sorted(times)
    assert _printed(_RUN, *sides, **alone) == "0\n"


def test_an_empty_cache_lacks_kernels(tmp_path: Path) -> None:
    assert _printed(_LACKING, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "True True True\n"


@pytest.mark.slow
def test_products_of_integers_need_one_kernel_each(tmp_path: Path) -> None:
    """Types of arguments are counted alike whether a kernel is compiled or read from the cache."""
    pytest.importorskip("onnxruntime")
    assert _printed(_INTEGERS, str(tmp_path / "sets"), REID_DIST_SCREEN="int8") == "1 1 1 1 1 1 0 0 0 0 0 0\n"
