"""A scheduler and workers on hosts that are reached with SSH."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.existing import await_workers
from reid_dist.clusters.failures import one_line, root_cause
from reid_dist.clusters.kinds import SSHCluster, memory_bytes
from reid_dist.clusters.security import (
    FIELDS,
    SCRATCH_MODULE,
    certificates,
    certificates_on_disk,
    is_loopback,
    refuse_open_network,
)
from reid_dist.core.optional_packages import import_extra
from reid_dist.core.temporary import temporary_directory
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client, Security

# Ends a scheduler or a nanny, and the nanny its worker, once the connection to this process is closed.
_ENDS_WITH_CLIENT = "reid_dist.clusters.remote_end"


@contextlib.contextmanager
def open_ssh(config: SSHCluster) -> Iterator[Client]:
    """Start a scheduler and workers, and end them."""
    asyncssh = import_extra("asyncssh", "ssh", f"a cluster of kind {config.kind}")
    import dask
    import distributed
    from distributed.deploy.ssh import Scheduler, Worker

    hosts = (config.scheduler_host, *config.worker_hosts)
    reached = {"connect_options": _connect_options(config), "remote_python": config.python}
    with contextlib.ExitStack() as stack:
        security = stack.enter_context(_certificates(config, hosts))
        common = _common(security)
        scheduler = {**common, "host": config.scheduler_host, "port": 0, "preload": [_ENDS_WITH_CLIENT, SCRATCH_MODULE]}
        workers = {
            number: {"cls": Worker, "options": {**reached, "address": host, "kwargs": _worker(config, host, common)}}
            for number, host in enumerate(config.worker_hosts)
        }
        if config.local_directory is not None:
            # A setting, since each nanny makes its own directory there.
            stack.enter_context(dask.config.set({"temporary-directory": config.local_directory}))
        try:
            cluster = distributed.SpecCluster(
                workers,
                {"cls": Scheduler, "options": {**reached, "address": config.scheduler_host, "kwargs": scheduler}},
                name="ssh",
                security=security,
                silence_logs=logging.CRITICAL,
            )
        except (OSError, RuntimeError, asyncssh.Error) as error:
            raise ClusterError(
                f"cannot start a cluster over SSH on {', '.join(hosts)}: {one_line(root_cause(error))}"
            ) from error
        stack.enter_context(cluster)
        client = stack.enter_context(distributed.Client(cluster, security=security))
        await_workers(client, config.wait_for_workers, config.timeout_s, "the cluster over SSH", "look at the hosts")
        yield client


@contextlib.contextmanager
def _certificates(config: SSHCluster, hosts: Sequence[str]) -> Iterator[Security | None]:
    """Certificates of the file; new ones if it names none and all hosts are this machine; None for ``insecure``.

    SSH only starts the processes: their messages are sent directly, and every user of a machine reaches loopback.
    """
    beyond = next((host for host in hosts if not is_loopback(host)), None)
    if beyond is not None:
        security = certificates(config)
        if security is None:
            refuse_open_network(config, f"the connection of the scheduler and {beyond}")
        yield security
        return
    with temporary_directory() as folder, certificates_on_disk(config, Path(folder)) as security:
        yield security


def _connect_options(config: SSHCluster) -> dict[str, Any]:
    """Options of asyncssh; keys of hosts are always checked."""
    options: dict[str, Any] = {"port": config.port, "connect_timeout": min(config.timeout_s, 60.0)}
    if config.username is not None:
        options["username"] = config.username
    files = {"client_keys": config.private_key_file, "known_hosts": config.known_hosts_file}
    for name, given in files.items():
        if given is None:
            continue
        path = Path(given).expanduser()
        if not path.is_file():
            raise InputError(f"there is no file {str(path)!r}, which the cluster file names for SSH")
        options[name] = [str(path)] if name == "client_keys" else str(path)
    return options


def _worker(config: SSHCluster, host: str, common: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a worker on a host, as JSON."""
    options = {
        **common,
        "nthreads": config.threads_per_worker,
        "memory_limit": memory_bytes(config.memory),
        "preload_nanny": [_ENDS_WITH_CLIENT, SCRATCH_MODULE],
    }
    if is_loopback(host):
        # Otherwise nanny and worker would listen on every interface.  Other hosts require TLS, and their names may
        # resolve to another address than the one by which this host reaches them.
        options["host"] = host
    return options


def _common(security: Security | None) -> dict[str, Any]:
    """Options of scheduler and workers, as JSON; pages are served on loopback, outside TLS."""
    common: dict[str, Any] = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    if security is not None:
        # Paths of files that every host has, not their content: all users of a host can read command lines.
        common["protocol"] = "tls://"
        common["security"] = {
            "require_encryption": True,
            **{name: getattr(security, name) for name in FIELDS},
        }
    return common
