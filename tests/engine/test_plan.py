"""Planning: whole chunks, all rows once, and measured memory below its projection."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.peaks import needs_peaks, run_and_read
from support.refusals import in_full

from reid_dist import FeatureSet, evaluate
from reid_dist.core.model import cut_rows, even_rows
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.plan import NO_EXTRA_MEMORY, Plan, SetShape, _longest, make_plan
from reid_dist.errors import InputError, PlanError

MIB = 2**20


@given(
    n_query=st.integers(1, 10**6),
    n_gallery=st.integers(1, 10**8),
    dim=st.sampled_from([1, 128, 2048]),
    itemsize=st.sampled_from([2, 4]),
    chunk_mib=st.floats(0.1, 64),
    n_threads=st.integers(1, 1000),
    memory_mib=st.integers(1, 4096),
    chunk_rows=st.none() | st.integers(1, 5000),
    relevant=st.floats(0, 1000),
    k=st.sampled_from([0, 10, 1000]),
)
def test_a_plan_fits_or_is_refused(
    n_query, n_gallery, dim, itemsize, chunk_mib, n_threads, memory_mib, chunk_rows, relevant, k
) -> None:
    stored = max(1, int(chunk_mib * MIB / dim / itemsize))

    def plan_for(n_bytes: int) -> Plan:
        return make_plan(
            SetShape(n_query, dim, itemsize, 1000),
            SetShape(n_gallery, dim, itemsize, stored),
            n_threads=n_threads,
            memory_per_thread=n_bytes,
            chunk_rows=chunk_rows,
            relevant_per_query=relevant,
            extra=NearestRows(k).memory if k else NO_EXTRA_MEMORY,
        )

    try:
        plan = plan_for(memory_mib * MIB)
    except PlanError:
        assert plan_for(2**62).task_bytes > memory_mib * MIB
        return
    assert plan.task_bytes <= memory_mib * MIB
    if stored < n_gallery:
        assert plan.gallery_block % stored == 0
    assert plan.n_query_blocks * plan.query_block >= n_query > (plan.n_query_blocks - 1) * plan.query_block
    assert plan.n_gallery_blocks * plan.gallery_block >= n_gallery > (plan.n_gallery_blocks - 1) * plan.gallery_block
    assert plan.flop == 2 * n_query * n_gallery * dim


@given(n=st.integers(0, 5000), most=st.integers(1, 700))
def test_even_rows_cut_as_few_ranges_of_about_one_length(n: int, most: int) -> None:
    lengths = [len(cut) for cut in cut_rows(n, even_rows(n, most))]
    assert len(lengths) == len([*cut_rows(n, most)])
    assert max(lengths, default=0) <= most
    # Lengths are rounded up to 32, at the cost of the last range.
    assert sum(lengths) == n
    assert max(lengths, default=0) <= -(-n // max(1, len(lengths))) + 31


@given(n=st.integers(1, 500), rows=st.integers(1, 600))
def test_cut_rows_covers_all_rows_once(n: int, rows: int) -> None:
    covered = [row for cut in cut_rows(n, rows) for row in range(cut.start, cut.stop)]
    assert covered == list(range(n))


def test_tasks_are_enough_for_all_threads() -> None:
    """A million rows on a hundred threads make a hundred tasks; on two threads, tasks stay large."""
    shape = SetShape(10**6, 512, 4, 8192)
    plan = make_plan(SetShape(3000, 512, 4, 8192), shape, n_threads=100)
    assert plan.n_tasks >= 100
    assert make_plan(SetShape(3000, 512, 4, 8192), shape, n_threads=2).flop / plan.n_tasks > 1e9


@given(
    n_gallery=st.integers(1, 5000),
    gallery_block=st.integers(1, 3000),
    n_query_blocks=st.integers(1, 7),
    n_threads=st.integers(1, 9),
)
def test_the_longest_thread(n_gallery: int, gallery_block: int, n_query_blocks: int, n_threads: int) -> None:
    """Each task goes to the thread with the fewest rows, the long ones first."""
    n_long, rest = divmod(n_gallery, gallery_block)
    rows = [0] * n_threads
    for task in [gallery_block] * (n_query_blocks * n_long) + [rest] * n_query_blocks:
        rows[rows.index(min(rows))] += task
    assert max(rows) <= _longest(n_gallery, gallery_block, n_query_blocks, n_threads) <= max(rows) + rest


@pytest.mark.parametrize(
    ("n_query", "gallery", "n_threads", "blocks"),
    [
        # Rows that need not be whole chunks: as many blocks for each thread.
        (2048, SetShape(200_000, 512, 4, 200_000), 2, (1, 16)),
        # Two blocks of queries would prepare every gallery row twice, to save half of one of nine tasks.
        (2048, SetShape(9 * 8192, 512, 4, 8192), 2, (1, 9)),
        # Three chunks and two threads: without a second block of queries, one thread would have two of the chunks.
        (3368, SetShape(19_732, 512, 4, 8192), 2, (2, 3)),
        # Blocks of 1,000 queries would be less than a tile.
        (2000, SetShape(19_732, 512, 4, 8192), 2, (1, 3)),
        # Rows that need not be whole chunks: as many blocks as threads.
        (500, SetShape(20_000, 512, 4, 20_000), 11, (1, 22)),
        # Blocks of about one length, instead of 8,192 queries and the rest.
        (9000, SetShape(10**6, 512, 4, 8192), 2, (2, 123)),
    ],
)
def test_blocks_load_threads_evenly(n_query: int, gallery: SetShape, n_threads: int, blocks: tuple[int, int]) -> None:
    plan = make_plan(SetShape(n_query, 512, 4, n_query), gallery, n_threads=n_threads)
    assert (plan.n_query_blocks, plan.n_gallery_blocks) == blocks
    assert plan.query_block == -(-n_query // blocks[0])


def test_a_refusal_names_plans_that_would_fit() -> None:
    shape = SetShape(10**6, 2048, 4, 10**6)
    with pytest.raises(PlanError, match=re.escape("one task needs ")) as refused:
        make_plan(SetShape(10, 2048, 4, 10), SetShape(2 * 10**6, 2048, 4, 10**6), n_threads=1, memory_per_thread=MIB)
    assert "smaller --chunk-rows" in in_full(refused.value)
    assert isinstance(refused.value, MemoryError)
    assert shape.chunk_rows == 10**6


def test_tiles_are_checked() -> None:
    with pytest.raises(InputError, match="chunk_rows must be at least 1, found 0"):
        make_plan(SetShape(1, 8, 4, 1), SetShape(1, 8, 4, 1), n_threads=1, chunk_rows=0)


_MEASURE = """
import sys
from pathlib import Path
from reid_dist import FeatureSet
from reid_dist.evaluation import evaluate as evaluation
from reid_dist.engine import graph
from reid_dist.engine import scorers
from reid_dist.engine import jobs
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.task_graph import Execution, Progress
from reid_dist.engine.distances import DISTANCES
from reid_dist.relevance.protocols import PROTOCOLS
from support.peaks import peak_since, start_peak
folder, topk, chunk_rows = Path(sys.argv[1]), int(sys.argv[2]) or None, int(sys.argv[3]) or None
def job(query, gallery):
    sets = FeatureSet.open(folder / query), FeatureSet.open(folder / gallery)
    options = {"protocol": "no_cameras", "chunk_rows": chunk_rows, "topk": topk}
    plan = evaluation.plan_job(*sets, n_threads=1, memory_per_thread=2**30, **options)
    scorer = scorers.FeatureScorer(*sets, DISTANCES.get("cosine"))
    wanted = (Ranks(), *([NearestRows(topk)] if topk else []))
    return jobs.EvaluationJob(*sets, scorer, plan, wanted, protocol=PROTOCOLS.get("no_cameras"))
