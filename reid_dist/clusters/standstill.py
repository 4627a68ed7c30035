"""Standstills of a run: no task is finished, and no worker of the cluster can work on one.

Dask's scheduler ends tasks that no worker takes, where its setting says so.  It does not end those that a worker took
before it paused or was stopped, and one that somebody else has started usually ends none.

Clocks are those of this process, and monotonic: workers answer whenever the scheduler's record of them changes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

from reid_dist.clusters.settings import patience
from reid_dist.clusters.versions import refuse_unlike_workers
from reid_dist.clusters.workers import ANSWERS_WITHIN_S, WARNED_AFTER_S, workers_of
from reid_dist.core.formatting import byte_size, first_few
from reid_dist.errors import ClusterError, ReidDistError, RunFailedError

if TYPE_CHECKING:
    from distributed import Client

LESS_MEMORY: Final = (
    "give workers more memory (memory_limit of the cluster file), fewer threads each (threads_per_worker), or choose a "
    "smaller --chunk-rows"
)
"""What to do where workers ran out of memory."""

# Seconds without an answer before a worker counts as one that does not answer.
_SILENT_AFTER_S = 30.0
# Heartbeats without which a worker is looked at more often, and those that it may leave out.
_LATE_BEATS, _MISSED_BEATS = 3, 10

# Polling intervals: of a cluster that seems to do nothing, and of one that works.
_POLLED_EVERY_S, _POLLED_AT_LEAST_EVERY_S = 1.0, 15.0

# Workers that a message names; of more, how many they are.
_MOST_NAMED = 4


class Watch(contextlib.AbstractContextManager["Watch"]):
    """Looks at the workers of a client while tasks run, and cancels a run that stands still or gets unlike workers.

    `name_task` describes the task of a key, and `warn` gets a line when the run has stood still for half a minute.
    """

    def __init__(self, client: Client, name_task: Callable[[str], str], warn: Callable[[str], None]) -> None:
        self._client = client
        self._name_task = name_task
        self._warn = warn
        self._patience = patience()
        # When a task was finished last.
        self._moved = time.monotonic()
        self._warned = False
        self._workers = _Workers(self._patience)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="standstill", daemon=True)
        self.failure: ReidDistError | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def advanced(self) -> None:
        """Note that a task has been finished."""
        self._moved = time.monotonic()
        self._warned = False

    def _watch(self) -> None:
        # At once, so that those are known which are lost soon.
        pause_s = 0.0
        while self.failure is None and not self._ended.wait(min(pause_s, self._patience / 4)):
            pause_s = max(pause_s, _POLLED_EVERY_S)
            # Other faults of the cluster are raised in the run itself.
            with contextlib.suppress(Exception):
                joined = self._workers.look(workers_of(self._client, ANSWERS_WITHIN_S))
                calm = not (self._workers.stand_still or self._workers.unclear)
                pause_s = min(2 * pause_s, _POLLED_AT_LEAST_EVERY_S) if calm else _POLLED_EVERY_S
                if self._workers.stand_still:
                    self._judge(time.monotonic() - max(self._moved, self._workers.worked))
                self._refuse_unlike(joined)

    def _refuse_unlike(self, joined: list[str]) -> None:
        """Cancel the run if workers that have joined have other code: an older version ends when it gets a task."""
        if joined:
            try:
                refuse_unlike_workers(self._client, joined, within_s=ANSWERS_WITHIN_S)
            except ClusterError as error:
                self._cancel(error)

    def _judge(self, seconds: float) -> None:
        """Warn, or cancel the run, after so many seconds of a standstill."""
        if seconds > self._patience:
            states = self._workers.states(self._moved)
            self._cancel(RunFailedError(left_alone(self._name_task(self._task()), self._patience, states)))
        elif seconds >= WARNED_AFTER_S and not self._warned:
            self._warned = True
            self._warn(
                f"no task has been worked on for {seconds:.0f} s: waiting for workers, at most until "
                f"{self._patience:g} s have passed ({_listed(self._workers.states(self._moved))})"
            )

    def _cancel(self, failure: ReidDistError) -> None:
        self.failure = failure
        loop: Any = self._client.loop
        # Here alone: the waiting caller then releases them, and with them the data on workers.
        for state in list(self._client.futures.values()):
            loop.add_callback(state.cancel)

    def _task(self) -> str:
        """Key of a task that is not finished."""
        keys = (str(key) for key, state in list(self._client.futures.items()) if state.status == "pending")
        return next(keys, "")


class _Workers:
    """Workers of a scheduler, as they are when they are looked at now and then."""

    def __init__(self, patience_s: float) -> None:
        self._patience = patience_s
        # By address: the scheduler's time of the last answer, and when it was found to have changed.
        self._answered: dict[str, tuple[float, float]] = {}
        self._lost: dict[str, float] = {}
        self._now: dict[str, dict[str, Any]] = {}
        self._looked = False
        self._silent: dict[str, float] = {}
        # When a worker last said that it works, or all that they are able to.
        self.worked = 0.0
        # Whether no worker works, and some or all cannot.
        self.stand_still = False
        # Whether one may be about to stand still.
        self.unclear = False

    def look(self, workers: dict[str, dict[str, Any]]) -> list[str]:
        """Take note of the scheduler's list, and return the workers that have joined since the first time."""
        from distributed.scheduler import heartbeat_interval

        now = time.monotonic()
        self._lost.update((address, now) for address in self._now if address not in workers)
        joined = [address for address in workers if address not in self._answered] if self._looked else []
        self._now, self._looked = workers, True
        for address, worker in workers.items():
            if self._answered.get(address, (None, now))[0] != worker["last_seen"]:
                self._answered[address] = (worker["last_seen"], now)
        last = {address: self._answered[address][1] for address in workers}
        beat_s = heartbeat_interval(len(workers))
        silent_after = max(_MISSED_BEATS * beat_s, min(_SILENT_AFTER_S, self._patience))
        self._silent = {address: now - at for address, at in last.items() if now - at >= silent_after}
        unable = {
            address for address, each in workers.items() if address in self._silent or each["status"] != "running"
        }
        working = [
            at for address, at in last.items() if address not in self._silent and _works(workers[address], unable)
        ]
        self.stand_still = not working and (bool(unable) or not workers)
        self.unclear = any(now - at > _LATE_BEATS * beat_s for at in last.values())
        # One that works did so when it answered last; where all are able, the scheduler has work for none.
        self.worked = max([self.worked, *working, *([min(last.values())] if workers and not unable else [])])
        return joined

    def states(self, since: float) -> list[tuple[str, str]]:
        """State of every worker, and of those lost since a time: a word for its kind, and a description."""
        found = [("lost", f"worker {address} is lost") for address, at in self._lost.items() if at >= since]
        for address, worker in self._now.items():
            found.append(_state(address, worker, self._silent.get(address)))
        return sorted(found)


