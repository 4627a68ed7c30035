"""What the Kubernetes operator is given, against the operator's own schema; no Kubernetes is run."""

from __future__ import annotations

import copy
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from reid_dist.clusters import cluster_size, read_cluster
from reid_dist.clusters.managed import manifest
from reid_dist.errors import InputError

jsonschema = pytest.importorskip("jsonschema")

CLUSTER = {
    "kind": "kubernetes",
    "image": "registry.example/reid-dist:1",
    "workers": 3,
    "threads_per_worker": 4,
    "memory": "8GiB",
    "volume_claim": "features",
    "insecure": True,
}


def _read(tmp_path: Path, **changed: Any) -> Any:
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump({**CLUSTER, **changed}))
    return read_cluster(path)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema, in which what is not named is wrong: Kubernetes would drop it in silence."""
    closed = copy.deepcopy(schema)

    def close(node: Any) -> None:
        if isinstance(node, dict):
            if "properties" in node and not node.get("x-kubernetes-preserve-unknown-fields"):
                node.setdefault("additionalProperties", False)
            for value in node.values():
                close(value)
        elif isinstance(node, list):
            for value in node:
                close(value)

    close(closed)
    top = closed["properties"]
    top.setdefault("apiVersion", {"type": "string"})
    top.setdefault("kind", {"type": "string"})
    top["metadata"] = {"type": "object"}
    return closed


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    package = pytest.importorskip("dask_kubernetes")
    folder = files(package) / "operator/deployment/helm/dask-kubernetes-operator/crds"
    definition = yaml.safe_load((folder / "daskcluster.yaml").read_text())
    return _closed(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"])


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{}, {"volume_claim": None}, {"name": "other", "namespace": "vision"}])
def test_the_operator_takes_it(tmp_path: Path, schema: dict[str, Any], changed: dict[str, Any]) -> None:
    made = manifest(_read(tmp_path, **changed))
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(made, schema)


@pytest.mark.slow
@pytest.mark.parametrize("path", [("spec", "worker"), ("spec", "scheduler", "service"), ("spec",)])
def test_the_schema_refuses_unknown_keys(tmp_path: Path, schema: dict[str, Any], path: tuple[str, ...]) -> None:
    made: Any = manifest(_read(tmp_path))
    node = made
    for key in path:
        node = node[key]
    node["absent"] = 1
    with pytest.raises(jsonschema.ValidationError, match="absent"):
        jsonschema.validate(made, schema)


def test_what_it_asks_for(tmp_path: Path) -> None:
    spec = manifest(_read(tmp_path))["spec"]
    worker = spec["worker"]["spec"]["containers"][0]
    assert spec["worker"]["replicas"] == 3
    assert worker["resources"]["limits"] == worker["resources"]["requests"] == {"cpu": "4", "memory": str(2**33)}
    assert "--nthreads 4" in " ".join(worker["args"])
    assert {"name": "OPENBLAS_NUM_THREADS", "value": "1"} in worker["env"]
    assert spec["worker"]["spec"]["volumes"][0]["persistentVolumeClaim"] == {"claimName": "features"}


def test_size(tmp_path: Path) -> None:
    size = cluster_size(_read(tmp_path))
    assert (size.n_workers, size.n_threads, size.memory_per_thread) == (3, 12, 2**31)


@pytest.mark.parametrize("field", ["name", "namespace", "image", "volume_claim", "mount_path"])
def test_no_field_is_more_than_a_name(tmp_path: Path, field: str) -> None:
    for hostile in ("a b", "a\nb", "-a", "$(A)", ""):
        with pytest.raises(InputError, match=field):
            _read(tmp_path, **{field: hostile})


def _text(**changed: Any) -> str:
    return yaml.safe_dump({**CLUSTER, "timeout_s": 5, **changed})


@pytest.mark.slow
def test_unencrypted_pods_are_refused(evaluate_on) -> None:
    evaluate_on(_text(insecure=False)).assert_one_line(2, "the traffic between pods", "insecure: true")


@pytest.mark.slow
def test_no_kubernetes(evaluate_on, tmp_path: Path) -> None:
    pytest.importorskip("dask_kubernetes")
    env = {"KUBECONFIG": str(tmp_path / "absent"), "HOME": str(tmp_path)}
    evaluate_on(_text(), env=env).assert_one_line(3, "no cluster on Kubernetes", "KUBECONFIG")


@pytest.mark.slow
def test_a_kubernetes_that_does_not_answer(evaluate_on, tmp_path: Path) -> None:
    pytest.importorskip("dask_kubernetes")
    named = {"name": "here"}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{**named, "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{**named, "user": {"token": "t"}}],
        "contexts": [{**named, "context": {"cluster": "here", "user": "here"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    done = evaluate_on(_text(), env={"KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)})
    done.assert_one_line(3, "no cluster on Kubernetes")
