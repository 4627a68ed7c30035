"""A running scheduler: its address, the connection to it, and the wait for its workers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.clusters.failures import one_line
from reid_dist.clusters.kinds import ExistingCluster
from reid_dist.clusters.security import certificates, is_loopback, refuse_open_network
from reid_dist.clusters.workers import ANSWERS_WITHIN_S, requested_worker, workers_of
from reid_dist.core.formatting import counted
from reid_dist.core.json_text import parse_json
from reid_dist.core.regular_files import MOST_SETTINGS, read_named
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security


_POLLED_EVERY_S = 0.1
# Seconds for a client that has lost its scheduler to reconnect.
_BACK_WITHIN_S = 10.0


@contextlib.contextmanager
def open_existing(config: ExistingCluster) -> Iterator[Client]:
    """Reach a scheduler, and leave it running."""
    if (config.address is None) == (config.scheduler_file is None):
        raise InputError("an existing cluster is given by an address or by a scheduler_file: one of the two")
    deadline = time.monotonic() + config.timeout_s
    if config.address is not None:
        address = where = config.address
    else:
        where = f"the scheduler of {config.scheduler_file}"
        address = address_in(Path(str(config.scheduler_file)), deadline, config.timeout_s)
    security = certificates(config)
    scheme, _, rest = address.partition("://")
    if scheme == "tls" and security is None:
        raise InputError(
            f"{where} speaks TLS and refuses clients without certificates: the cluster file must name ca_file, "
            "cert_file and key_file"
        )
    if scheme != "tls" and security is not None:
        raise InputError(f"the cluster file names certificates, and {address} does not speak TLS; write tls://{rest}")
    if scheme != "tls" and not is_loopback(rest.rpartition(":")[0]):
        refuse_open_network(config, address)
    with reach(address, security, where, config.timeout_s) as client:
        await_workers(client, config.wait_for_workers, config.timeout_s, where, "start workers")
        yield client


def address_in(path: Path, deadline: float, timeout_s: float) -> str:
    """Address in a file that a scheduler writes, once it has done so."""
    while True:
        try:
            return str(parse_json(read_named(path, "scheduler_file", MOST_SETTINGS))["address"])
        except FileNotFoundError:
            if time.monotonic() > deadline:
                raise ClusterError(f"there is no scheduler_file {str(path)!r} after {timeout_s:g} s") from None
        except (ValueError, KeyError, TypeError):
            # It may be read while it is being written.
            if time.monotonic() > deadline:
                raise InputError(f"{str(path)!r} is no scheduler_file: it holds no JSON with an address") from None
        time.sleep(0.05)


@contextlib.contextmanager
def reach(address: str, security: Security | None, where: str, timeout_s: float) -> Iterator[Client]:
    """Connect to a scheduler."""
    import distributed

    try:
        client = distributed.Client(address, security=security, timeout=timeout_s)
    except Exception as error:  # Another server may answer with any bytes, which fail in many ways.
        secured = address.startswith("tls://")
        hint = "whether it trusts these certificates" if secured else "that it does not speak TLS (tls://…)"
        reason = one_line(error)
        if not isinstance(error, OSError | TypeError | ValueError):
            reason = f"the server there is no Dask scheduler of this version ({reason})"
        raise ClusterError(
            f"cannot reach {where} within {timeout_s:g} s; check that it runs and {hint}: {reason}"
        ) from error
    with client:
        yield client


def await_workers(client: Client, n_workers: int, timeout_s: float, where: str, advice: str) -> None:
    """Wait until so many workers are there."""
    connected = time.monotonic()
    deadline = connected + timeout_s
    with requested_worker(client):
        while True:
            now = time.monotonic()
            # Dask's own waiting ends when its client gives up, which takes as long as workers may: many minutes in a
            # queue.
            if client.status == "running":
                connected = now
                if _n_running(client) >= n_workers:
                    return
            elif now - connected > _BACK_WITHIN_S or client.status == "closed":
                raise ClusterError(f"lost {where} while waiting for workers; see that it still runs")
            if now > deadline:
                raise ClusterError(
                    f"{where} had fewer than {counted(n_workers, 'worker')} after {timeout_s:g} s; {advice} or raise "
                    "timeout_s"
                )
            time.sleep(_POLLED_EVERY_S)


def _n_running(client: Client) -> int:
    """How many workers run; 0 where the scheduler does not answer, as it may answer the next time."""
    try:
        return sum(worker["status"] == "running" for worker in workers_of(client, ANSWERS_WITHIN_S).values())
    except OSError:
        return 0
