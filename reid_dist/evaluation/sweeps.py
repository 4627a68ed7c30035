"""Parameter sweeps of a query expansion or a re-ranking: a table and a curve from one set of neighbour lists.

The costly part of an expansion, and of a re-ranking, is the search for the neighbours of all items.  Lists of k
neighbours begin with the lists of all smaller k, so the point with the longest lists is evaluated first, and the others
find them in the workspace.  Every point is an ordinary, exact evaluation: its digest is that of `evaluate` with the
same settings.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info, of_parts
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted
from reid_dist.core.specs import value_text
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.policy import Policy
from reid_dist.errors import InputError, StoreError
from reid_dist.evaluation.checked_options import CheckedOptions, plain_spec, ranking_spec
from reid_dist.evaluation.evaluate import evaluate_once
from reid_dist.evaluation.grid import FUSE, Grid, Point, make_grid
from reid_dist.evaluation.options import (
    OPTIONS,
    SWEEP,
    EvaluationOptions,
    SweepOptions,
    complete,
    headline_only,
    refuse_options,
)
from reid_dist.evaluation.report_assembly import described_environment
from reid_dist.evaluation.rerank_effect import lowered_metrics, lowered_notes
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.evaluation.sides import Model, OpenedModel, fused_sides, open_models
from reid_dist.evaluation.study import begin_study
from reid_dist.metrics.metric import ByMetric, headline_metrics, metric_family, metric_names
from reid_dist.reports import Report
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import make_frame, plain, restored_number
from reid_dist.reports.heading import weak_evidence
from reid_dist.reports.notes import input_notes
from reid_dist.reports.series_report import SeriesReport
from reid_dist.reports.sweep_page import render_sweep, sweep_table
from reid_dist.reports.tabular.table import Table, notes_of
from reid_dist.reports.words import metric_value
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS, Values
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, FeatureSource, Workspace, as_feature_set
from reid_dist.stores.fused import FusedSet
from reid_dist.stores.stored import StoreReader

if TYPE_CHECKING:
    from distributed import Client

USUAL_METRICS = tuple(headline_metrics())

# Options in the report: those that it takes, and that are in no other entry of it.
_SHOWN = [
    name for name, option in OPTIONS.items() if option.recorded and SWEEP not in option.refused_by and name != "metrics"
]


@dataclass(frozen=True)
class FinishedPoint:
    """What is kept of the evaluation of one point: its row in the report of the sweep, and notes.

    `lowered` are metrics that are worse than without the re-ranking; see `lowered_metrics`.  `conventions` are the same
    at every point: protocol, distance, options, counts, definitions.
    """

    row: dict[str, Any]
    conventions: dict[str, Any]
    notes: list[dict[str, Any]]
    lowered: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, point: Point, report: Report, names: Sequence[str], unranked: Report | None) -> FinishedPoint:
        """Values of the report of a point, with the metrics of these names; `unranked` is that without re-ranking."""
        row = {
            "parameters": point.values,
            "metrics": {name: report.metrics[name] for name in names},
            "name": point.name,
            "digest": report.result_digest,
            "seconds": report.timing["total"],
        }
        conventions = {
            "protocol": plain(report.protocol),
            "distance": plain(report.distance),
            "options": plain({name: value for name, value in report.options.items() if name in _SHOWN}),
            "counts": {**plain(report.counts), "n_identities": report.n_identities},
            "definitions": {name: text for name, text in report.definitions.items() if name in names},
        }
        lowered = [] if unranked is None else lowered_metrics(unranked, report, names)
        return cls(row, conventions, [note.to_dict() for note in report.notes], lowered)


def _written(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else value_text(value)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SweepReport(SeriesReport):
    """Metrics at every point of a grid.  Other attributes are those of `reid_dist.reports.series_report.SeriesReport`.

    Attributes
    ----------
    kind
        ``expand``, ``rerank`` or ``fuse``.
    method
        The swept method: its spec as given, and the values of all fixed parameters.
    parameters
        Values of each swept parameter, by name.
    rows
        One mapping per point, in the order of the grid (the last parameter changes fastest): ``parameters`` and
        ``metrics``, values by name; ``name``, the spec with every parameter; ``digest``, the result digest of the
        evaluation; ``seconds``, its duration.
    counts
        As in a `reid_dist.reports.Report`; the same at every point.

    Raises
    ------
    InputError
        If rows name different parameters or metrics.
    """

    _what = "sweep"
    another = "another sweep"
    document = "sweep.json"
    page = "sweep.html"

    kind: str
    method: dict[str, Any]
    parameters: dict[str, list[Any]]
    rows: list[dict[str, Any]]

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
    def stages(self) -> list[dict[str, Any]]:
        """What the name of a run is made of that has none."""
        return [self.protocol, self.distance, self.method]

    def values(self, name: str) -> NDArray[np.float64]:
        """Return a metric at every point, shape (n_points,), float64."""
        return np.array([row["metrics"][name] for row in self.rows], np.float64)

    @cached_property
    def best(self) -> dict[str, dict[str, Any]]:
        """The best point of each metric: ``row``, ``parameters`` and ``value``; the first point in the grid on ties.

        A metric that is undefined at every point has no best point.
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

    @property
    def weak_evidence(self) -> list[Finding]:
        """Findings about weak evidence: few valid queries, few identities."""
        return weak_evidence(self.counts, self.protocol, self.counts.get("n_identities"))

    def tables(self) -> Sequence[Table]:
        """Return the metrics at all points, with the counts below."""
        best = (
            f"{name} {metric_value(name, found['value'])} at "
            + ", ".join(f"{key} {value_text(value)}" for key, value in found["parameters"].items())
            for name, found in self.best.items()
        )
        fixed = ", ".join(f"{name} {_written(value)}" for name, value in self.method["fixed"].items())
        facts = {
            "best": "; ".join(best) or "undefined",
            **self.heading.chosen("date", "command"),
            "method": self.method["name"] + (f" ({fixed})" if fixed else ""),
            "queries": f"{self.counts['n_valid']:,} valid of {self.counts['n_query']:,}",
            "gallery": counted(self.counts["n_gallery"], "row"),
            "protocol": f"{self.protocol['name']}, {self.distance['name']} distance",
            **self.heading.chosen("version", "digest"),
        }
        points = sweep_table(self.to_dict())
        return [replace(points, title=self.heading.title, notes=[*points.notes, *notes_of(facts, self.findings)])]

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

    def _entries(self) -> dict[str, Any]:
        """Return the entries of the document, ``best`` after ``rows``."""
        found = {}
        for name, value in super()._entries().items():
            found[name] = value
            if name == "rows":
                found["best"] = self.best
        return found

    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""
        return render_sweep(self.to_dict(), self.findings)

    @classmethod
    def _restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        for row in entries["rows"]:
            row["metrics"] = {name: restored_number(value) for name, value in row["metrics"].items()}
        return entries


