"""The plan of an expansion, against what the expansion then takes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.peaks import needs_peaks, run_and_read

from reid_dist import FeatureSet
from reid_dist.engine.plan import SetShape
from reid_dist.errors import PlanError
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.stage_plan import plan_expand

N_QUERY, N_GALLERY, DIM = 2000, 20_000, 256


def shape(n_rows: int, dim: int = DIM) -> SetShape:
    return SetShape(n_rows, dim, 4, min(n_rows, 4096))


@pytest.mark.parametrize(
    ("spec", "n_items", "n_pairs", "k"),
    [
        ("aqe(k=5)", N_QUERY, N_QUERY * N_GALLERY, 5),
        ("alpha_qe(k=5,include_self=true)", N_QUERY, N_QUERY * N_GALLERY, 5),
        ("dba(k=10)", N_GALLERY, N_GALLERY * (N_GALLERY + 1) // 2, 11),
        ("fastreid(k=6)", N_QUERY + N_GALLERY, (N_QUERY + N_GALLERY) * (N_QUERY + N_GALLERY + 1) // 2, 6),
    ],
)
def test_pairs_of_a_step(spec: str, n_items: int, n_pairs: int, k: int) -> None:
    (plan,) = plan_expand(shape(N_QUERY), shape(N_GALLERY), parse_expand(spec), n_threads=2, memory_per_thread=2**30)
    assert (plan.search.n_items, plan.search.n_pairs, plan.search.k) == (n_items, n_pairs, k)
    assert plan.cost.flop == 2 * DIM * n_pairs


def test_steps_that_change_nothing_take_nothing() -> None:
    steps = parse_expand("dba(k=3)+aqe(k=0)")
    (plan,) = plan_expand(shape(10), shape(50), steps, n_threads=2, memory_per_thread=2**30)
    assert plan.step is steps[0]


def test_what_cannot_fit_is_refused() -> None:
    with pytest.raises(PlanError, match="more memory per thread"):
        plan_expand(shape(10, 2048), shape(10**6, 2048), parse_expand("dba(k=5)"), n_threads=2, memory_per_thread=2**20)


_MEASURE = """
import sys
from pathlib import Path
from reid_dist import FeatureSet
from reid_dist.stages.expansion.neighbour_averages import expand_sets
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.session import Resources
from reid_dist.stores import Workspace
from reid_dist.engine.task_graph import Progress
from support.peaks import peak_since, start_peak
folder, spec = Path(sys.argv[1]), sys.argv[2]
most = [0]
class Watch(Progress):
    def advance(self, stage):
        files = (folder / "workspace").rglob("*")
        most[0] = max(most[0], sum(file.stat().st_size for file in files if file.is_file()))
def work(query, gallery, workspace):
    sets = FeatureSet.open(folder / query), FeatureSet.open(folder / gallery)
    place = Workspace(str(folder / workspace))
    where = Resources(client=None, n_threads=1, progress=Watch(), memory_per_thread=2**30, workspace=place)
    expand_sets(*sets, parse_expand(spec), where)
work("few.zarr", "tiny.zarr", "other")
before = start_peak(int(sys.argv[3]))
work("query.zarr", "gallery.zarr", "workspace")
Watch().advance("")
kept = sum(file.stat().st_size for file in (folder / "workspace").rglob("*") if file.is_file())
print(peak_since(before), most[0], kept)
"""


@needs_peaks
@pytest.mark.slow
@pytest.mark.parametrize(
    "spec", ["aqe(k=50)", "dba(k=20)", "fastreid(k=10)", "gcr(k1=20,k2=10,rounds=2)", "gcr(rounds=2,symmetric=true)"]
)
def test_memory_and_workspace_stay_under_the_plan(tmp_path: Path, spec: str) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("few", 100), ("tiny", 300), ("query", N_QUERY), ("gallery", N_GALLERY)):
        features = rng.standard_normal((n, DIM), np.float32)
        labels = rng.integers(1, 1000, n), rng.integers(0, 6, n)
        FeatureSet.from_arrays(features, *labels).save(tmp_path / f"{name}.zarr", chunk_rows=4096)
    (plan,) = plan_expand(shape(N_QUERY), shape(N_GALLERY), parse_expand(spec), n_threads=1, memory_per_thread=2**30)
    peak, most, kept = run_and_read(_MEASURE, tmp_path, spec, DIM)
    # Beside the tasks, one block of averages goes through the process that writes the store.
    cost = plan.cost
    assert cost.task_bytes / 8 < peak <= cost.task_bytes + 4 * DIM * N_GALLERY
    assert cost.workspace_bytes / 4 < most <= 1.05 * cost.workspace_bytes + 2**20
    assert cost.kept / 2 < kept <= 1.05 * cost.kept + 2**20
