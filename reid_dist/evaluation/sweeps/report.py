"""Report of a parameter sweep, and its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.specs import value_text
from reid_dist.errors import InputError
from reid_dist.metrics.definitions import ByMetric, metric_family
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import DocumentReport, restored_number
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.summary import Summary, make_frame
from reid_dist.reports.sweeps import render_sweep
from reid_dist.reports.words import counts_line, metric_value

DOCUMENT: Final = "sweep.json"
PAGE: Final = "sweep.html"


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepReport(DocumentReport):
    """Metrics at every point of a grid.  Mappings keep their order, which is the order in which they are printed.

    Attributes
    ----------
    kind
        ``expand``, ``rerank`` or ``fuse``.
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
    run, spec
        As in a `reid_dist.reports.Report`.
    notes
        Remarks on the validity of the numbers.

    Raises
    ------
    InputError
        If rows name different parameters or metrics.
    """

    what = "sweep"
    another = "another sweep"
    document = DOCUMENT
    page = PAGE

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
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.rows:
            raise InputError("a sweep has at least one point")
        for row in self.rows:
            if list(row["parameters"]) != list(self.parameters) or list(row["metrics"]) != list(self.metric_names):
                raise InputError("every row of a sweep must have the same parameters and metrics")
        object.__setattr__(self, "rows", [{**row, "metrics": ByMetric(row["metrics"])} for row in self.rows])

    @property
    def metric_names(self) -> list[str]:
        """Names of the metrics."""
        return list(self.rows[0]["metrics"])

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        return make_heading(self.run, [self.protocol, self.distance, self.method], self.environment, self.result_digest)

    def values(self, name: str) -> NDArray[np.float64]:
        """Return a metric at every point, shape (n_points,), float64."""
        return np.array([row["metrics"][name] for row in self.rows], np.float64)

    @cached_property
    def best(self) -> dict[str, dict[str, Any]]:
        """The best point by metric: ``row``, ``parameters`` and ``value``; of several, the first of the grid.

        A metric that is undefined everywhere has none.
        """
        found = ByMetric[dict[str, Any]]()
        for name in self.metric_names:
            values = self.values(name)
            if np.isnan(values).all():
                continue
            family = metric_family(name)
            lower = family is not None and family.lower_is_better
            row = int(np.nanargmin(values) if lower else np.nanargmax(values))
            found[name] = {"row": row, "parameters": self.rows[row]["parameters"], "value": float(values[row])}
        return found

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over parameters and metrics of every point as exact bytes, 64 hexadecimal digits."""
        parameters = {name: np.array([row["parameters"][name] for row in self.rows]) for name in self.parameters}
        metrics = {name: self.values(name) for name in self.metric_names}
        digests = {"digest": np.array([row["digest"] for row in self.rows])}
        return arrays_digest({"parameters": parameters, "metrics": metrics, "rows": digests})

    def summary(self) -> Summary:
        """Return the table of all points."""
        rows = [
            (
                *(value_text(value) for value in row["parameters"].values()),
                *(metric_value(name, row["metrics"][name]) for name in self.metric_names),
            )
            for row in self.rows
        ]
        best = (
            f"{name} {metric_value(name, found['value'])} at "
            + ", ".join(f"{key} {value_text(value)}" for key, value in found["parameters"].items())
            for name, found in self.best.items()
        )
        facts = {
            "best": "; ".join(best) or "undefined",
            "queries": counts_line(self.counts),
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

    def entries(self) -> dict[str, Any]:
        """Return the entries of the document, ``best`` after ``rows``."""
        found = {}
        for name, value in super().entries().items():
            found[name] = value
            if name == "rows":
                found["best"] = self.best
        return found

    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""
        return render_sweep(self.to_dict())

    @classmethod
    def restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        for row in entries["rows"]:
            row["metrics"] = {name: restored_number(value) for name, value in row["metrics"].items()}
        return entries