@lists_options(evaluation=SWEEP, before=SWEPT_PARAMETERS)
def sweep_parameters(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    grid: Mapping[str, Values] | None = None,
    include_self: bool = False,
    fuse: Sequence[Model] = (),
    client: Client | None = None,
    workspace: str | os.PathLike[str] | None = None,
    keep: bool = True,
    progress: Shown = None,
    on_point: Callable[[int, int, Point, dict[str, Any]], None] | None = None,
    **options: Unpack[SweepOptions],
) -> SweepReport:
    """Evaluate an expansion, a re-ranking or a fusion exactly at every point of a parameter grid.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    expand
        A query expansion, such as ``"aqe"``.  In a chain such as ``"dba(k=5)+aqe"``, the last step is swept.
    rerank
        A re-ranking, such as ``"k_reciprocal"``.  Sweep either this or an expansion.
    grid
        Values by parameter name, such as ``{"k1": "10:30:10"}``, instead of or in addition to keywords; parameters
        without a keyword also work.  Values are numbers, names, or strings such as ``"0:10"``, ``"0:1:0.1"`` or
        ``"1,6,10:30:10"``.
    fuse
        Further models, each with its query, gallery and weight.  Pass None as the weight of the one to sweep.  As in
        `reid_dist.fuse`, query and gallery have the remaining weight.
    include_self
        Whether the query is a gallery item (by item id) and counts among the k.
    metrics
        Names such as ``"mAP"`` or ``"CMC@10"``; None for mAP, CMC@1 and mINP.
    client
        Cluster to run on; None for threads of this process.  Results do not depend on it.
    workspace
        Directory visible to every worker, for neighbour lists and derived features; None uses a temporary directory.
    keep
        Whether derived features stay in `workspace`.  Otherwise they are removed after their point, and everything else
        is removed at the end.  If a sweep fails, finished points are kept, and the same call resumes from them.
    progress
        As in `evaluate`, for each evaluation.
    on_point
        Called after every point with the number of finished points, the number of all points, the point and its row.
    **options
        Values of parameters, as in `grid`, and options as in `evaluate`; those that request more than metrics are
        refused.

    Returns
    -------
    SweepReport
        The report; `SweepReport.save` writes it.

    Raises
    ------
    UnknownNameError
        For a method, protocol, distance or metric that does not exist.
    InputError
        If the grid cannot be read or is too large, or if the sets or options cannot be evaluated.
    PlanError, RunFailedError, ClusterError, StoreError
        As `reid_dist.evaluate` does.
    """
    chosen = grid_of(options, include_self=include_self, grid=grid)
    with begin_session(client, workspace, progress) as session:
        job = SweepJob.of(chosen, as_feature_set(query, "query"), as_feature_set(gallery, "gallery"), options, fuse)
        return run_sweep(session, job, keep=keep, on_point=on_point)