def _works(worker: dict[str, Any], unable: Iterable[str]) -> bool:
    """Whether a worker runs a task, or gets data for one, which it may wait for for ever if others are unable."""
    counts = worker["metrics"].get("task_counts", {})
    return bool(counts.get("executing") or counts.get("long-running") or (counts.get("flight") and not unable))


def _state(address: str, worker: dict[str, Any], silent_s: float | None) -> tuple[str, str]:
    if silent_s is not None:
        return "silent", f"worker {address} has not answered for {silent_s:.0f} s"
    if worker["status"] == "paused":
        used, limit = worker["metrics"].get("memory", 0), worker["memory_limit"]
        figures = f" ({byte_size(used)} of {byte_size(limit)})" if limit else ""
        return "paused", f"worker {address} is paused at its memory limit{figures}"
    return "unlike", f"worker {address} is {worker['status']}, without a task"


def states_of(client: Client) -> list[tuple[str, str]]:
    """States of the workers as the scheduler gives them now."""
    workers = _Workers(patience())
    workers.look(workers_of(client, ANSWERS_WITHIN_S))
    return workers.states(0.0)


def _listed(states: list[tuple[str, str]]) -> str:
    return first_few([text for _, text in states], _MOST_NAMED, "; ") if states else "the cluster has no workers"


def left_alone(task: str, seconds: float, states: list[tuple[str, str]]) -> str:
    """Message about a run that no worker has worked on for so many seconds."""
    kinds = {kind for kind, _ in states}
    if "paused" in kinds:
        return (
            f"out of memory: no worker took {task} for {seconds:g} s, for their memory was nearly full and stayed so "
            f"({_listed(states)}); {LESS_MEMORY}"
        )
    if kinds <= {"lost"}:
        return (
            f"no worker was there for {task}, and none came within {seconds:g} s ({_listed(states)}): see what ended "
            "them, start workers and run again"
        )
    return (
        f"no worker worked on {task} for {seconds:g} s ({_listed(states)}): see what stopped them, end those that do "
        "not answer, start workers and run again"
    )
