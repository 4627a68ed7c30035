"""What goes wrong with a cluster, said in words: which task it was, what is known of the cause, and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any

from reid_dist.errors import ReidDistError, RunFailedError
from reid_dist.workers import workers_of

if TYPE_CHECKING:
    from distributed import Client, KilledWorker

__all__ = ["cluster_failures"]

# The topic under which a nanny tells the scheduler that it has ended a worker for its memory.
_ENDED_FOR_MEMORY = "worker-restart-memory"

_LESS_MEMORY = (
    "give workers more memory (memory_limit of the cluster file), fewer threads each (threads_per_worker), or choose a "
    "smaller --chunk-rows"
)


@contextlib.contextmanager
def cluster_failures(client: Client | None, name_task: Callable[[str], str] = str) -> Iterator[None]:
    """Turn what a cluster breaks with into one clear error.

    Parameters
    ----------
    client
        The client that the work runs by; None for this process.
    name_task
        Says what the task of a key does, in words.

    Raises
    ------
    RunFailedError
        If workers died, none was left, or the scheduler went away.
    """
    if client is None:
        yield
        return
    from distributed import KilledWorker
    from distributed.client import FutureCancelledError, FuturesCancelledError
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import NoValidWorkerError, NoWorkerError

    try:
        yield
    except ReidDistError:
        raise
    except KilledWorker as error:
        raise RunFailedError(_killed(client, error, name_task(str(error.task)))) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        raise RunFailedError(_left_alone(client, name_task(str(error.task)), error.timeout)) from error
    except MemoryError as error:
        raise RunFailedError(f"a worker ran out of memory ({_one_line(error)}): {_LESS_MEMORY}") from error
    except (FutureCancelledError, FuturesCancelledError, CancelledError) as error:
        raise RunFailedError(_lost(client)) from error
    except (CommClosedError, TimeoutError, ConnectionError) as error:
        raise RunFailedError(f"{_lost(client)} ({_one_line(error)})") from error


def _lost(client: Client) -> str:
    scheduler: Any = client.scheduler
    where = getattr(scheduler, "address", "") or "the cluster"
    return f"lost the scheduler {where}: it went away, or dropped the run; see that one runs there and run again"


def _left_alone(client: Client, task: str, timeout: float) -> str:
    """Why nobody took a task."""
    if any(worker["status"] == "paused" for worker in workers_of(client)):
        return (
            f"out of memory: no worker took {task} for {timeout:g} s, for their memory was nearly full and stayed so; "
            f"{_LESS_MEMORY}"
        )
    return (
        f"no worker was there for {task}, and none came within {timeout:g} s: see what ended them, start workers and "
        "run again"
    )


def _killed(client: Client, error: KilledWorker, task: str) -> str:
    """What is known of a task that workers died of."""
    worker: Any = error.last_worker
    limit = worker.memory_limit
    has = (
        f"with {_size(limit)} for {worker.nthreads} {'thread' if worker.nthreads == 1 else 'threads'}" if limit else ""
    )
    times = "once" if not error.allowed_failures else f"{error.allowed_failures + 1} times"
    used = _memory_of_ended(client)
    if used:
        return (
            f"out of memory: workers {has} were ended {times} on {task}, at {_size(max(used))} when last looked "
            f"at; {_LESS_MEMORY}"
        )
    return (
        f"a worker {has} died {times} on {task}; the usual reason is that the machine ran out of memory, and the "
        f"logs of the workers and of the system say more; {_LESS_MEMORY}"
    )


def _memory_of_ended(client: Client) -> list[int]:
    """Bytes that workers held when their nannies ended them."""
    try:
        events: Any = client.get_events(_ENDED_FOR_MEMORY)
        return [int(event["rss"]) for _, event in events]
    # Whatever is wrong with the cluster by now, the error that is being told is the one to tell.
    except (OSError, RuntimeError, TypeError, KeyError, ValueError):
        return []


def _size(n_bytes: float) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.0f} MiB"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
