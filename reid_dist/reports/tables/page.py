"""A table of runs as one HTML page: tables with intervals, curves of all runs in one chart, queries that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from reid_dist.core.formatting import counted
from reid_dist.metrics.metric import curve_family
from reid_dist.reports.html import page_environment
from reid_dist.reports.plots.curve_charts import rank_chart, share_start
from reid_dist.reports.plots.run_curves import DET, DISTRACTORS, PRECISION_RECALL, ROC, curve_chart, has_curve
from reid_dist.reports.sections.queries import picture_tiles
from reid_dist.reports.tables.run_table_values import Group, MovedQueries, TableData
from reid_dist.reports.tabular.table import Column, Kind, Table
from reid_dist.reports.words import metric_value

_CAPTIONS = {
    PRECISION_RECALL: "Interpolated precision at each recall (the best at this or any higher recall), mean over "
    "queries.",
    DET: "False rejects against false accepts; closer to the lower left is better.",
    ROC: "True accepts against false accepts.",
}


def render_runs(table: TableData, tables: Sequence[Table]) -> str:
    """Return the page of a table of runs, of which `tables` are its groups; the same table gives the same bytes."""
    n_runs = sum(len(group.rows) for group in table.groups)
    return (
        page_environment()
        .get_template("runs.html.j2")
        .render(
            title=f"{counted(n_runs, 'run')} side by side",
            groups=[_group(table, group, shown) for group, shown in zip(table.groups, tables, strict=True)],
            has_images=any(group.moved is not None and group.moved.queries for group in table.groups),
        )
    )


def _group(table: TableData, group: Group, shown: Table) -> dict[str, Any]:
    return {
        "table": shown,
        "digests": Table(
            title="Result digests",
            columns=[Column("run", Kind.NAME), Column("result digest", Kind.DIGEST)],
            rows=[[row.name, row.result_digest] for row in group.rows],
        ),
        "charts": list(_charts(table, group)),
        "moved": None if group.moved is None else _moved(group, group.moved),
        "compared": None if group.paired is None else group.paired.tables()[0],
        "changes": [] if group.paired is None else list(group.paired.changed_queries(every_metric=True)),
    }


def _charts(table: TableData, group: Group) -> Iterator[dict[str, Any]]:
    """Every curve that runs of a group have, of all of them; charts of one curve have one scale in all groups."""
    runs = group.named_reports
    for name in dict.fromkeys(name for report in group.reports for name in report.curves):
        drawn = {run: report.curves[name] for run, report in runs.items() if len(report.curves.get(name, ()))}
        family = curve_family(name)
        if family is not None and drawn:
            everywhere = [report.curves.get(name) for each in table.groups for report in each.reports]
            start = share_start([curve for curve in everywhere if curve is not None])
            caption = family.explanation or f"{name} up to each rank."
            yield {"chart": rank_chart(name, drawn, start=start), "caption": caption, "table": None}
    for kind, caption in _CAPTIONS.items():
        having = {run: report for run, report in runs.items() if has_curve(report, kind)}
        if having:
            yield {"chart": curve_chart(kind, having), "caption": caption, "table": None}
    for metric in table.metrics:
        having = {run: report for run, report in runs.items() if has_curve(report, DISTRACTORS, metric)}
        if having:
            chart = curve_chart(DISTRACTORS, having, metric)
            yield {
                "chart": chart,
                "caption": "Relevant and junk rows are in the gallery from the start.",
                "table": None,
            }


def _moved(group: Group, moved: MovedQueries) -> dict[str, Any]:
    """Lists of both runs for every query, and a note."""
    queries = []
    for each in moved.queries:
        changed = each.changed
        before, after = (metric_value(moved.metric, value) for value in (changed.baseline, changed.candidate))
        runs = [
            {"name": row.name, "tiles": picture_tiles(shown)} for row, shown in zip(group.rows, each.lists, strict=True)
        ]
        queries.append({"title": f"Query row {changed.row}", "facts": f"{before} to {after}", "runs": runs})
    return {"title": f"Queries that changed most: {moved.metric}", "queries": queries, "note": moved.note}
