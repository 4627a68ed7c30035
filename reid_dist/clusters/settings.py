"""Default Dask settings, which a cluster file may replace, with their reasons."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reid_dist.core.environment import SCREEN_VARIABLE

HEALTH = ("distributed.http.health",)
PAGES = (
    *HEALTH,
    "distributed.http.scheduler.info",
    "distributed.http.scheduler.json",
    "distributed.http.scheduler.prometheus",
    "distributed.http.statics",
)
"""Pages of a scheduler with a dashboard: Dask's own but for the one that passes requests on to any other address."""

_SCREEN, _DEVICE, _GPUS = "reid-dist.screen", "reid-dist.device", "reid-dist.gpus"

AUTO = "auto"
"""The choice of a device that leaves it open."""

_PATIENCE, _DEFAULT_PATIENCE, _ENDLESS = "distributed.scheduler.no-workers-timeout", "5 minutes", "36500 days"

_SETTINGS: dict[str, Any] = {
    # A job whose workers never come must end, not hang.
    _PATIENCE: _DEFAULT_PATIENCE,
    # A busy worker replies late.
    "distributed.comm.timeouts.connect": "60s",
    "distributed.comm.timeouts.tcp": "60s",
    # Tasks keep no results in memory: writing them to disk would only hide a wrong plan.
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.target": False,
    # Every 10 ms, as by default, takes time from workers that compile kernels: Numba's calls are nested deeply.
    "distributed.worker.profile.interval": "100ms",
    # Every 20 ms, as by default, takes a twentieth of a core for a scheduler with a worker.
    "distributed.admin.tick.interval": "500ms",
    # Local workers are forked from a server that has imported everything already; see `reid_dist.clusters.workers`.
    "distributed.worker.multiprocessing-method": "forkserver",
}


def pages_of(config: object) -> Sequence[str]:
    """Pages of the scheduler of a cluster that this process starts."""
    return PAGES if getattr(config, "dashboard", False) else ()


def _settings(own: Mapping[str, Any], pages: Sequence[str]) -> dict[str, Any]:
    # Dask serves pages outside TLS, with or without a dashboard: logs, calls and names of tasks.
    served = {"distributed.scheduler.http.routes": [*pages], "distributed.worker.http.routes": []}
    found = {**_SETTINGS, **served, **own}
    # Outside cluster files, nothing is Dask's default.
    return {**found, _PATIENCE: _ENDLESS if found[_PATIENCE] is None else found[_PATIENCE]}


def patience() -> float:
    """Seconds that this process waits for a cluster of which no worker works or answers, before it ends the run."""
    import dask
    from dask.utils import parse_timedelta

    chosen = dask.config.get(_PATIENCE, None)
    return float(parse_timedelta(_DEFAULT_PATIENCE if chosen is None else chosen))


@contextlib.contextmanager
def in_force(own: Mapping[str, Any], pages: Sequence[str] = ()) -> Iterator[None]:
    """Apply the settings to this process; `pages` are those that the scheduler serves outside TLS."""
    import dask

    # First: its import adds defaults, which must outlast these settings.
    importlib.import_module("distributed")
    with dask.config.set(_settings(own, pages)):
        yield


@contextlib.contextmanager
def forcing(screen: str | None, device: str = AUTO, *, gpus: bool = False) -> Iterator[None]:
    """Force the products of jobs that this process defines, unless the environment does, and where they are computed.

    None and ``auto`` leave the choice.  `gpus` says that workers have GPUs, whether or not this process has.
    """
    chosen = ((_SCREEN, screen), (_DEVICE, device), (_GPUS, gpus or None))
    forced = {key: value for key, value in chosen if value not in (None, AUTO)}
    if not forced:
        yield
        return
    import dask

    with dask.config.set(forced):
        yield


def forced_products() -> str | None:
    """Products that the environment forces, or else `forcing`; None if neither does."""
    import dask

    found: str | None = os.environ.get(SCREEN_VARIABLE) or dask.config.get(_SCREEN, None)
    return found


def wanted_device() -> str:
    """Where products of jobs are computed: ``auto``, ``cpu`` or ``cuda``."""
    import dask

    found: str = dask.config.get(_DEVICE, AUTO)
    return found


def workers_have_gpus() -> bool:
    """Whether workers of jobs have GPUs, as the cluster file says."""
    import dask

    return bool(dask.config.get(_GPUS, False))


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
    """Suppress Dask's log messages with tracebacks about lost connections: the error of the command has the cause."""
    names = [name for name in logging.root.manager.loggerDict if name.split(".")[0] == "distributed"]
    before = {name: logging.getLogger(name).level for name in names}
    for name, level in before.items():
        # Loggers without a level have that of their parent.
        if level != logging.NOTSET:
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)
