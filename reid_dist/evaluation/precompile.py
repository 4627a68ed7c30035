"""Compilation of kernels before they are called: small jobs of every kind, over sets in memory and stored ones.

Numba compiles a kernel for the types that it is called with, and for read-only arrays (those of a store, which are
mapped) apart from writable ones.  Jobs reach the kernels with the types of real runs, which a list of signatures would
have to repeat.  ``python -m reid_dist.evaluation.precompile NAME...`` is the process of a warm-up.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from reid_dist.clusters.settings import forcing
from reid_dist.clusters.workers import prepare_local_workers
from reid_dist.core.environment import usable_cores
from reid_dist.core.temporary import temporary_directory
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.engine.task_graph import Progress
from reid_dist.evaluation.evaluate import evaluate_distances, evaluate_once
from reid_dist.evaluation.operating import operating_points
from reid_dist.evaluation.search import nearest
from reid_dist.kernels.compiled import require_room
from reid_dist.kernels.machine_code import compiled_kernels, has_record, locked, record
from reid_dist.kernels.warmup import EVALUATION, INTEGERS
from reid_dist.metrics.metric import NEAREST, PAIRS, PROBES, RANKS, example_names
from reid_dist.stages.session import Session
from reid_dist.stores import DistanceBlock, FeatureSet

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

# Each takes some 300 MB, and one kernel is compiled by one process.
_MOST_PROCESSES: Final = 4
# Some ten times the longest job.
_LONGEST_WAIT_S: Final = 120.0
# A third of the share of a usual process.  Less would make runs wait: some of their kernels are compiled here.
_LOW_PRIORITY: Final = 5
_DIM: Final = 8
_TILE: Final = 64
_RERANKING: Final = "k_reciprocal(k1=4,k2=2)"
# Those that reach other kernels, or the same with other types: values of another kind, sets with equal weights, rows
# without the gallery's neighbours.
_RERANKINGS: Final = (
    _RERANKING,
    "k_reciprocal(k1=4,k2=2,lambda_value=0)",
    "k_reciprocal(k1=4,k2=2,variant=paper,weights=binary)",
    "k_reciprocal(k1=4,k2=2,mode=inductive)",
    "gnn(k1=4,k2=2)",
    "gnn(k1=4,k2=2,rounds=0)",
    "ecn(k=4,t=1,q=2)",
    "ecn(t=1,q=2,method=origdist)",
    "top(k_reciprocal(k1=4,k2=2),m=20)",
)
_EXPANSIONS: Final = (
    "aqe(k=2)",
    "dba(k=2)+aqe(k=2)",
    "fastreid(k=2,alpha=3,times=2)",
    "camera_norm+whiten(dim=4)",
    "gcr(k1=4,rounds=1)",
)
_EVERY_RANK: Final = example_names(RANKS)
_PAIRS: Final = ("mAP", *example_names(PAIRS, PROBES, NEAREST))


def precompile(progress: Progress) -> int:
    """Compile every kernel of evaluation, search, re-ranking and expansion that the cache lacks; return their number.

    The stage of `progress` is ``compile``.  Several processes share the jobs.  ShortageError where the limit of the
    address space is too small for it.
    """
    require_room(to_compile=True)
    before = len(compiled_kernels())
    with temporary_directory() as folder:
        n_processes = min(usable_cores(), _MOST_PROCESSES)
        if n_processes > 1:
            prepare_local_workers()
        others = [_started(folder, number, n_processes) for number in range(1, n_processes)]
        try:
            n_jobs = _run_jobs(folder, 0, n_processes, progress)
            for process in others:
                if process is not None:
                    process.join(_LONGEST_WAIT_S)
        finally:
            for process in others:
                if process is not None:
                    process.kill()
                    process.join()
        if len(list(Path(folder).glob("done-*"))) < n_jobs:
            # Of a process that ended before its time.
            _run_jobs(folder, n_processes, 1, finished=True)
    return len(compiled_kernels()) - before


def _started(folder: str, number: int, n_processes: int) -> ForkServerProcess | None:
    """Process that shares the jobs, and ends with this process at the latest; None where the system refuses."""
    process = multiprocessing.get_context("forkserver").Process(
        target=_run_jobs, args=(folder, number, n_processes), daemon=True
    )
    with contextlib.suppress(OSError, EOFError):
        process.start()
        return process
    return None


def _run_jobs(
    folder: str, number: int, n_processes: int, progress: Progress | None = None, *, finished: bool = False
) -> int:
    """Run the jobs that no other process has begun, or with `finished` those that none has finished; return how many.

    Two processes go in opposite directions from one place, since neighbouring jobs reach the same kernels; of more
    processes, the next two from another place.
    """
    # Collecting garbage would be a tenth of the time.
    gc.disable()
    try:
        jobs = [*_jobs(Path(folder, str(number)))]
        if progress is not None:
            progress.start({"compile": len(jobs)})
        first = number // 2 * len(jobs) // (1 + n_processes // 2) if n_processes > 1 else 0
        places = [*range(first, len(jobs)), *range(first)]
        for place in reversed(places) if number % 2 else places:
            begun, done = (Path(folder, f"{state}-{place}") for state in ("begun", "done"))
            if not done.exists() if finished else _is_first(begun):
                jobs[place]()
                done.touch()
            if progress is not None:
                progress.advance("compile")
    finally:
        gc.enable()
    return len(jobs)


def _is_first(path: Path) -> bool:
    """Whether this process is the first to make a file."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _jobs(folder: Path) -> Iterator[Callable[[], Any]]:
    """Jobs that differ in the kernels that they reach, or in the types that these are called with.

    Rows in memory are read-only arrays; rows of a store are made by reading, and float16 is converted by it.
    """
    usual = _sets(20, (40, 300))
    stored = _stored(usual, folder / "usual")
    for query, gallery in (stored, usual):
        with_features = partial(evaluate_once, Session(), query, gallery, chunk_rows=_TILE)
        for distance in DISTANCES.names():
            yield partial(nearest, gallery, gallery, k=4, distance=distance, chunk_rows=_TILE)
            yield partial(with_features, distance=distance, rerank=_RERANKING)
        yield partial(with_features, breakdowns=["camera", "camera_pair", "identity", "gallery_size"], ties=True)
        yield partial(with_features, breakdowns=["gallery_size"], gallery_order="random", topk=3)
        yield partial(with_features, metrics=_PAIRS, roc=True)
        for rerank in (None, "k_reciprocal(k1=4,k2=2,variant=paper)"):
            yield partial(operating_points, query, gallery, chunk_rows=_TILE, rerank=rerank)
        yield partial(with_features, collapse="camid")
        yield partial(with_features, collapse="pid", protocol="no_cameras")
        yield partial(with_features, collapse="CMC:pid", rerank=_RERANKING)
        yield partial(with_features, protocol="cuhk03_separate_cameras")
        yield partial(with_features, protocol="cuhk03", rerank=_RERANKING)
        yield partial(with_features, protocol="cuhk03", single_shot_draws=3)
        for rerank in _RERANKINGS:
            yield partial(with_features, rerank=rerank, topk=3, metrics=_EVERY_RANK, ties=True)
        for expand in _EXPANSIONS:
            yield partial(with_features, expand=expand)
            yield partial(with_features, expand=expand, rerank=_RERANKING)
    query, gallery = _stored(usual, folder / "halves", "float16")
    yield partial(evaluate_once, Session(), query, gallery, expand=_EXPANSIONS[0], rerank=_RERANKING)
    yield partial(evaluate_once, Session(), query, gallery, metrics=_PAIRS, roc=True)
    yield partial(evaluate_once, Session(), usual[0], stored[1], metrics=_PAIRS, roc=True)
    yield partial(evaluate_once, Session(), stored[0], usual[1], metrics=_PAIRS, roc=True)
    # Many positives of every query, which products in float32 separate and which they do not.
    for name, spread in (("many", 1.0), ("many-near", 1e-6)):
        many = _sets(4, (40, 600), spread)
        for query, gallery in (many, _stored(many, folder / name)):
            yield partial(evaluate_once, Session(), query, gallery)
    # Still more of them; and rows so near each other that products in float32 do not separate any.
    for name, sets in (("crowded", _sets(2, (6, 2400))), ("near", _sets(20, (40, 300), spread=1e-6))):
        for query, gallery in (sets, _stored(sets, folder / name)):
            yield partial(evaluate_once, Session(), query, gallery, metrics=_EVERY_RANK, ties=True, topk=3)
            yield partial(evaluate_once, Session(), query, gallery, distance="euclidean", metrics=_PAIRS, roc=True)
            yield partial(evaluate_once, Session(), query, gallery, protocol="cuhk03")
            yield partial(evaluate_once, Session(), query, gallery, collapse="camid")
            yield partial(evaluate_once, Session(), query, gallery, rerank=_RERANKING, protocol="cuhk03")
    for query, gallery in (stored, usual):
        yield partial(_with_distances, query, gallery, folder)
    for name in (EVALUATION, INTEGERS):
        yield partial(warm_up, name)


