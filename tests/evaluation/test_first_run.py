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

sets = [FeatureSet.open(uri) for uri in sys.argv[1:]]
evaluate(*sets, topk=10)
# In memory as well, where rows are read-only.
evaluate(*(FeatureSet.from_arrays(side.read(0, side.n_rows), side.pids, side.camids) for side in sets), topk=10)
print(len(compiled_spans()))
"""

_WARMED_UP = """
import sys
from collections import Counter
from pathlib import Path
from reid_dist.clusters.settings import forcing
from reid_dist import evaluate
from reid_dist.evaluation.precompile import _sets, _stored, warm_up
from reid_dist.evaluation.search import nearest
from reid_dist.kernels.machine_code import compiled_kernels
from reid_dist.kernels.warmup import EVALUATION, INTEGERS, lacks_integers

for name in (EVALUATION, INTEGERS):
    warm_up(name)
assert not lacks_integers()
before = Counter(compiled_kernels())
sets = _sets(400, (300, 5000))
with forcing("int8"):
    for query, gallery in (sets, _stored(sets, Path(sys.argv[1]))):
        nearest(query, gallery, k=4)
        nearest(gallery, gallery, k=4)
        evaluate(query, gallery, topk=5)
print(*(Counter(compiled_kernels()) - before))
"""

# With that of the process that workers are forked from.
_MOST = 20

_LACKING = """
from reid_dist.kernels.machine_code import has_record
from reid_dist.kernels.warmup import EVALUATION, INTEGERS

print(*(has_record(name) for name in (EVALUATION, INTEGERS)))
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
    assert done.stderr.splitlines().count("compiling kernels of this kind of job, once per machine") == 1
    timing = json.loads(done.stdout)["timing"]
    assert timing["compile"] > 5 * max(timing["pairs"], timing["sweep"]) / 4
    # Others are compiled for later runs.
    times = Counter(path.name.split("-")[0] for path in (tmp_path / "cache").rglob("*.compiled"))
    assert {name for name, number in times.items() if number > 1} == set()
    assert 10 <= len(times) <= _MOST, sorted(times)
    assert _printed(_RUN, *sides, **alone) == "0\n"


def test_an_empty_cache_lacks_kernels(tmp_path: Path) -> None:
    assert _printed(_LACKING, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == "False False\n"


@pytest.mark.slow
def test_runs_with_products_of_integers_compile_nothing_after_the_warm_up(tmp_path: Path) -> None:
    """But for the checksums of stores."""
    pytest.importorskip("onnxruntime")
    printed = _printed(_WARMED_UP, str(tmp_path / "sets"), NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert printed == "checksums.weighted_sums\n"