here = Execution(client=None, n_threads=1, progress=Progress())
graph.run_job(job("tiny.zarr", "tiny.zarr"), here)
measured = job("query.zarr", "gallery.zarr")
before = start_peak(256)
graph.run_job(measured, here)
plan = measured.plan
print(peak_since(before), plan.task_bytes, plan.result_bytes, plan.n_tasks)
"""


@pytest.mark.slow
@needs_peaks
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("topk", "chunk_rows", "n_identity"), [(0, 0, 2000), (100, 0, 2000), (0, 3000, 2000), (0, 0, 20)]
)
def test_measured_memory_stays_under_the_projection(
    tmp_path: Path, dtype: type, topk: int, chunk_rows: int, n_identity: int
) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("tiny", 300), ("query", 2000), ("gallery", 30_000)):
        features = rng.standard_normal((n, 256), np.float32).astype(dtype)
        FeatureSet.from_arrays(features, rng.integers(1, n_identity, n)).save(
            tmp_path / f"{name}.zarr", chunk_rows=4096
        )
    peak, task, result, n_tasks = run_and_read(_MEASURE, tmp_path, topk, chunk_rows)
    assert peak <= task + result
    assert peak > (task + result) / 4, "the projection is near the measured peak"
    assert n_tasks > 1


_MEASURE_EXTRAS = """
import json, sys
from pathlib import Path
from reid_dist import FeatureSet, evaluate
from reid_dist.core import environment
from reid_dist.evaluation import evaluate as evaluation
from support.peaks import peak_since, start_peak
folder, options = Path(sys.argv[1]), json.loads(sys.argv[2])
environment.usable_cores = lambda: 1
plans = []
run_job = evaluation.run_job
def recording(job, *rest):
    plans.append(job.plan)
    return run_job(job, *rest)