def _sets(n_identities: int, sizes: tuple[int, int], spread: float = 1.0) -> tuple[FeatureSet, FeatureSet]:
    """Query and gallery of so many rows: gallery rows of pid -1, and a query whose identity the gallery lacks."""
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((n_identities + 1, _DIM))
    made = []
    for size, first in zip(sizes, (0, -1), strict=True):
        pids = generator.integers(first, n_identities, size)
        pids[0] = n_identities + first
        features = 1.0 + spread * (centres[pids] + generator.standard_normal((size, _DIM)))
        ids = np.arange(size) + 10_000 * (first + 1)
        made.append(FeatureSet.from_arrays(features.astype(np.float32), pids, generator.integers(0, 4, size), ids))
    return made[0], made[1]


def _stored(
    sets: tuple[FeatureSet, FeatureSet], folder: Path, dtype: str | None = None
) -> tuple[FeatureSet, FeatureSet]:
    opened = []
    for name, features in zip(("query", "gallery"), sets, strict=True):
        uri = str(folder / f"{name}.zarr")
        features.save(uri, chunk_rows=_TILE, dtype=dtype)
        opened.append(FeatureSet.open(uri))
    return opened[0], opened[1]


def warm_up(name: str) -> None:
    """Do the work of a warm-up in this process, unless it has been done."""
    if has_record(name):
        return
    # Rows enough for products of integers, and as few positives of a query as usual.
    query, gallery = _sets(200, (40, 3000))
    integers = name == INTEGERS
    if not integers or Policy.in_force().may_use_integers:
        with forcing("int8" if integers else "float32"):
            nearest(query, gallery, k=4)
            evaluate_once(Session(), query, gallery, topk=3)
            if integers:
                nearest(gallery, gallery, k=4)
    record(name)


def _with_distances(query: FeatureSet, gallery: FeatureSet, folder: Path) -> None:
    """Blocks of both types, in memory and in a file."""
    values = np.random.default_rng(1).random((query.n_rows, gallery.n_rows))
    for dtype in (np.float32, np.float64):
        block = DistanceBlock.from_array(values.astype(dtype))
        path = folder / f"{np.dtype(dtype).name}.npy"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        for each in (block, block.save(str(path))):
            evaluate_distances(each, query, gallery, metrics=_EVERY_RANK, topk=3, ties=True, chunk_rows=_TILE)
            evaluate_distances(each, query, gallery, metrics=_PAIRS, chunk_rows=_TILE)
            evaluate_distances(each, query, gallery, collapse="camid", chunk_rows=_TILE)


def _main(names: Iterable[str]) -> None:
    # The process ends right after: collecting garbage would be a tenth of its time.
    gc.disable()
    for name in names:
        if name == INTEGERS:
            os.nice(_LOW_PRIORITY)
        # One process does it, of all that runs have started.
        with locked(f"warmup-{name}", wait_s=0.0) as is_first:
            if is_first:
                warm_up(name)


if __name__ == "__main__":
    _main(sys.argv[1:])
