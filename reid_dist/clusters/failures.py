"""Messages about failures of a cluster: the task, the known cause, and what to do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.workers import workers_of
from reid_dist.core.address_space import more_memory
from reid_dist.core.formatting import byte_size, first_few
from reid_dist.errors import ReidDistError, RunFailedError

if TYPE_CHECKING:
    from distributed import Client, KilledWorker


# Topics under which a nanny reports to the scheduler a worker that it ended for its memory, and the scheduler reports
# lost workers and their tasks.
_ENDED_FOR_MEMORY, _ABOUT_ALL = "worker-restart-memory", "all"

# Tasks that an error names; of more, how many they are.
_MOST_NAMED = 4

# Polling intervals of a cluster: one that seems to do nothing, and one that works, which notes it in its log.
_POLLED_EVERY_S, _POLLED_AT_LEAST_EVERY_S = 1.0, 15.0

_LESS_MEMORY = (
    "give workers more memory (memory_limit of the cluster file), fewer threads each (threads_per_worker), or choose a "
    "smaller --chunk-rows"
)


@contextlib.contextmanager
def cluster_failures(client: Client | None, name_task: Callable[[str], str] | None = None) -> Iterator[None]:
    """Turn failures of a cluster into a `RunFailedError` with the cause and what to do; `client` None has none.

    `name_task` describes the task of a key.  With it, a run also ends when paused workers hold all of its tasks: they
    would hold them for ever.
    """
    if client is None:
        yield
        return
    from distributed import KilledWorker, LocalCluster
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    named = name_task or str
    held: list[_Held] = []
    watch = contextlib.nullcontext() if name_task is None else _watched(client, held)
    try:
        with watch:
            yield
    except ReidDistError:
        raise
    except KilledWorker as error:
        raise RunFailedError(_killed(client, error, named)) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        raise RunFailedError(_left_alone(client, named(str(error.task)), error.timeout)) from error
    except MemoryError as error:
        # Local workers have the limits of this process.
        less = more_memory(_LESS_MEMORY) if isinstance(client.cluster, LocalCluster) else _LESS_MEMORY
        raise RunFailedError(f"a worker ran out of memory ({one_line(error)}): {less}") from error
    except (FutureCancelledError, FuturesCancelledError, CancelledError) as error:
        if held:
            raise RunFailedError(_left_alone(client, named(held[0].task), held[0].timeout_s)) from error
        raise RunFailedError(_lost(client)) from error
    except (CommClosedError, TimeoutError, ConnectionError) as error:
        raise RunFailedError(f"{_lost(client)} ({one_line(error)})") from error


@dataclass(frozen=True, slots=True)
class _Held:
    """A task that a paused worker holds and never began, and the seconds after which the run ends."""

    task: str
    timeout_s: float


@contextlib.contextmanager
def _watched(client: Client, held: list[_Held]) -> Iterator[None]:
    """Cancel the run, with the reason in `held`, when nothing has advanced for the scheduler's no-workers-timeout.

    A scheduler ends tasks that no worker takes, but not those that a worker took before it paused.
    """
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(client, held, ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def _watch(client: Client, held: list[_Held], ended: threading.Event) -> None:
    loop: Any = client.loop
    since: float | None = None
    pause_s = _POLLED_EVERY_S
    # Other faults of the cluster are raised in the run itself.
    with contextlib.suppress(Exception):
        while not ended.wait(pause_s):
            found: _Held | None = client.run_on_scheduler(_held_task)
            if found is None:
                since, pause_s = None, min(2 * pause_s, _POLLED_AT_LEAST_EVERY_S)
                continue
            since, pause_s = since or time.monotonic(), _POLLED_EVERY_S
            if time.monotonic() - since > found.timeout_s:
                held.append(found)
                # Here alone: the waiting caller then releases them, and with them the data on workers.
                for state in list(client.futures.values()):
                    loop.add_callback(state.cancel)
                return


def _held_task(dask_scheduler: Any) -> _Held | None:
    """Run on the scheduler: a task that waits on a paused worker, if no worker does anything else."""
    workers = [worker for worker in dask_scheduler.workers.values() if worker.processing]
    timeout_s = dask_scheduler.no_workers_timeout
    if timeout_s is None or not workers:
        return None
    if any(worker.executing or worker.status.name != "paused" for worker in workers):
        return None
    return _Held(str(next(iter(workers[0].processing)).key), float(timeout_s))


def _lost(client: Client) -> str:
    scheduler: Any = client.scheduler
    where = getattr(scheduler, "address", "") or "the cluster"
    return f"lost the scheduler {where}: it went away, or dropped the run; see that one runs there and run again"


def _left_alone(client: Client, task: str, timeout: float) -> str:
    """Why no worker took a task."""
    if any(worker["status"] == "paused" for worker in workers_of(client)):
        return (
            f"out of memory: no worker took {task} for {timeout:g} s, for their memory was nearly full and stayed so; "
            f"{_LESS_MEMORY}"
        )
    return (
        f"no worker was there for {task}, and none came within {timeout:g} s: see what ended them, start workers and "
        "run again"
    )


@dataclass(frozen=True, slots=True)
class _Death:
    """A lost worker: its address, and the keys of the tasks that it held, begun or not."""

    worker: str
    tasks: frozenset[str]


def _killed(client: Client, error: KilledWorker, named: Callable[[str], str]) -> str:
    """Message about a task on which workers died."""
    worker: Any = error.last_worker
    limit = worker.memory_limit
    has = (
        f"with {byte_size(limit)} for {worker.nthreads} {'thread' if worker.nthreads == 1 else 'threads'}"
        if limit
        else ""
    )
    times = "once" if not error.allowed_failures else f"{error.allowed_failures + 1} times"
    deaths = _deaths(client, str(error.task))
    tasks = _described(_suspects(error, deaths), named)
    used = _memory_of_ended(client, {death.worker for death in deaths})
    if used:
        return (
            f"out of memory: workers {has} were ended {times} on {tasks}, at {byte_size(max(used))} when last looked "
            f"at; {_LESS_MEMORY}"
        )
    return (
        f"a worker {has} died {times} on {tasks}; the usual reason is that the machine ran out of memory, and the "
        f"logs of the workers and of the system have details; {_LESS_MEMORY}"
    )


def _deaths(client: Client, task: str) -> list[_Death]:
    """Lost workers that held a task, in order."""
    found = []
    for event in _events(client, _ABOUT_ALL):
        if event.get("action") == "remove-worker" and not event.get("expected"):
            death = _Death(str(event.get("worker")), frozenset(map(str, event.get("processing-tasks", ()))))
            if task in death.tasks:
                found.append(death)
    return found


def _suspects(error: KilledWorker, deaths: list[_Death]) -> list[str]:
    """Keys of the tasks of which workers may have died, the one that Dask names first.

    Dask names the first task that it finds among those of a worker.  The cause is a task that every lost worker had,
    and of these one that was running, if the last worker reported it for all its threads.
    """
    blamed, worker = str(error.task), error.last_worker
    if not deaths:
        return [blamed]
    common = frozenset.intersection(*(death.tasks for death in deaths))
    run = common.intersection(map(str, worker.executing))
    suspects = run if len(run) == worker.nthreads else common
    return sorted(suspects, key=lambda key: (key != blamed, key))


def _described(suspects: list[str], named: Callable[[str], str]) -> str:
    """The tasks in words."""
    if len(suspects) == 1:
        return named(suspects[0])
    shown = first_few(list(map(named, suspects)), _MOST_NAMED, "; ")
    return f"one of these tasks, which they had together each time: {shown}"


def _memory_of_ended(client: Client, workers: Iterable[str]) -> list[int]:
    """Bytes that workers held when their nannies ended them."""
    among = set(workers)
    return [int(event["rss"]) for event in _events(client, _ENDED_FOR_MEMORY) if event.get("worker") in among]


def _events(client: Client, topic: str) -> list[dict[str, Any]]:
    """Events of a topic on the scheduler, in order."""
    try:
        noted: Any = client.get_events(topic)
        return [event for _, event in noted if isinstance(event, dict)]
    # A cluster that fails now does not replace the error that is being reported.
    except (OSError, RuntimeError, TypeError, ValueError):
        return []


def root_cause(error: BaseException) -> BaseException:
    """The first cause of an error; Dask's own message has no cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def one_line(error: BaseException) -> str:
    """The message of an error in one line, or its type."""
    return " ".join(str(error).split()) or type(error).__name__
