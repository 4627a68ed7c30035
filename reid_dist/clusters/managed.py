"""Clusters that a service starts: pods of Dask's Kubernetes operator, and those of a Dask Gateway server."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from reid_dist.clusters.existing import await_workers
from reid_dist.clusters.failures import one_line
from reid_dist.clusters.kinds import GatewayCluster, KubernetesCluster, memory_bytes
from reid_dist.clusters.security import is_loopback, refuse_open_network
from reid_dist.clusters.settings import HEALTH, serialized
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import ClusterError, InputError

if TYPE_CHECKING:
    from distributed import Client


_COMM_PORT, _HTTP_PORT = 8786, 8787
_VARIABLE = "DASK_GATEWAY_PASSWORD"  # of the environment


def manifest(config: KubernetesCluster) -> dict[str, Any]:
    """The DaskCluster resource for the operator."""
    environment = [
        {"name": "DASK_INTERNAL_INHERIT_CONFIG", "value": serialized(config.dask, HEALTH)},
        # The nanny sets these for workers; here they hold for all that runs in the pod.
        *({"name": f"{library}_NUM_THREADS", "value": "1"} for library in ("OMP", "OPENBLAS", "MKL")),
    ]
    volumes: dict[str, Any] = {}
    mounts: dict[str, Any] = {}
    if config.volume_claim is not None:
        claim = {"claimName": config.volume_claim}
        volumes = {"volumes": [{"name": "stores", "persistentVolumeClaim": claim}]}
        mounts = {"volumeMounts": [{"name": "stores", "mountPath": config.mount_path}]}

    def container(role: str, args: list[str], resources: dict[str, str], **more: Any) -> dict[str, Any]:
        limits = {"requests": resources, "limits": resources}
        return {"name": role, "image": config.image, "args": args, "env": environment, "resources": limits, **more}

    ports = {"tcp-comm": _COMM_PORT, "http-dashboard": _HTTP_PORT}
    scheduler = container(
        "scheduler",
        ["dask", "scheduler", "--no-show"],
        {"cpu": "1", "memory": "4Gi"},
        ports=[{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()],
        readinessProbe={"httpGet": {"port": "http-dashboard", "path": "/health"}, "periodSeconds": 5},
    )
    memory = memory_bytes(config.memory)
    words = [
        "--name",
        "$(DASK_WORKER_NAME)",
        "--nthreads",
        str(config.threads_per_worker),
        "--memory-limit",
        f"{memory}B",
    ]
    worker = container(
        "worker",
        ["dask", "worker", *words, "--no-dashboard", "--dashboard-address", "127.0.0.1:0"],
        {"cpu": str(config.threads_per_worker), "memory": str(memory)},
        **mounts,
    )
    selector = {"dask.org/cluster-name": config.name, "dask.org/component": "scheduler"}
    services = [{"name": name, "protocol": "TCP", "port": port, "targetPort": name} for name, port in ports.items()]
    return {
        "apiVersion": "kubernetes.dask.org/v1",
        "kind": "DaskCluster",
        "metadata": {"name": config.name, "namespace": config.namespace},
        "spec": {
            "worker": {"replicas": config.workers, "spec": {"containers": [worker], **volumes}},
            "scheduler": {
                "spec": {"containers": [scheduler]},
                "service": {"type": "ClusterIP", "selector": selector, "ports": services},
            },
        },
    }


@contextlib.contextmanager
def open_kubernetes(config: KubernetesCluster) -> Iterator[Client]:
    """Have the operator start pods, and remove them."""
    refuse_open_network(config, "the traffic between pods")
    operator = import_extra("dask_kubernetes.operator", "kubernetes", f"a cluster of kind {config.kind}")
    api = import_extra("kr8s", "kubernetes", f"a cluster of kind {config.kind}")
    with contextlib.ExitStack() as stack:
        try:
            # First: a cluster that failed to start is logged again when the process ends.
            api.api(namespace=config.namespace).version()
            cluster = stack.enter_context(
                operator.KubeCluster(
                    custom_cluster_spec=manifest(config),
                    namespace=config.namespace,
                    resource_timeout=int(config.timeout_s),
                    quiet=True,
                )
            )
            client = stack.enter_context(cluster.get_client())
        except Exception as error:  # of five libraries below, which share no other class
            raise ClusterError(
                f"no cluster on Kubernetes: {one_line(error)}; check KUBECONFIG and that Dask's operator is installed"
            ) from error
        where = f"the cluster {config.namespace}/{config.name}"
        await_workers(client, config.wait_for_workers, config.timeout_s, where, "look at its pods")
        yield client


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
