"""Messages about failures of a cluster: the task, the known cause, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.standstill import LESS_MEMORY, Watch, left_alone, states_of
from reid_dist.clusters.versions import refuse_unlike_code
from reid_dist.clusters.workers import events_of
from reid_dist.core.address_space import more_memory
from reid_dist.core.formatting import byte_size, first_few
from reid_dist.errors import ClusterError, ReidDistError, RunFailedError

if TYPE_CHECKING:
    from distributed import Client, KilledWorker


# Topics under which a nanny reports to the scheduler a worker that it ended for its memory, and the scheduler reports
# lost workers and their tasks.
_ENDED_FOR_MEMORY, _ABOUT_ALL = "worker-restart-memory", "all"

# Tasks that an error names; of more, how many they are.
_MOST_NAMED = 4


@contextlib.contextmanager
def cluster_failures(client: Client | None) -> Iterator[None]:
    """Turn failures of a cluster into a `RunFailedError` with the cause and what to do; `client` None has none."""
    if client is None:
        yield
        return
    with _explained(client, str, None):
        yield


@contextlib.contextmanager
def watched_tasks(client: Client, name_task: Callable[[str], str], warn: Callable[[str], None]) -> Iterator[Watch]:
    """Do as `cluster_failures` while tasks run, also when the run stands still, or a worker has other code.

    `name_task` describes the task of a key; `warn` takes a line about a standstill, in another thread.
    """
    watch = Watch(client, name_task, warn)
    with _explained(client, name_task, watch), watch:
        yield watch


@contextlib.contextmanager
def _explained(client: Client, named: Callable[[str], str], watch: Watch | None) -> Iterator[None]:
    from distributed import KilledWorker, LocalCluster
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    try:
        yield
    except ReidDistError:
        raise
    except KilledWorker as error:
        _refuse_other_code(client, error)
        raise RunFailedError(_killed(client, error, named)) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        raise RunFailedError(_left_alone(client, named(str(error.task)), error.timeout)) from error
    except MemoryError as error:
        # Local workers have the limits of this process.
        less = more_memory(LESS_MEMORY) if isinstance(client.cluster, LocalCluster) else LESS_MEMORY
        raise RunFailedError(f"a worker ran out of memory ({one_line(error)}): {less}") from error
    except (FutureCancelledError, FuturesCancelledError, CancelledError) as error:
        raise (watch and watch.failure) or RunFailedError(_lost(client)) from error
    except (CommClosedError, TimeoutError, ConnectionError) as error:
        raise RunFailedError(f"{_lost(client)} ({one_line(error)})") from error
    except Exception as error:
        # What another version cannot read fails in any way.
        if watch is not None:
            _refuse_other_code(client, error)
        raise


def _refuse_other_code(client: Client, error: Exception) -> None:
    """Raise the `ClusterError` that explains an unexpected error of a task, if other code of a worker does."""
    try:
        refuse_unlike_code(client)
    except ClusterError as refusal:
        raise refusal from error
    # A cluster that fails now does not replace the error that is being reported.
    except Exception:
        return


def _lost(client: Client) -> str:
    scheduler: Any = client.scheduler
    where = getattr(scheduler, "address", "") or "the cluster"
    return f"lost the scheduler {where}: it went away, or dropped the run; see that one runs there and run again"


def _left_alone(client: Client, task: str, seconds: float) -> str:
    """Message about a task that the scheduler has ended because no worker took it."""
    try:
        states = states_of(client)
    except OSError:
        return _lost(client)
    return left_alone(task, seconds, states)


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
            f"at; {LESS_MEMORY}"
        )
    return (
        f"a worker {has} died {times} on {tasks}; the usual reason is that the machine ran out of memory, and the "
        f"logs of the workers and of the system have details; {LESS_MEMORY}"
    )


def _deaths(client: Client, task: str) -> list[_Death]:
    """Lost workers that held a task, in order."""
    found = []
    for event in events_of(client, _ABOUT_ALL):
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
    return [int(event["rss"]) for event in events_of(client, _ENDED_FOR_MEMORY) if event.get("worker") in among]


def root_cause(error: BaseException) -> BaseException:
    """The first cause of an error; Dask's own message has no cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def one_line(error: BaseException) -> str:
    """The message of an error in one line, or its type."""
    return " ".join(str(error).split()) or type(error).__name__
