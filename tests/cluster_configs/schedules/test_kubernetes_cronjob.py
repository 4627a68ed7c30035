"""The CronJob: validated by the models of Kubernetes' client and against itself; no cluster runs it here."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from schedule_files import SCHEDULES

from reid_dist.nightly.suite import read_suite

DOCUMENTS: list[dict[str, Any]] = list(yaml.safe_load_all((SCHEDULES / "kubernetes-cronjob.yaml").read_text()))
BY_KIND = {document["kind"]: document for document in DOCUMENTS}
CRON_JOB = BY_KIND["CronJob"]
JOB = CRON_JOB["spec"]["jobTemplate"]["spec"]
POD = JOB["template"]["spec"]
(CONTAINER,) = POD["containers"]


def through_the_models(document: dict[str, Any]) -> Any:
    """A document as the models of Kubernetes' client hold it: known fields, checked by type and presence."""
    import kubernetes.client

    client = kubernetes.client.ApiClient()
    made = client.deserialize(json.dumps(document), f"V1{document['kind']}", "application/json")
    return client.sanitize_for_serialization(made)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BY_KIND)
def test_every_field_is_one_of_kubernetes(kind: str) -> None:
    assert through_the_models(BY_KIND[kind]) == BY_KIND[kind]


@pytest.mark.slow
def test_an_unknown_field_is_found() -> None:
    wrong = copy.deepcopy(CRON_JOB)
    wrong["spec"]["concurencyPolicy"] = "Forbid"
    assert through_the_models(wrong) == CRON_JOB


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("schedule", None), ("startingDeadlineSeconds", "soon")])
def test_a_wrong_value_is_found(name: str, value: str | None) -> None:
    wrong = copy.deepcopy(CRON_JOB)
    wrong["spec"][name] = value
    with pytest.raises(ValueError, match=name):
        through_the_models(wrong)


def test_nights_neither_overlap_nor_repeat() -> None:
    assert CRON_JOB["spec"]["concurrencyPolicy"] == "Forbid"
    assert JOB["backoffLimit"] == 0
    assert POD["restartPolicy"] == "Never"
    # One that hangs is over before the next.
    assert JOB["activeDeadlineSeconds"] + CRON_JOB["spec"]["startingDeadlineSeconds"] < 86400
    assert BY_KIND["PersistentVolumeClaim"]["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_what_the_pod_names_is_there() -> None:
    claims = [
        volume["persistentVolumeClaim"]["claimName"] for volume in POD["volumes"] if "persistentVolumeClaim" in volume
    ]
    # The features are the team's own.
    assert set(claims) - {"features"} == {BY_KIND["PersistentVolumeClaim"]["metadata"]["name"]}
    maps = [volume["configMap"]["name"] for volume in POD["volumes"] if "configMap" in volume]
    assert maps == [BY_KIND["ConfigMap"]["metadata"]["name"]]
    assert {mount["name"] for mount in CONTAINER["volumeMounts"]} == {volume["name"] for volume in POD["volumes"]}


def test_the_command_reads_and_writes_what_is_mounted() -> None:
    """The root of the container is read-only, and so are suite and features."""
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in CONTAINER["volumeMounts"]}
    assert CONTAINER["securityContext"]["readOnlyRootFilesystem"] is True
    program, verb, suite, option, history = CONTAINER["command"]
    assert (program, verb, option) == ("reid-dist", "nightly", "--history")
    folder, _, name = suite.rpartition("/")
    assert mounts[folder] is True
    assert name in BY_KIND["ConfigMap"]["data"]
    assert mounts[history.rpartition("/")[0]] is False
    for variable in CONTAINER["env"]:
        assert not mounts["/" + variable["value"].split("/")[1]], variable


def test_the_suite_is_one(tmp_path: Path) -> None:
    """And its features are where the claim of the features is mounted."""
    ((name, text),) = BY_KIND["ConfigMap"]["data"].items()
    (tmp_path / name).write_text(text)
    (planned,) = read_suite(tmp_path / name).planned()
    assert planned.name == "resnet50/market1501/plain"
    (features,) = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == "features"]
    assert yaml.safe_load(text)["models"]["resnet50"]["path"].startswith(features + "/")


def test_the_pod_has_no_more_rights_than_it_needs() -> None:
    context = POD["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"]["allowPrivilegeEscalation"] is False
    assert CONTAINER["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert POD["automountServiceAccountToken"] is False
    # All is requested that may be used, which is what Kubernetes evicts last.
    assert CONTAINER["resources"]["requests"] == CONTAINER["resources"]["limits"]
