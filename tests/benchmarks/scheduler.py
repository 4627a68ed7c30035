"""Load of a scheduler with a thousand simulated workers and the graph of an evaluation.

A simulated worker reports that a task is done as soon as it is sent; no feature is read, and nothing else runs in this
process.  The measured time is thus that of the scheduler and of the client that submits the graph.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import Any

import cloudpickle
import dask
import distributed
import numpy as np
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from distributed.comm.core import Comm

from reid_dist import FeatureSet
from reid_dist.core.formatting import byte_size
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import _build
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import DEFAULT_MEMORY, SetShape, make_plan
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.relevance.protocols import PROTOCOLS

THREADS_PER_WORKER = 2
PER_QUERY = 20
DIM = 512


def graph_of(n_query: int, n_gallery: int, n_threads: int) -> tuple[TaskGraph, EvaluationJob]:
    """The graph of an evaluation, as it would be sent; its sets are stand-ins, as no task runs."""
    rng = np.random.default_rng(0)
    few = FeatureSet.from_arrays(rng.standard_normal((4, DIM), np.float32), np.arange(4), np.zeros(4, int))
    shapes = (SetShape(n, DIM, 4, min(n, 8192)) for n in (n_query, n_gallery))
    plan = make_plan(*shapes, n_threads=n_threads, memory_per_thread=DEFAULT_MEMORY, relevant_per_query=PER_QUERY)
    scorer = FeatureScorer(few, few, DISTANCES.get("cosine"))
    job = EvaluationJob(few, few, scorer, plan, (Ranks(),), protocol=PROTOCOLS.get("market1501"))
    return _build(job, None, None), job


class SimulatedWorker(Comm):
    """The scheduler's connection to a worker that has done each task at once."""

    _local_addr = _peer_addr = "inproc://"

    def __init__(self, sizes: dict[str, int], sent: Counter[str]) -> None:
        super().__init__(deserialize=False)
        self._answers: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        self._sizes = sizes
        self._sent = sent
        self._closed = False

    @property
    def local_address(self) -> str:
        return self._local_addr

    @property
    def peer_address(self) -> str:
        return self._peer_addr

    async def read(self, deserializers: Any = None) -> list[dict[str, Any]]:
        return await self._answers.get()

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:
        done = []
        for each in msg if isinstance(msg, list | tuple) else [msg]:
            if each.get("op") != "compute-task":
                continue
            kind = str(each["key"]).split("-")[0]
            self._sent[kind] += 1
            now = time.time()
            done.append(
                {
                    "op": "task-finished",
                    "key": each["key"],
                    "run_id": each["run_id"],
                    "stimulus_id": each["stimulus_id"],
                    "status": "OK",
                    "nbytes": self._sizes.get(kind, 1000),
                    "type": b"",
                    "typename": "dict",
                    "metadata": {},
                    "thread": 1,
                    "startstops": ({"action": "compute", "start": now, "stop": now},),
                }
            )
        if done:
            self._answers.put_nowait(done)
        return 0

    async def close(self) -> None:
        self._closed = True

    def abort(self) -> None:
        self._closed = True

    def closed(self) -> bool:
        return self._closed


async def _run(graph: TaskGraph, n_workers: int, sizes: dict[str, int]) -> tuple[float, float, Counter[str]]:
    """Seconds of this process, seconds on the wall, and tasks by kind, until all tasks of a graph are done."""
    sent: Counter[str] = Counter()
    async with (
        distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler,
        distributed.Client(scheduler.address, asynchronous=True) as client,
    ):
        connections = [
            asyncio.ensure_future(
                scheduler.add_worker(
                    comm=SimulatedWorker(sizes, sent),
                    address=f"tcp://127.0.0.1:{10_000 + number}",
                    resolve_address=False,
                    status="running",
                    server_id=f"worker-{number}",
                    nthreads=THREADS_PER_WORKER,
                    name=f"worker-{number}",
                    now=time.time(),
                    resources={},
                    memory_limit=8 * 2**30,
                    metrics=_metrics(),
                    services={},
                    local_directory="",
                    versions={},
                    nanny="",
                    extra={},
                    stimulus_id="benchmark",
                )
            )
            for number in range(n_workers)
        ]
        while len(scheduler.workers) < n_workers:
            await asyncio.sleep(0.05)
        layer = "reid-dist"
        whole = HighLevelGraph({layer: graph.tasks}, {layer: set()})
        begin, begin_cpu = time.perf_counter(), time.process_time()
        futures = client.compute([Delayed(key, whole, layer=layer) for key in graph.finals], optimize_graph=False)
        await distributed.wait(futures)
        taken = time.process_time() - begin_cpu, time.perf_counter() - begin
        for future in futures:
            future.release()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
    return *taken, sent


def _metrics() -> dict[str, Any]:
    return {
        "cpu": 0.0,
        "memory": 0,
        "time": time.time(),
        "managed_bytes": 0,
        "spilled_bytes": {"memory": 0, "disk": 0},
        "transfer": {"incoming_bytes": 0, "incoming_count": 0, "incoming_count_total": 0, "outgoing_bytes": 0}
        | {"outgoing_count": 0, "outgoing_count_total": 0},
        "task_counts": {},
        "digests_total_since_heartbeat": {},
        "event_loop_interval": 0.02,
        "bandwidth": {"total": 1e8, "workers": {}, "types": {}},
    }


def scheduler_load(scale: float) -> None:
    """10,000 queries against galleries up to 100 million rows, planned for 1,000 workers of two threads."""
    n_workers = max(2, int(1000 * scale))
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    for n_gallery in (1_000_000, 10_000_000, 100_000_000):
        rows = max(10_000, int(n_gallery * scale))
        begin = time.perf_counter()
        graph, job = graph_of(max(100, int(10_000 * scale)), rows, THREADS_PER_WORKER * n_workers)
        built = time.perf_counter() - begin
        counts = 4 * PER_QUERY * job.plan.query_block
        sizes = {
            "sweep": counts,
            "merge": counts,
            "relevance": 24 * counts,
            "targets": 8 * counts,
            "relevant": counts,
        }
        # Simulated workers send no heartbeats, and would be removed.
        with dask.config.set({"distributed.scheduler.worker-ttl": None}):
            cpu, wall, sent = asyncio.run(_run(graph, n_workers, sizes))
        n_tasks = sum(sent.values())
        graph_bytes = len(cloudpickle.dumps(graph))
        moved = sum(sizes.get(kind, 1000) * n for kind, n in sent.items())
        print(
            f"{job.plan.query.n_rows} x {rows} on {n_workers} workers: {n_tasks} tasks ({sent['sweep']} sweeps of "
            f"{job.plan.query_block} x {job.plan.gallery_block}), graph {byte_size(graph_bytes)} "
            f"built in {built:.2g} s, results of {byte_size(moved)}; scheduler {cpu:.2g} s of one core "
            f"({1e3 * cpu / n_tasks:.2g} ms a task, {wall:.2g} s on the wall)"
        )
