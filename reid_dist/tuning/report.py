"""The answer of a sweep, and the files that hold it."""

from __future__ import annotations

import json
import os
import secrets
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError, StoreError
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.files import refuse_occupied
from reid_dist.reports.plain import plain
from reid_dist.reports.sweeps import render_sweep

__all__ = ["DOCUMENT", "PAGE", "SCHEMA", "SweepReport"]

SCHEMA: Final = 1
"""The version of ``sweep.json``."""

DOCUMENT: Final = "sweep.json"
PAGE: Final = "sweep.html"

# The smaller the better; of all other metrics more is better.
_ERRORS = ("EER",)


@dataclass(frozen=True, kw_only=True, eq=False)
class SweepReport:
    """Metrics at every point of a grid.  Mappings keep their order, which is the order in which they are printed.

    Attributes
    ----------
    kind
        ``expand`` or ``rerank``.
    method
        What was swept: its spec as given, and the values of all parameters that were not swept.
    parameters
        Values of each parameter that was swept, by name.
    rows
        One mapping per point, in the order of the grid (the last parameter changes fastest): ``parameters``, its
        values by name; ``metrics``, value by name; ``name``, its spec with every parameter; ``digest``, the result
        digest of its evaluation; ``seconds``, how long that took.
    protocol, distance, options
        The conventions, with every parameter.
    counts
        As in a `reid_dist.reports.Report`; they are the same at every point.
    inputs
        uri, shape, dtype and content digest of both sides.
    definitions
        The convention in words by name of metric.
    environment, timing
        As in a `reid_dist.reports.Report`.
    notes
        What the reader of the numbers should know.

    Raises
    ------
    InputError
        If rows name different parameters or metrics.
    """

    kind: str
    method: dict[str, Any]
    parameters: dict[str, list[Any]]
    rows: list[dict[str, Any]]
    protocol: dict[str, Any]
    distance: dict[str, Any]
    options: dict[str, Any]
    counts: dict[str, Any]
    inputs: dict[str, Any]
    definitions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.rows:
            raise InputError("a sweep has at least one point")
        for row in self.rows:
            if list(row["parameters"]) != list(self.parameters) or list(row["metrics"]) != list(self.metric_names):
                raise InputError("every row of a sweep must have the same parameters and metrics")

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics."""
        return list(self.rows[0]["metrics"])

    def values(self, name: str) -> NDArray[np.float64]:
        """Return a metric at every point, shape (n_points,), float64."""
        return np.array([row["metrics"][name] for row in self.rows], np.float64)

    @cached_property
    def best(self) -> dict[str, dict[str, Any]]:
        """The best point by metric: ``row``, ``parameters`` and ``value``; of several, the first of the grid.

        A metric that is undefined everywhere has none.
        """
        found = {}
        for name in self.metric_names:
            values = self.values(name)
            if np.isnan(values).all():
                continue
            row = int(np.nanargmin(values) if name in _ERRORS else np.nanargmax(values))
            found[name] = {"row": row, "parameters": self.rows[row]["parameters"], "value": float(values[row])}
        return found

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over parameters and metrics of every point as exact bytes, 64 hexadecimal digits."""
        parameters = {name: np.array([row["parameters"][name] for row in self.rows]) for name in self.parameters}
        metrics = {name: self.values(name) for name in self.metric_names}
        digests = {"digest": np.array([row["digest"] for row in self.rows])}
        return arrays_digest({"parameters": parameters, "metrics": metrics, "rows": digests})

    def describe(self) -> dict[str, Any]:
        """Return the content of ``sweep.json``, made of plain Python values; None stands for what is not finite."""
        document = {
            "schema": SCHEMA,
            "kind": self.kind,
            "method": self.method,
            "parameters": self.parameters,
            "rows": self.rows,
            "best": self.best,
            "protocol": self.protocol,
            "distance": self.distance,
            "options": self.options,
            "counts": self.counts,
            "inputs": self.inputs,
            "definitions": self.definitions,
            "environment": self.environment,
            "timing": self.timing,
            "notes": self.notes,
            "result_digest": self.result_digest,
        }
        return {name: plain(value) for name, value in document.items()}

    def to_json(self) -> str:
        """Return :meth:`describe` as indented ASCII JSON; every float reads back to the same bits."""
        return json.dumps(self.describe(), indent=2, allow_nan=False) + "\n"

    def to_html(self) -> str:
        """Return one offline page; the same report gives the same bytes."""
        return render_sweep(self.describe())

    def save(self, directory: str | os.PathLike[str]) -> Path:
        """Write ``sweep.json`` and ``sweep.html``; return the directory.

        Both are first written under other names.  A directory that has a ``sweep.json`` is whole.

        Parameters
        ----------
        directory
            A local directory, missing or empty.

        Raises
        ------
        InputError
            If it is a URI.
        StoreExistsError
            If it holds anything.
        StoreError
            If it cannot be written.
        """
        path = refuse_occupied(directory)
        # "replace": a path that is not UTF-8 may stand in the page; it is shown there, never read back.
        contents = {PAGE: self.to_html().encode("utf-8", "replace"), DOCUMENT: self.to_json().encode("ascii")}
        staged = {name: path / f".{name}.{secrets.token_hex(4)}.tmp" for name in contents}
        try:
            path.mkdir(parents=True, exist_ok=True)
            for name, content in contents.items():
                with staged[name].open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            for name, draft in staged.items():
                draft.replace(path / name)
        except OSError as error:
            raise StoreError(
                f"cannot write the report to {path}: {error.strerror or error}; choose another directory"
            ) from error
        finally:
            if path.is_dir():
                for draft in staged.values():
                    draft.unlink(missing_ok=True)
        return path
