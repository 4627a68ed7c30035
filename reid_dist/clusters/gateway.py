"""A cluster of a Dask Gateway server."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reid_dist.clusters.existing import await_workers
from reid_dist.clusters.failures import one_line
from reid_dist.clusters.kinds import GatewayCluster
from reid_dist.clusters.security import is_loopback, refuse_open_network
from reid_dist.core.extras import import_extra
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client


_VARIABLE = "DASK_GATEWAY_PASSWORD"  # of the environment


@contextlib.contextmanager
def open_gateway(config: GatewayCluster) -> Iterator[Client]:
    """Request a cluster from a gateway, and release it at the end."""
    package = import_extra("dask_gateway", "gateway", f"a cluster of kind {config.kind}")
    address = urlsplit(config.address)
    if address.scheme != "https" and not is_loopback(str(address.hostname)):
        refuse_open_network(config, config.address)
    refused = import_extra("aiohttp", "gateway", f"a cluster of kind {config.kind}").ClientError
    failures = (OSError, RuntimeError, refused, package.GatewayClusterError, package.GatewayServerError)
    with contextlib.ExitStack() as stack:
        try:
            gateway = stack.enter_context(
                package.Gateway(config.address, proxy_address=config.proxy_address, auth=_auth(config, package))
            )
            cluster = stack.enter_context(gateway.new_cluster(**config.options))
            cluster.scale(config.workers)
            client = stack.enter_context(cluster.get_client())
        except (TypeError, ValueError) as error:
            raise InputError(f"the gateway {config.address} does not take these options: {one_line(error)}") from error
        except failures as error:
            raise ClusterError(f"the gateway {config.address} gave no cluster: {one_line(error)}") from error
        where = f"the cluster of {config.address}"
        await_workers(client, config.wait_for_workers, config.timeout_s, where, "look at the server's limits")
        yield client


def _auth(config: GatewayCluster, package: Any) -> Any:
    """Credentials; secrets are read from the environment alone."""
    if config.auth != "basic":
        return None if config.auth == "none" else config.auth
    if _VARIABLE not in os.environ:
        raise InputError(f"the gateway {config.address} requires a password: set {_VARIABLE} in the environment")
    return package.BasicAuth(username=config.username, password=os.environ[_VARIABLE])
