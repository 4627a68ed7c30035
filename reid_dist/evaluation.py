"""The straight line: open, plan, judge, distances of relevant pairs, counts over tiles, ranks, metrics, report."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from reid_dist.answer import make_report
from reid_dist.distances import DISTANCES, Distance
from reid_dist.environment import usable_cores
from reid_dist.errors import ClusterError, InputError
from reid_dist.graph import Job, Progress, run
from reid_dist.metrics import Metric, default_metrics, parse_metric
from reid_dist.model import Neighbours
from reid_dist.plan import DEFAULT_MEMORY, Plan, SetShape, make_plan
from reid_dist.protocols import PROTOCOLS, Protocol
from reid_dist.reports import Report
from reid_dist.stores import FeatureSet

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["evaluate", "nearest", "plan_job"]

# Share of a worker's memory that tasks may plan with; the rest is the interpreter, its libraries and what Dask holds.
_PLANNED_SHARE = 0.5


class _Stopwatch(Progress):
    """Passes progress on and notes when the last task of each stage was done."""

    def __init__(self, inner: Progress | None) -> None:
        self._inner = inner or Progress()
        self._last = time.perf_counter()
        self._done: dict[str, float] = {}

    def start(self, totals: dict[str, int]) -> None:
        """Start the clock."""
        self._last = time.perf_counter()
        self._inner.start(totals)

    def advance(self, stage: str) -> None:
        """Take note of one finished task."""
        self._done[stage] = time.perf_counter()
        self._inner.advance(stage)

    def stages(self) -> dict[str, float]:
        """Seconds from the end of one stage to the end of the next."""
        timing = {}
        for stage, done in sorted(self._done.items(), key=lambda item: item[1]):
            timing[stage] = done - self._last
            self._last = done
        return timing


def evaluate(
    query: FeatureSet,
    gallery: FeatureSet,
    *,
    protocol: str | Protocol = "market1501",
    distance: str = "cosine",
    metrics: Sequence[str] | None = None,
    max_rank: int = 50,
    topk: int | None = None,
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Evaluate queries against a gallery, exactly.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension.
    protocol
        Which items are relevant and which are junk; a name from `reid-dist list protocols`.
    distance
        A name from `reid-dist list distances`.
    metrics
        Names such as ``"mAP"`` or ``"CMC@10"``; None for mAP, mINP, the protocol's own AP and its CMC at 1, 5, 10.
    max_rank
        Length of the CMC curve.
    topk
        List this many nearest gallery items of every query in the report, junk included and flagged.
    chunk_rows
        Rows of a tile on both sides.  The answer does not depend on it.
    client
        Cluster to run on; None for threads of this process.  The answer does not depend on it either.
    workspace
        Directory that every worker sees, where sets in memory are put for the workers; None for a temporary one.
    progress
        Told of finished tasks.

    Returns
    -------
    The report; `Report.save` writes it.

    Raises
    ------
    UnknownNameError
        For a protocol, distance or metric that does not exist.
    InputError
        For sets that cannot be evaluated so; the message says why and what to do.
    PlanError
        If the job cannot fit, before any work is done.
    RunFailedError
        If a cluster lost the job.
    """
    started = time.perf_counter()
    rules = protocol if isinstance(protocol, Protocol) else PROTOCOLS.get(protocol)
    measure = DISTANCES.get(distance)
    asked = _parse_metrics(metrics, rules)
    _check_count("max_rank", max_rank)
    if topk is not None:
        _check_count("topk", topk)
    _check_sets(query, gallery, measure)
    rows_are_items = _check_labels(query, gallery, rules)
    watch = _Stopwatch(progress)
    with _visible_to(client, workspace, query, gallery) as (near, far):
        per_query = _most_matches(near, far)
        job = Job(
            query=near,
            gallery=far,
            distance=measure,
            plan=_plan(near, far, client, chunk_rows, per_query, topk or 0),
            protocol=rules,
            topk=topk or 0,
            rows_are_items=rows_are_items,
            joined=_joined_labels(query, gallery, rules),
        )
        planned = time.perf_counter()
        result = run(job, client, watch)
        ranked_at = time.perf_counter()
        if result.ranked is None:
            raise AssertionError("an evaluation ranks")
        report = make_report(query, gallery, job, result.ranked, result.neighbours, asked, max_rank)
    timing = {
        "plan": planned - started,
        **watch.stages(),
        "metrics": time.perf_counter() - ranked_at,
        "total": time.perf_counter() - started,
    }
    return replace(report, timing=timing)


