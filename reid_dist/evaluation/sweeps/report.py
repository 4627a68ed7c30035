"""The report of a parameter sweep, and its files."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import SavedDocument
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.plain import plain
from reid_dist.reports.summary import Summary, make_frame
from reid_dist.reports.sweeps import render_sweep
from reid_dist.reports.words import integer, metric_value

SCHEMA: Final = 1
"""The version of ``sweep.json``."""

DOCUMENT: Final = "sweep.json"
PAGE: Final = "sweep.html"

_SAVED: Final = SavedDocument(DOCUMENT, SCHEMA, "sweep")

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
    run
        As in a `reid_dist.reports.Report`.
    notes
        Notes for readers of the numbers.

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
    run: dict[str, str] = field(default_factory=dict)
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

    @property
    def heading(self) -> Heading:
        """As that of a `reid_dist.reports.Report`."""
        return make_heading(self.run, [self.protocol, self.distance, self.method], self.environment, self.result_digest)

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

    def __repr__(self) -> str:
        return self._summary().to_text()

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return self._summary().to_html()

    def _summary(self) -> Summary:
        rows = [
            (
                *(f"{value:g}" if isinstance(value, float) else str(value) for value in row["parameters"].values()),
                *(metric_value(name, row["metrics"][name]) for name in self.metric_names),
            )
            for row in self.rows
        ]
        best = (
            f"{name} {metric_value(name, found['value'])} at "
            + ", ".join(f"{key} {value}" for key, value in found["parameters"].items())
            for name, found in self.best.items()
        )
        counts = self.counts
        facts = {
            "best": "; ".join(best) or "undefined",
            "queries": f"{integer(counts['n_valid'])} valid of {integer(counts['n_query'])}, "
            f"gallery {integer(counts['n_gallery'])} rows",
            "digest": self.result_digest[:16],
        }
        title = f"SweepReport: {self.method['name']}, {self.protocol['name']}, {self.distance['name']}"
        return Summary(title, (*self.parameters, *self.metric_names), rows, facts, self.notes)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with one row per point: parameters, metrics, ``seconds`` and ``digest``.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``).
        """
        columns = {
            **{name: [row["parameters"][name] for row in self.rows] for name in self.parameters},
            **{name: self.values(name) for name in self.metric_names},
            **{name: [row[name] for row in self.rows] for name in ("seconds", "digest")},
        }
        return make_frame(columns, index="point")

    def describe(self) -> dict[str, Any]:
        """Return the content of ``sweep.json``, in plain Python values; None for values that are not finite."""
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
            "run": self.run,
            "notes": self.notes,
            "result_digest": self.result_digest,
        }
        return _SAVED.sealed({name: plain(value) for name, value in document.items()})

    def to_json(self) -> str:
        """Return :meth:`describe` as indented ASCII JSON; every float reads back to the same bits."""
        return _SAVED.text(self.describe())

    def to_html(self) -> str:
        """Return one offline page; the same report gives the same bytes."""
        return render_sweep(self.describe())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> SweepReport:
        """Read what :meth:`save` wrote, and verify it.

        Raises
        ------
        StoreNotFoundError
            If there is no sweep.
        DamagedStoreError
            If it cannot be decoded, or anything but the timing is not what was written.
        StoreError
            If it cannot be read, is of another schema, or of an earlier version.
        """
        document = _SAVED.read(directory)
        try:
            held = {each.name: document[each.name] for each in fields(cls)}
            for row in held["rows"]:
                # What was not finite is null in the document.
                row["metrics"] = {name: np.nan if value is None else value for name, value in row["metrics"].items()}
            report = cls(**held)
            found, written = report.result_digest, document["result_digest"]
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedStoreError(f"sweep in {os.fspath(directory)} is not as it was written: {error!r}") from error
        if found != written:
            raise DamagedStoreError(
                f"sweep in {os.fspath(directory)} has other numbers than were written: digest {found[:16]}, written "
                f"{str(written)[:16]}"
            )
        return report

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write ``sweep.json`` and ``sweep.html``; return the directory.

        Both are first written under other names.  A directory that has a ``sweep.json`` is whole.

        Parameters
        ----------
        directory
            A local directory, missing or empty.
        overwrite
            Replace an older sweep; files of other names are not touched.

        Raises
        ------
        InputError
            If it is a URI.
        StoreExistsError
            If it holds anything.
        StoreError
            If it cannot be written.
        """
        # "replace": a path on the page need not be UTF-8; it is shown there, never read back.
        page = self.to_html().encode("utf-8", "replace")
        return _SAVED.save(directory, self.describe(), {PAGE: lambda file: file.write(page)}, overwrite=overwrite)
