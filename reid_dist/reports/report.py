"""The report of an evaluation: its values, saved and loaded, as a table, as pandas and as a page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.reports.breakdown_tables import Breakdown
from reid_dist.reports.documents import make_frame
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.report_files import prepare_parquet

if TYPE_CHECKING:
    from reid_dist.reports.shown_query import ShownQuery
    from reid_dist.reports.tabular.table import Table
    from reid_dist.stores import LabelledSet


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Report(ReportData):
    """Result of one evaluation: the values of `ReportData`, with tables and a page."""

    @classmethod
    def load(cls, directory: str | PathLike[str]) -> Self:
        """Read and verify a report that :meth:`save` wrote, with the operating points of the run if they lie there.

        Errors are as in `reid_dist.reports.documents.DocumentReport.load`.
        """
        from reid_dist.reports.operating_points import OperatingPoints

        report = super().load(directory)
        if not (Path(directory) / OperatingPoints.document).is_file():
            return report
        found = OperatingPoints.load(directory)
        return replace(report, operating_points=found) if found.evaluated == report.result_digest else report

    @classmethod
    def prepare_save(cls) -> None:
        """Import what `save` needs ahead of time, which takes a few tenths of a second."""
        from reid_dist.reports.html import load_templates

        load_templates()
        prepare_parquet()

    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""
        from reid_dist.reports.html import render_html

        return render_html(self)

    def to_dict(self, kind: Literal["document", "flat"] = "document") -> dict[str, Any]:
        """Return the report as plain Python values.

        Parameters
        ----------
        kind
            ``"document"`` returns the content of ``report.json``; numbers that are not finite are None.  ``"flat"``
            returns only the metrics, as floats under names that loggers of training runs accept: ``CMC@1`` becomes
            ``CMC_1``, ``TAR@FAR=0.01`` becomes ``TAR_FAR_0.01``.  Metrics that are not finite are left out.

        Raises
        ------
        InputError
            For any other kind.
        """
        if kind == "document":
            return super().to_dict()
        if kind != "flat":
            raise InputError(f"kind must be 'document' or 'flat', found {kind!r}")
        return {_logged_name(name): float(value) for name, value in self.metrics.items() if math.isfinite(value)}

    def plot(
        self, curve: str = "CMC", ax: Any = None, *, metric: str | None = None, name: str | None = None
    ) -> tuple[Any, Any]:
        """Draw a curve with matplotlib (``pip install 'reid-dist[plot]'``); return figure and axes.

        Parameters
        ----------
        curve
            ``"CMC"`` (that of the protocol) with its confidence band where the report has the ranks of first matches,
            ``"PR"``, ``"ROC"``, ``"DET"``, or ``"distractor"``: a metric by the size of the gallery.
        ax
            `matplotlib.axes.Axes`, which may already hold curves of other runs; None creates a new figure.
        metric
            Metric of the distractor curve; None for the first one.
        name
            Label of the line in the legend; None for the name of the run.

        Raises
        ------
        InputError
            If matplotlib is not installed, or the report lacks the curve.
        UnknownNameError
            For an unknown curve.
        """
        from reid_dist.reports.plots.figures import plot_chart
        from reid_dist.reports.plots.run_curves import curve_chart

        return plot_chart(curve_chart(curve, {name or self.heading.title: self}, metric, bands=True), ax)

    def show_query(
        self,
        row: int,
        *,
        depth: int = 10,
        query: LabelledSet | str | PathLike[str] | None = None,
        gallery: LabelledSet | str | PathLike[str] | None = None,
        image_root: str | PathLike[str] | None = None,
    ) -> ShownQuery:
        """Show a query with the nearest items of its list as thumbnails, each marked right, wrong or junk.

        A notebook shows the pictures; `ShownQuery.save` writes them as one HTML file.  The report needs top-k lists
        (``evaluate(…, topk=10)``), and both sides need image paths.

        Parameters
        ----------
        row
            Row number of the query, from 0.
        depth
            Maximum number of items shown, junk included.
        query, gallery
            The evaluated sets, or their current locations; None for the locations that the run recorded.  Pass sets
            that were in memory.
        image_root
            Base directory of relative image paths; None for that of the run, or the current directory.

        Raises
        ------
        InputError
            If the report has no lists or no such row, if a side has no image paths or has different labels than in the
            run, if no picture can be read, or if Pillow is not installed.
        StoreNotFoundError
            If a side has moved, or was in memory.
        """
        from reid_dist.reports.shown_query import show_query

        return show_query(self, row, depth=depth, query=query, gallery=gallery, image_root=image_root)

    def tables(self) -> Sequence[Table]:
        """Return the table of all metrics with intervals and conventions, and the counts below."""
        from reid_dist.reports.console import report_table

        return [report_table(self)]

    def to_pandas(self, table: str = "per_query") -> Any:
        """Return a `pandas.DataFrame`.

        Parameters
        ----------
        table
            ``"per_query"``: one row per query in the order of the query set, its index named ``query``; ``pid`` first,
            and ``camid``, ``item_id`` and ``image_path`` where there are any, then all other arrays of `per_query`.
            ``"metrics"``: one row per metric, with ``value``, the ends ``low`` and ``high`` of its interval (NaN for
            none) and its ``definition``.  A breakdown of the report, such as ``"camera"``: one row per group, pair of
            cameras or gallery size, with each metric, and with ``_low`` and ``_high`` after its name the ends of its
            interval, if there are any.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``), or there is no such table.
        """
        if table == "per_query":
            first = [name for name in ("pid", "camid") if name in self.per_query]
            items = {} if self.names is None else self.names.query
            values: dict[str, Any] = {**{name: self.per_query[name] for name in first}, **items, **self.per_query}
            return make_frame(values, index="query")
        if table in self.breakdowns:
            return make_frame(Breakdown(table, self.breakdowns[table]).columns(), index="row")
        if table != "metrics":
            raise unknown_name("table", str(table), ["per_query", "metrics", *self.breakdowns])
        from reid_dist.reports.sections.metrics import metric_names

        names = metric_names(self)
        intervals = (self.confidence or {}).get("intervals", {})
        ends = [[math.nan if end is None else end for end in intervals.get(name) or (None, None)] for name in names]
        columns = {
            "value": [self.metrics.get(name, math.nan) for name in names],
            "low": [low for low, _ in ends],
            "high": [high for _, high in ends],
            "definition": [self.definitions.get(name, "") for name in names],
        }
        return make_frame(columns, index="metric", names=names)


def _logged_name(name: str) -> str:
    return "".join(each if each.isascii() and (each.isalnum() or each in "_.-") else "_" for each in name)