def nearest(
    query: FeatureSet,
    gallery: FeatureSet,
    *,
    k: int = 10,
    distance: str = "cosine",
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Progress | None = None,
) -> Neighbours:
    """Find the k nearest gallery rows of every query by (canonical distance, gallery row).

    Parameters
    ----------
    query, gallery
        The two feature sets.  When both are the same set, each item is the first of its own list, whatever duplicates
        it has.
    k
        How many; lists are filled with index -1 and distance inf where the gallery is smaller.
    distance, chunk_rows, client, workspace, progress
        As in `evaluate`.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`.
    """
    measure = DISTANCES.get(distance)
    _check_count("k", k)
    _check_sets(query, gallery, measure)
    same = query is gallery or (query.n_rows == gallery.n_rows and query.content_digest == gallery.content_digest)
    with _visible_to(client, workspace, query, gallery) as (near, far):
        plan = _plan(near, far, client, chunk_rows, 0.0, k)
        job = Job(query=near, gallery=far, distance=measure, plan=plan, topk=k, own_first=same)
        result = run(job, client, progress)
    if result.neighbours is None:
        raise AssertionError("a search finds")
    return result.neighbours


def plan_job(
    query: FeatureSet, gallery: FeatureSet, *, n_threads: int, memory_per_thread: int, chunk_rows: int | None, topk: int
) -> Plan:
    """Plan an evaluation for given resources, from shapes and labels alone."""
    return make_plan(
        _shape(query),
        _shape(gallery),
        n_threads=n_threads,
        memory_per_thread=memory_per_thread,
        chunk_rows=chunk_rows,
        relevant_per_query=_most_matches(query, gallery),
        k=topk,
    )


# ---- before the work -------------------------------------------------------------------------------------------------


def _parse_metrics(names: Sequence[str] | None, protocol: Protocol) -> list[Metric]:
    if isinstance(names, str):
        raise InputError(f"metrics must be a list of names, found the text {names!r}; write [{names!r}]")
    wanted = default_metrics(protocol.cmc_family, protocol.ap_family) if names is None else names
    return list({metric.name: metric for metric in map(parse_metric, wanted)}.values())