def grid_of(
    options: Mapping[str, Any], *, include_self: bool = False, grid: Mapping[str, Values] | None = None
) -> Grid:
    """Read the grid of a sweep; options and errors are those of `sweep_parameters`."""
    swept = {name: cast("Values | None", options.get(name)) for name in SWEPT_PARAMETERS}
    if twice := [name for name in grid or {} if swept.get(name) is not None]:
        raise InputError(f"{', '.join(twice)}: values are given twice, as a keyword and in grid; leave one of them out")
    named = {**swept, **(grid or {})}
    made = make_grid(options.get("expand"), options.get("rerank"), named, include_self=include_self)
    refuse_options(options, SWEEP, "is about one run, and a sweep compares many; evaluate the point that you choose")
    return made


@dataclass(frozen=True, kw_only=True)
class SweepJob:
    """A sweep with both sides open and its options read; `models` are fused with the sides at every point."""

    grid: Grid
    query: FeatureSet
    gallery: FeatureSet
    models: list[OpenedModel]
    options: EvaluationOptions
    checked: CheckedOptions

    @classmethod
    def of(
        cls, grid: Grid, query: FeatureSet, gallery: FeatureSet, options: Mapping[str, Any], fuse: Sequence[Model] = ()
    ) -> SweepJob:
        """Check options against the sets; parameters and errors are those of `sweep_parameters`."""
        given = complete({name: value for name, value in options.items() if name not in SWEPT_PARAMETERS})
        query, gallery, models = chosen_sides(grid, query, gallery, fuse)
        check_sets(query, gallery, DISTANCES.get(given["distance"]))
        checked = CheckedOptions.of(options_at(grid.points[0], given), query, gallery)
        if checked.truth is not None:
            # Read once; and what was read cannot change on the way.
            given["ground_truth"] = checked.truth
        return cls(grid=grid, query=query, gallery=gallery, models=models, options=given, checked=checked)

    @cached_property
    def method(self) -> dict[str, Any]:
        """Description of what is swept, with the content of the fused models."""
        if not self.models:
            return self.grid.method
        described = [
            f"{near.uri} and {far.uri}, {'swept' if weight is None else f'weight {value_text(weight)}'}, content "
            f"{near.content_digest[:16]} and {far.content_digest[:16]}"
            for near, far, weight in self.models
        ]
        return {**self.grid.method, "models": described}

    @cached_property
    def spec(self) -> dict[str, Any]:
        """All that the report depends on."""
        spec = ranking_spec(self.checked, self.query, self.gallery, expand=None, rerank=None)
        return plain_spec(
            {
                "method": self.method,
                "parameters": {axis.name: axis.values for axis in self.grid.axes},
                **{name: value for name, value in spec.items() if not _is_refused(name)},
            }
        )

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that the values of points depend on but for their names."""
        named = ("parameters", *(() if self.models else ("method",)))
        return {name: value for name, value in self.spec.items() if name not in named}


def _is_refused(name: str) -> bool:
    """Whether a sweep does not compute an option."""
    return name in OPTIONS and SWEEP in OPTIONS[name].refused_by


def run_sweep(
    session: Session,
    job: SweepJob,
    *,
    keep: bool = True,
    on_point: Callable[[int, int, Point, dict[str, Any]], None] | None = None,
) -> SweepReport:
    """Evaluate every point; parameters as of `sweep_parameters`."""
    started = time.perf_counter()
    grid, query, gallery, models, given = job.grid, job.query, job.gallery, job.models, job.options
    names = [metric.name for metric in job.checked.metrics]
    points: dict[int, FinishedPoint] = {}
    identity = job.identity
    mine = None if keep else fingerprint(identity, [point.name for point in grid.points])
    with contextlib.ExitStack() as stack:
        study = stack.enter_context(begin_study(session, "points", identity, FinishedPoint, folder=mine))
        # Refused before the first point where the workspace is on S3.
        folder = study.folder
        near, far = stack.enter_context(study.session.visible(query, gallery))

        @cache
        def unranked() -> Report:
            plain = options_at(replace(grid.points[0], rerank=None), given)
            return evaluate_once(study.session.within(study.folder), near, far, **plain)

        for n_done, place in enumerate(grid.order, start=1):
            point = grid.points[place]

            def evaluate_point(inner: Session, point: Point = point) -> FinishedPoint:
                plain = unranked() if point.rerank is not None and not models else None
                sides = fused_sides(near, far, models, point.weight)
                report = evaluate_once(inner, *sides, **options_at(point, given))
                # Notes on weights say what the table says.
                weights = [info("input", text=side.note) for side in sides if isinstance(side, FusedSet)]
                notes = [note for note in report.notes if not (models and note in weights)]
                return FinishedPoint.of(point, replace(report, notes=notes), names, plain)

            points[place] = study.part(f"point-{fingerprint(point.name)[:20]}", evaluate_point)
            if not keep or session.workspace is None:
                following = grid.points[grid.order[n_done]] if n_done < len(grid.points) else None
                _remove_derived(folder, point, following)
            if on_point is not None:
                on_point(n_done, len(grid.points), point, points[place].row)
    ordered = [points[place].row for place in range(len(points))]
    found = [map(Finding.restored, points[place].notes) for place in range(len(points))]
    notes = [*input_notes(query, gallery), *of_parts(found, "point", warnings_alone=True)]
    notes += lowered_notes([(points[place].row["name"], points[place].lowered) for place in range(len(points))])
    return SweepReport(
        kind=grid.kind,
        method=job.method,
        parameters={axis.name: list(axis.values) for axis in grid.axes},
        rows=ordered,
        # The conventions and the labels are the same at every point.
        **points[0].conventions,
        inputs={"query": query.describe(), "gallery": gallery.describe()},
        spec=job.spec,
        environment=described_environment(session.client, Policy.in_force()),
        timing={"points": sum(row["seconds"] for row in ordered), "total": time.perf_counter() - started},
        notes=list(dict.fromkeys(notes)),
    )


def chosen_sides(
    grid: Grid, query: FeatureSet, gallery: FeatureSet, fuse: Sequence[Model]
) -> tuple[FeatureSet, FeatureSet, list[OpenedModel]]:
    """Return both sides, and the models that are fused with them at every point.

    Where no weight is swept, the sides are fused already, and there are no such models.
    """
    opened = open_models(fuse)
    n_swept = sum(weight is None for _, _, weight in opened)
    if grid.kind == FUSE and n_swept == 1:
        return query, gallery, opened
    if grid.kind == FUSE or n_swept:
        raise InputError(
            "a sweep over weight takes one fused model without a weight (--fuse STORE --weight 0:1:0.1), found "
            f"{n_swept}{'' if grid.kind == FUSE else ' and no values of weight'}"
        )
    return *fused_sides(query, gallery, opened), []


def options_at(point: Point, options: EvaluationOptions) -> EvaluationOptions:
    """Options of the evaluation at a point."""
    metrics = list(USUAL_METRICS) if options["metrics"] is None else metric_names(options["metrics"])
    # Intervals of every point would be thrown away.
    chosen: Any = {"metrics": metrics, "expand": point.expand, "rerank": point.rerank}
    return headline_only(options, **chosen)


def _remove_derived(folder: Path, done: Point, following: Point | None) -> None:
    """Remove files of a point that the next one does not share; stores of features are as large as the sets."""
    # What the steps before the last one made serves all points.
    recipe = str(done.rerank if done.expand is None else done.expand[-1])
    for store in folder.glob("expanded-*.zarr"):
        if _recipe_of(store) in (recipe, None):
            shutil.rmtree(store)
    if done.rerank is not None and (following is None or following.shared != done.shared):
        # Neighbour lists serve all points.
        workspace = Workspace(str(folder))
        for kind in done.rerank.kept:
            for stage in workspace.stages(kind):
                workspace.remove(stage)


def _recipe_of(store: Path) -> str | None:
    """What the features of a store were made by; None for a store that cannot be read."""
    try:
        return str(StoreReader.open(str(store)).manifest.source.get("recipe"))
    except StoreError:
        return None
