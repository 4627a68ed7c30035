"""A cluster under observation: the address of its dashboard, and a performance report."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.cli.progress import notify
from reid_dist.clusters import ClusterConfig, Threads, connect
from reid_dist.clusters.failures import cluster_failures
from reid_dist.clusters.security import open_connection
from reid_dist.clusters.settings import without_logs_of_dask
from reid_dist.core.optional_packages import missing_extra
from reid_dist.errors import InputError, RunFailedError, StoreError, StoreExistsError
from reid_dist.reports.report_files import refuse_existing

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.clusters.local import EarlyCluster

_OPEN_DASHBOARD = (
    "warning: the dashboard has no password: anyone who can connect to it, at least every user of its machine, can "
    "read task names, call stacks and logs"
)

# The only part of Dask's page that it would fetch.
_ICON = re.compile(r"<link rel=.shortcut icon.[^>]*>")


def refuse_unobservable(cluster: ClusterConfig, page: Path | None, *, computes: bool = True) -> None:
    """Refuse, before any work, a performance report without a cluster, without bokeh, or in a file that exists."""
    if page is not None and (isinstance(cluster, Threads) or not computes):
        why = "threads of this process have none" if computes else "lists are read without one"
        raise InputError(f"--performance-report is of a cluster, and {why}; leave it out, or choose another --cluster")
    if page is not None:
        _refuse_without_bokeh("--performance-report")
        refuse_existing(page, "--performance-report")
    if getattr(cluster, "dashboard", False):
        _refuse_without_bokeh("dashboard: true in the cluster file")


@contextlib.contextmanager
def observed_cluster(
    cluster: ClusterConfig, page: Path | None, *, early: EarlyCluster | None = None
) -> Iterator[Client | None]:
    """Start or reach a cluster, print the address of its dashboard, and write a performance report to `page`.

    Yields a client, or None for threads.  If the cluster breaks, the error holds the cause; `early` is as of
    `connect`.
    """
    with contextlib.ExitStack() as stack:
        # Left after the cluster is: a client that closes while it searches for its scheduler logs the most.
        quiet = stack.enter_context(contextlib.ExitStack())
        client = stack.enter_context(connect(cluster, early=early))
        stack.enter_context(cluster_failures(client))
        if client is not None:
            quiet.enter_context(without_logs_of_dask())
            scheduler: Any = client.scheduler
            warning = open_connection(scheduler.address)
            if warning is not None:
                notify("open_connection", warning, message=warning)
            link = _dashboard_link(client)
            if link is not None:
                notify("dashboard", f"dashboard: {link}", link=link)
                notify("open_dashboard", _OPEN_DASHBOARD, message=_OPEN_DASHBOARD)
            if page is not None:
                stack.enter_context(_performance_report(client, page))
        yield client


def _refuse_without_bokeh(what: str) -> None:
    """Refuse what bokeh draws where it is not installed; the message has the command that installs it."""
    if importlib.util.find_spec("bokeh") is None:
        raise missing_extra("bokeh", "dashboard", what)


def _dashboard_link(client: Client) -> str | None:
    """Address of the dashboard of a client's cluster; None where it has none.

    `Client.dashboard_link` is set in any case: it then is the address of the scheduler's metrics.
    """
    with contextlib.suppress(KeyError, OSError, TimeoutError, ImportError, AttributeError):
        if client.run_on_scheduler(_has_dashboard):
            return str(client.dashboard_link) or None
    return None


def _has_dashboard(dask_scheduler: Any) -> bool:
    return bool(dask_scheduler.http_application.applications)


@contextlib.contextmanager
def _performance_report(client: Client, path: Path) -> Iterator[None]:
    """Write Dask's performance report of a cluster to a new file: one page that needs no network."""
    from distributed import performance_report

    try:
        with path.open("x"):
            pass
    except FileExistsError:
        raise StoreExistsError(f"{path} is there already; choose another --performance-report") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another --performance-report") from None
    recording = performance_report(filename=str(path), mode="inline")
    whole = False
    try:
        recording.__enter__()
        # Left explicitly and only after success: a failed cluster returns nothing.
        yield
        try:
            recording.__exit__(None, None, None)
            path.write_text(_ICON.sub("", path.read_text()))
        except (OSError, ImportError, ValueError, TypeError) as error:
            raise RunFailedError(f"cannot make the performance report {path}: {error}") from error
        whole = True
    finally:
        if not whole:
            path.unlink(missing_ok=True)