def _check_count(name: str, value: object) -> None:
    """Refuse what is not a positive whole number."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be at least 1 and a whole number, found {value!r}")


def _check_sets(query: FeatureSet, gallery: FeatureSet, distance: Distance) -> None:
    """Refuse sets that this distance cannot compare."""
    for side, features in (("query", query), ("gallery", gallery)):
        if not isinstance(features, FeatureSet):
            raise InputError(
                f"{side} must be a FeatureSet, found {type(features).__name__}; use FeatureSet.open or .from_arrays"
            )
        if distance.needs_length and features.n_zero_rows and not features.allow_zero:
            rows = ", ".join(map(str, features.first_zero_rows))
            more = ", …" if features.n_zero_rows > len(features.first_zero_rows) else ""
            raise InputError(
                f"{features.n_zero_rows} of {features.n_rows} {side} rows are zero vectors (rows {rows}{more}), which "
                f"have no direction under {distance.name}; drop them, or allow them (allow_zero=True, ingest "
                "--allow-zero): they are then at distance 1 from everything"
            )
    if query.dim != gallery.dim:
        raise InputError(
            f"query features have {query.dim} dimensions, gallery features {gallery.dim}; both must come from one model"
        )


def _check_labels(query: FeatureSet, gallery: FeatureSet, protocol: Protocol) -> bool:
    """Refuse label sets that the protocol cannot use; say whether row numbers serve as item ids."""
    if protocol.needs_camids:
        missing = [side for side, each in (("query", query), ("gallery", gallery)) if each.camids is None]
        if missing:
            raise InputError(
                f"protocol {protocol.name!r} needs camids, and {' and '.join(missing)} have none; give them, or use "
                "the protocol 'no_cameras'"
            )
    if not protocol.needs_item_ids:
        return False
    if query.item_ids is not None and gallery.item_ids is not None:
        if query.item_ids.dtype.kind != gallery.item_ids.dtype.kind:
            raise InputError(
                f"item ids of the query set are {query.item_ids.dtype}, of the gallery {gallery.item_ids.dtype}; they "
                "must be of one kind to be matched"
            )
        return False
    if query.item_ids is None and gallery.item_ids is None and query.content_digest == gallery.content_digest:
        return True
    raise InputError(
        f"protocol {protocol.name!r} matches items by item id, and the sets differ or only one has item ids; give "
        "item_ids to both"
    )


def _joined_labels(query: FeatureSet, gallery: FeatureSet, protocol: Protocol) -> tuple[str, ...]:
    """Say which labels are texts that the two sets number differently, and refuse texts on one side alone."""
    kinds = {"pids": (query.pid_names, gallery.pid_names)}
    if protocol.needs_camids:
        kinds["camids"] = (query.camid_names, gallery.camid_names)
    for kind, (near, far) in kinds.items():
        if (near is None) != (far is None):
            text, number = ("query", "gallery") if far is None else ("gallery", "query")
            raise InputError(
                f"{kind} of the {text} set are texts and of the {number} set whole numbers, so none can be equal; give "
                "both sets the same kind of labels"
            )
    return tuple(kind for kind, (near, far) in kinds.items() if near != far)


def _shape(features: FeatureSet) -> SetShape:
    return SetShape(features.n_rows, features.dim, features.dtype.itemsize, features.chunk_rows)


def _most_matches(query: FeatureSet, gallery: FeatureSet) -> float:
    """Gallery items with the query's pid, mean over the fullest thousand queries in a row."""
    pids, counts = np.unique(gallery.pids, return_counts=True)
    place = np.minimum(np.searchsorted(pids, query.pids), len(pids) - 1)
    matches = np.where(pids[place] == query.pids, counts[place], 0)
    starts = np.arange(0, len(matches), 1024)
    sums = np.add.reduceat(matches, starts)
    return float((sums / np.diff(np.append(starts, len(matches)))).max())


def _plan(
    query: FeatureSet, gallery: FeatureSet, client: Client | None, chunk_rows: int | None, per_query: float, k: int
) -> Plan:
    n_threads, memory = usable_cores(), DEFAULT_MEMORY
    if client is not None:
        workers = client.scheduler_info(n_workers=-1)["workers"].values()
        if not workers:
            raise ClusterError(
                "the cluster has no workers; start some, or wait for them with client.wait_for_workers(1)"
            )
        n_threads = sum(worker["nthreads"] for worker in workers)
        limits = [worker["memory_limit"] / worker["nthreads"] for worker in workers if worker["memory_limit"]]
        memory = int(min(limits) * _PLANNED_SHARE) if limits else DEFAULT_MEMORY
    return make_plan(
        _shape(query),
        _shape(gallery),
        n_threads=n_threads,
        memory_per_thread=memory,
        chunk_rows=chunk_rows,
        relevant_per_query=per_query,
        k=k,
    )


@contextlib.contextmanager
def _visible_to(
    client: Client | None, workspace: str | PathLike[str] | None, query: FeatureSet, gallery: FeatureSet
) -> Iterator[tuple[FeatureSet, FeatureSet]]:
    """Put sets that live in this process's memory where workers can read them, once each."""
    if client is None or (query.is_stored and gallery.is_stored):
        yield query, gallery
        return
    with contextlib.ExitStack() as stack:
        if workspace is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reid-dist-")))
        else:
            folder = Path(workspace)
        stored: dict[str, FeatureSet] = {}
        for features in (query, gallery):
            if features.content_digest not in stored:
                target = folder / f"features-{features.content_digest[:16]}.zarr"
                stored[features.content_digest] = (
                    features if features.is_stored else features.save(str(target), overwrite=True)
                )
        yield stored[query.content_digest], stored[gallery.content_digest]