evaluation.run_job = recording
def work(query, gallery):
    evaluate(FeatureSet.open(folder / query), FeatureSet.open(folder / gallery), **options)
work("few.zarr", "tiny.zarr")
before = start_peak(256)
work("query.zarr", "gallery.zarr")
print(peak_since(before), plans[-1].task_bytes, plans[-1].result_bytes, plans[-1].n_tasks)
"""


@pytest.mark.slow
@needs_peaks
@pytest.mark.parametrize(
    "options",
    [
        {"breakdowns": ["camera_pair", "gallery_size"]},
        {"roc": True, "metrics": ["mAP", "TAR@FAR=1e-4", "EER"]},
        {"protocol": "cuhk03"},
        {"protocol": "cuhk03", "single_shot_draws": 5},
        {"metrics": ["mAP", "DIR@FAR=0.1"], "ties": True},
    ],
    ids=["parts", "pairs", "single shot", "draws", "probes"],
)
def test_measured_memory_of_extras_stays_under_the_projection(tmp_path: Path, options: dict[str, object]) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("few", 100), ("tiny", 300), ("query", 2000), ("gallery", 30_000)):
        features = rng.standard_normal((n, 256), np.float32)
        # Some queries have no mate.
        pids = rng.integers(1, 1000 if name == "gallery" else 1100, n)
        FeatureSet.from_arrays(features, pids, rng.integers(0, 6, n)).save(tmp_path / f"{name}.zarr", chunk_rows=4096)
    peak, task, result, n_tasks = run_and_read(_MEASURE_EXTRAS, tmp_path, json.dumps(options))
    assert peak <= task + result
    assert n_tasks > 1


def test_text_labels_of_two_sets_are_joined_by_text() -> None:
    rng = np.random.default_rng(0)
    features = rng.standard_normal((6, 5)).astype(np.float32)
    query = FeatureSet.from_arrays(features[:2], ["zoe", "bob"], ["west", "east"])
    gallery = FeatureSet.from_arrays(features, ["bob", "ann", "zoe", "-1", "zoe", "bob"], list("eeeeee"))
    report = evaluate(query, gallery)
    assert report.per_query["n_relevant"].tolist() == [2, 2]
    assert report.counts["n_junk"] == 2
    numbers = FeatureSet.from_arrays(features, [1, 2, 3, 4, 5, 6], np.zeros(6, int))
    with pytest.raises(InputError, match="pids of the query set are texts and of the gallery set whole numbers"):
        evaluate(query, numbers)
