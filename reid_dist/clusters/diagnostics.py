"""Dashboard of a cluster, and Dask's performance report."""

from __future__ import annotations

import contextlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.core.extras import missing_extra
from reid_dist.errors import RunFailedError, StoreError, StoreExistsError

if TYPE_CHECKING:
    from distributed import Client


# The only part of Dask's page that it would fetch.
_ICON = re.compile(r"<link rel=.shortcut icon.[^>]*>")


def refuse_without_bokeh(what: str) -> None:
    """Refuse what bokeh draws where it is not installed; the message has the command that installs it."""
    if importlib.util.find_spec("bokeh") is None:
        raise missing_extra("bokeh", "dashboard", what)


def dashboard_link(client: Client) -> str | None:
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
def performance_report(client: Client, path: Path) -> Iterator[None]:
    """Write Dask's performance report of a cluster to a new file: one page that needs no network."""
    refuse_without_bokeh("a performance report")
    from distributed import performance_report as report

    try:
        with path.open("x"):
            pass
    except FileExistsError:
        raise StoreExistsError(f"{path} is there already; choose another --performance-report") from None
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}; choose another --performance-report") from None
    recording = report(filename=str(path), mode="inline")
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
