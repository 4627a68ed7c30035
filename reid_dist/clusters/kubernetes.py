"""Pods that Dask's Kubernetes operator starts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.existing import await_workers
from reid_dist.clusters.failures import one_line
from reid_dist.clusters.fields import memory_bytes
from reid_dist.clusters.kinds import KubernetesCluster
from reid_dist.clusters.security import refuse_open_network
from reid_dist.clusters.settings import HEALTH, serialized
from reid_dist.core.extras import import_extra
from reid_dist.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client


_COMM_PORT, _HTTP_PORT = 8786, 8787


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
