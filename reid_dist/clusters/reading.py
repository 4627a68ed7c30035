"""Cluster files, read and validated."""

from __future__ import annotations

import os
import reprlib
from typing import Any, cast, get_args

from pydantic import TypeAdapter, ValidationError

from reid_dist.clusters.kinds import KINDS, Cluster, ClusterConfig
from reid_dist.core.credentials import without_credentials
from reid_dist.core.registry import nearest_hint
from reid_dist.core.validation import explain
from reid_dist.core.yaml_text import read_yaml_file
from reid_dist.errors import InputError

_ADAPTER: TypeAdapter[Cluster] = TypeAdapter(ClusterConfig)
_CLASSES = {get_args(kind.model_fields["kind"].annotation)[0]: kind for kind in KINDS}


def read_cluster(path: str | os.PathLike[str]) -> Cluster:
    """Read and validate a cluster file.

    Raises
    ------
    StoreNotFoundError
        If there is no such file.
    InputError
        If it is not YAML or not a cluster; every problem is named.
    """
    where = f"cluster file {os.fspath(path)}"
    content: Any = read_yaml_file(path, "cluster file")
    if not isinstance(content, dict):
        raise InputError(
            f"{where} should have one 'key: value' per line and begin with 'kind:', found {reprlib.repr(content)}"
        )
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in _CLASSES:
        found = "there is no kind" if kind is None else f"unknown kind {reprlib.repr(kind)}"
        raise InputError(f"{where}: {found};{nearest_hint(str(kind), _CLASSES)} known: {', '.join(_CLASSES)}")
    try:
        # By the class itself: the union would put the kind into the path of every problem.
        return cast("Cluster", _CLASSES[kind].model_validate(content))
    except ValidationError as error:
        others = {field for each in KINDS for field in each.model_fields}
        problems = explain(where, error, _CLASSES[kind].model_fields, others)
        raise InputError(without_credentials(problems)) from None


def cluster_schema() -> dict[str, Any]:
    """JSON Schema of cluster files."""
    return _ADAPTER.json_schema()
