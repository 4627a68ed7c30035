"""Settings of Dask that hold unless a cluster file sets them, with the reason."""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

HEALTH = ("distributed.http.health",)
PAGES = (
    *HEALTH,
    "distributed.http.scheduler.info",
    "distributed.http.scheduler.json",
    "distributed.http.scheduler.prometheus",
    "distributed.http.statics",
)
"""Pages of a scheduler with a dashboard: Dask's own but for the one that passes requests on to any other address."""

_SETTINGS: dict[str, Any] = {
    # A job whose workers never come must end, not hang.
    "distributed.scheduler.no-workers-timeout": "5 minutes",
    # A busy worker replies late, and is not lost.
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    # Tasks reuse their own memory and keep nothing: writing results to disk would only hide a plan that is wrong.
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    # Local workers are forked from a server that has imported everything already; see `reid_dist.clusters.workers`.
    "distributed.worker.multiprocessing-method": "forkserver",
}


def _settings(own: Mapping[str, Any], pages: Sequence[str]) -> dict[str, Any]:
    # Dask serves pages outside TLS, with or without a dashboard: logs, calls and names of tasks.
    served = {"distributed.scheduler.http.routes": [*pages], "distributed.worker.http.routes": []}
    return {**_SETTINGS, **served, **own}


@contextlib.contextmanager
def in_force(own: Mapping[str, Any], pages: Sequence[str] = ()) -> Iterator[None]:
    """Settings of this process while a cluster is there; `pages` are what its scheduler serves outside TLS."""
    import dask

    # Before settings are made: its import adds the defaults, which must not go when the settings do.
    importlib.import_module("distributed")
    with dask.config.set(_settings(own, pages)):
        yield


def serialized(own: Mapping[str, Any], pages: Sequence[str] = ()) -> str:
    """The same settings as text for a worker's environment, of letters, digits and ``+ / = - _`` alone.

    Only these: the user's own settings may hold secrets.
    """
    import dask

    nested: dict[str, Any] = {}
    with dask.config.set(_settings(own, pages), config=nested):
        text: str = dask.config.serialize(nested)
    return text


@contextlib.contextmanager
def without_logs_of_dask() -> Iterator[None]:
    """Keep Dask from logging how it lost a connection, with tracebacks: the error of the command holds what matters."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name, level in before.items():
        # Those without a level take that of their parent.
        if level != logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
