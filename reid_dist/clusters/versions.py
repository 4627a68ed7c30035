"""Code of workers: that of another reid-dist is refused, and other packages of theirs are recorded.

Results depend on the code of this package wherever it computes, so another version of it, or the same with other
sources, ends a run.  Every task names the code of the process that sent it, and a worker compares its own before it
runs the first of them, also one that joins during the run.  A version without this module cannot read such a task.
"""

from __future__ import annotations

import contextlib
import pkgutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from reid_dist._version import __version__
from reid_dist.core.environment import describe_packages
from reid_dist.core.sources import sources_digest
from reid_dist.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

_TOPIC = "reid-dist-packages"

# Where every version has its own, in the form of `pkgutil.resolve_name`.
_VERSION_OF_ANY = "reid_dist._version:__version__"

# Clients that a worker remembers.
_MOST_CLIENTS = 64

_SHORT_DIGEST = 12


@dataclass(frozen=True, slots=True)
class Code:
    """Code of this package in some process: version and digest of the sources."""

    version: str
    # Empty for a version that cannot tell.
    digest: str

    def refusal(self, where: str, client: Code) -> str | None:
        """Why a process with this code must not compute for a client; None if it may."""
        if self == client:
            return None
        runs, others = f"reid-dist {self.version}", f"reid-dist {client.version}"
        if self.version == client.version:
            digest = f"digest {self.digest[:_SHORT_DIGEST]}" if self.digest else "an older version"
            runs = f"other sources of {runs} ({digest})"
            others += f" (digest {client.digest[:_SHORT_DIGEST]})"
        return _refusal(f"{where} runs {runs}", f"runs {others}")


def _refusal(found: str, others: str) -> str:
    return (
        f"{found}, and the client {others}, so that results may differ: install the same reid-dist everywhere, start "
        "scheduler and workers again, and run again"
    )


def code_here() -> Code:
    """Code of this process."""
    return Code(__version__, sources_digest())


def run_alike(code: Code, client: str, task: Callable[..., T], *arguments: Any) -> T:
    """Run a task of the client with this id; `ClusterError` if this process has other code than the client."""
    _admit(code, client)
    return task(*arguments)


# Errors are not kept: a worker with other code refuses every task.
@lru_cache(maxsize=_MOST_CLIENTS)
def _admit(code: Code, client: str) -> None:
    """Compare codes, and log the packages of this worker to its scheduler, once per process and client."""
    from distributed import get_worker

    worker: Any = None
    # Only workers have one.
    with contextlib.suppress(ValueError):
        worker = get_worker()
    refusal = code_here().refusal("this process" if worker is None else f"worker {worker.address}", code)
    if refusal is not None:
        raise ClusterError(refusal)
    if worker is not None:
        worker.log_event(_TOPIC, {"client": client, "worker": worker.address, "packages": describe_packages()})


def refuse_unlike_code(client: Client, warn: Callable[[str], None] | None = None) -> None:
    """Raise `ClusterError` if the scheduler or a worker of a client has other code than this process.

    The scheduler computes nothing, but it reads tasks and writes them anew for the workers.  `warn` takes a line if a
    worker does not answer.
    """
    scheduler: Any = client.scheduler

    def on_scheduler(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        try:
            return {f"scheduler {scheduler.address}": client.run_on_scheduler(function, *arguments)}
        except OSError:
            raise
        except Exception as error:
            return {f"scheduler {scheduler.address}": error}

    _refuse_unlike(on_scheduler)
    refuse_unlike_workers(client, warn=warn)


def refuse_unlike_workers(
    client: Client,
    workers: list[str] | None = None,
    *,
    within_s: float | None = None,
    warn: Callable[[str], None] | None = None,
) -> None:
    """Raise `ClusterError` if one of all, or of these, workers has other code; options as of `run_on_workers`."""
    # Without a cluster, packages are recorded by this module alone.
    from reid_dist.clusters.workers import run_on_workers

    def on_workers(function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
        found = run_on_workers(client, function, *arguments, workers=workers, within_s=within_s, warn=warn)
        return {f"worker {worker}": each for worker, each in found.items()}

    _refuse_unlike(on_workers)


def _refuse_unlike(call: Callable[..., dict[str, Any]]) -> None:
    """Refuse processes on which `call` runs a function; it returns results, or exceptions, by their name."""
    code = code_here()
    found = call(code_here)
    if not all(isinstance(each, Code) for each in found.values()):
        # An older version cannot tell; a worker that has left meanwhile need not.
        versions = call(pkgutil.resolve_name, _VERSION_OF_ANY)
        found = {name: each if isinstance(each, Code) else versions.get(name) for name, each in found.items()}
    for name, each in found.items():
        if isinstance(each, ImportError):
            raise ClusterError(_refusal(f"{name} cannot import reid_dist ({each})", f"runs reid-dist {code.version}"))
        known = Code(each, "") if isinstance(each, str) else each
        if isinstance(known, Code) and (refusal := known.refusal(name, code)) is not None:
            raise ClusterError(refusal)


def other_packages(client: Client | None) -> list[dict[str, Any]]:
    """Packages of workers that have run tasks of a client, where they are not those of this process.

    One entry with the versions, and the number of workers as ``n_workers``, for each set of packages.
    """
    if client is None:
        return []
    from reid_dist.clusters.workers import events_of

    by_worker = {
        event["worker"]: tuple(event["packages"].items())
        for event in events_of(client, _TOPIC)
        if event.get("client") == client.id
    }
    alike = describe_packages()
    return [
        {"n_workers": number, **dict(packages)}
        for packages, number in sorted(Counter(by_worker.values()).items())
        if dict(packages) != alike
    ]
