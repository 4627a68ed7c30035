"""Export of runs to MLflow.

A job of a night becomes a run of MLflow: values are metrics, conventions parameters, findings of the gates tags, and
the report an artifact.  MLflow is an extra, imported only for an export.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import re
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar

from reid_dist.core.credentials import without_credentials
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import RunFailedError
from reid_dist.nightly.history.history_values import Entry, Run, State
from reid_dist.nightly.wording import finding_text

_MAX_NAME: Final = 250
_MAX_PARAM: Final = 6000
_MAX_TAG: Final = 5000
_BATCH: Final = 100
"""Limits of MLflow: characters of names and values, and parameters or tags of one request."""

_Value = TypeVar("_Value")

# Defaults of the environment: no telemetry, and no retries for minutes.
_SETTINGS: Final = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2"}

_STATUS: Final[Mapping[str, str]] = {State.DONE: "FINISHED", State.FAILED: "FAILED", State.SKIPPED: "KILLED"}


def export_run(run: Run, *, tracking_uri: str, experiment: str) -> list[str]:
    """Log every entry of a run to an experiment of MLflow, made if missing; return the IDs of the runs of MLflow.

    Repeated calls log it once: an entry that was exported before is found by its tags, of which only changes are sent,
    such as an acceptance.  An interrupted export is completed.  InputError if MLflow is not installed, RunFailedError
    if it cannot be reached, or refuses something.
    """
    mlflow = import_mlflow()
    try:
        client = mlflow.MlflowClient(tracking_uri=tracking_uri)
        experiment_id = _experiment_id(client, experiment)
        exported = _exported(client, experiment_id, run)
        return [_export_entry(mlflow, client, experiment_id, run, entry, exported) for entry in run.entries]
    # MLflow passes on errors of SQLAlchemy for a missing database, and of Python for a missing package.
    except Exception as error:
        first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
        # Also where it is no part of an address.
        if credentials := urllib.parse.urlsplit(tracking_uri).netloc.rpartition("@")[0]:
            first_line = first_line.replace(credentials, "…")
        failed = f"run {run.number} of suite {run.suite} was not exported to MLflow at {tracking_uri}: {first_line}"
        raise RunFailedError(
            f"{without_credentials(failed)}; it is in the history: check the address and the experiment, "
            f"{experiment!r}, and export again"
        ) from error


def import_mlflow() -> ModuleType:
    """Import MLflow, without telemetry; InputError if it is not installed."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    return import_extra("mlflow", "mlflow", "an export to MLflow")


def _experiment_id(client: Any, name: str) -> str:
    found = client.get_experiment_by_name(name)
    return str(client.create_experiment(name) if found is None else found.experiment_id)


def _exported(client: Any, experiment_id: str, run: Run) -> dict[str, Any]:
    """Return the runs of MLflow of this run, by the name of the entry."""
    found: dict[str, Any] = {}
    token = None
    while True:
        page = client.search_runs([experiment_id], f"tags.`reid_dist.run` = '{run.number}'", page_token=token)
        for other in page:
            tags = other.data.tags
            # A number alone is not enough: another suite, or a history that was begun anew, has it too.
            if (tags.get("reid_dist.suite"), tags.get("reid_dist.started")) == (run.suite, run.started):
                found[tags.get("reid_dist.entry", "")] = other
        token = page.token
        if not token:
            return found


def _export_entry(
    mlflow: ModuleType, client: Any, experiment_id: str, run: Run, entry: Entry, exported: Mapping[str, Any]
) -> str:
    tags = _tags(run, entry)
    started = _milliseconds(entry.started or run.started)
    existing = exported.get(tags["reid_dist.entry"])
    if existing is None:
        existing = client.create_run(experiment_id, start_time=started, tags=tags, run_name=tags["mlflow.runName"])
    run_id = str(existing.info.run_id)
    entities = mlflow.entities
    changed = {key: value for key, value in tags.items() if existing.data.tags.get(key) != value}
    for batch in _batches(entities.RunTag(key, value) for key, value in changed.items()):
        client.log_batch(run_id, tags=batch)
    if existing.info.status != "RUNNING":
        return run_id

    for batch in _batches(entities.Metric(name, value, started, run.number) for name, value in _metrics(entry).items()):
        client.log_batch(run_id, metrics=batch)
    for batch in _batches(entities.Param(name, value) for name, value in _params(entry).items()):
        client.log_batch(run_id, params=batch)
    report = Path(run.folder) / entry.folder / entry.page
    if entry.folder and report.is_file():
        client.log_artifact(run_id, str(report))
    ended = started + round(1000 * (entry.seconds or 0))
    # Last, so that a run of MLflow that has ended is whole.
    client.set_terminated(run_id, _STATUS[entry.state], ended)
    return run_id


def _tags(run: Run, entry: Entry) -> dict[str, str]:
    of_entry = ("model", "dataset", "job", "state", "reason", "input_digest", "job_digest", "result_digest", "accepted")
    own = {
        **{name: getattr(run, name) for name in ("suite", "started", "version", "host", "suite_digest")},
        "run": str(run.number),
        "entry": entry.name,
        **{name: getattr(entry, name) for name in (*of_entry, "alarm")},
        **{f"verdict.{finding.gate}": finding.verdict for finding in entry.findings},
        **{f"label.{name}": value for name, value in entry.labels.items()},
    }
    named = _legal_names((f"reid_dist.{name}", value) for name, value in own.items() if value)
    # What MLflow shows as the name and the description of a run.
    named["mlflow.runName"] = f"{entry.name} #{run.number}"
    named["mlflow.note.content"] = "\n\n".join(
        f"{found.gate}: {found.verdict}. {finding_text(found)}" for found in entry.findings
    )
    return {name: value[:_MAX_TAG] for name, value in named.items() if value}


def _metrics(entry: Entry) -> dict[str, float]:
    values: dict[str, float | None] = {}
    for name, estimate in entry.metrics.items():
        values |= {name: estimate.value, f"{name}.low": estimate.low, f"{name}.high": estimate.high}
    values |= {"seconds": entry.seconds, "peak_bytes": entry.peak_bytes}
    values |= {f"seconds.{stage}": seconds for stage, seconds in entry.timing.items()}
    return _legal_names(
        (name, float(value)) for name, value in values.items() if value is not None and math.isfinite(value)
    )


def _params(entry: Entry) -> dict[str, str]:
    flat = itertools.chain(_flat("", entry.conventions), _flat("counts.", entry.counts))
    return {name: value[:_MAX_PARAM] for name, value in _legal_names(flat).items()}


def _flat(prefix: str, values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


def _legal_names(items: Iterable[tuple[str, _Value]]) -> dict[str, _Value]:
    """Return items by unique names of MLflow: ``CMC@1`` becomes ``CMC_1``."""
    legal: dict[str, _Value] = {}
    for name, value in items:
        # A slash would make folders, and dots at the ends mean folders too.
        base = re.sub(r"[^A-Za-z0-9_. -]", "_", name).strip(". ") or "_"
        unused = base[:_MAX_NAME]
        for number in itertools.count(2):
            if unused not in legal:
                break
            suffix = f"_{number}"
            unused = base[: _MAX_NAME - len(suffix)] + suffix
        legal[unused] = value
    return legal


def _batches(entities: Iterable[Any]) -> Iterator[list[Any]]:
    remaining = iter(entities)
    while batch := list(itertools.islice(remaining, _BATCH)):
        yield batch


def _milliseconds(stamp: str) -> int:
    return round(1000 * datetime.fromisoformat(stamp).timestamp())
