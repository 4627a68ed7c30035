"""Evaluation on drawn galleries, as `splits` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.cli.options import RunOptions
from reid_dist.cli.progress import stages
from reid_dist.cli.resumable import deliver_table, open_sides, run_resumable
from reid_dist.core.formatting import aligned, counted
from reid_dist.evaluation.runner import Computation, ReportForm, reported_spec
from reid_dist.evaluation.splits import Draw, SplitReport, evaluate_splits
from reid_dist.metrics.definitions import default_metrics, parse_metrics
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.reports.splits import splits_caution
from reid_dist.reports.words import metric_value
from reid_dist.stores import FeatureSet

if TYPE_CHECKING:
    from distributed import Client


def evaluate_drawn(query: str, gallery: str, options: Mapping[str, Any], run: RunOptions) -> SplitReport:
    """Evaluate every split of two sources, and save the report; `options` are those of `evaluate_splits`.

    Errors are those of `run_resumable`.
    """
    names = ("repeats", "per_identity", "per_camera", "seed", "rest_as_queries")
    draw = Draw(**{name: options[name] for name in names})

    def prepare() -> Computation[SplitReport]:
        near, far = open_sides(query, gallery)

        def compute(client: Client | None, workspace: Path | str | None) -> SplitReport:
            with stages() as progress:
                return evaluate_splits(near, far, client=client, workspace=workspace, progress=progress, **options)

        return Computation(
            form=ReportForm(SplitReport),
            spec=_spec(near, far, draw, options),
            spec_of=_spec_of,
            compute=compute,
            curve_shape=(near.n_rows, options["max_rank"]),
            other="other splits",
        )

    return run_resumable(run, prepare)


def _spec(query: FeatureSet, gallery: FeatureSet, draw: Draw, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that the report depends on, by name."""
    protocol = PROTOCOLS.get(options["protocol"])
    usual = default_metrics(protocol.cmc_family, protocol.ap_family, protocol.reported)
    return {
        "query": query.content_digest,
        "gallery": gallery.content_digest,
        "draw": asdict(draw),
        "protocol": protocol.describe(),
        "distance": options["distance"],
        "metrics": [metric.name for metric in parse_metrics(options["metrics"] or usual)],
        "max_rank": options["max_rank"],
    }


def _spec_of(report: SplitReport) -> dict[str, Any]:
    """Specification of a finished report."""
    draw = {name: value for name, value in report.draw.items() if name != "generator"}
    return {**reported_spec(report), "draw": draw, "metrics": list(report.metrics)}


def deliver_splits(report: SplitReport, *, as_json: bool, output: Path | None) -> None:
    """Print the report, and the names of its files."""
    rows: list[tuple[str, ...]] = [("metric", "mean", "spread", "lowest", "highest")]
    for name, values in report.per_split.items():
        cells = (report.metrics[name], report.spread[name], float(values.min()), float(values.max()))
        rows.append((name, *(metric_value(name, value) for value in cells)))
    draw, counts = report.draw, report.counts
    kind = "identity and camera" if draw["per_camera"] else "identity"
    facts = {
        "splits": f"{report.n_splits}, {draw['per_identity']} of each {kind}, seed {draw['seed']}",
        "spread": "sample standard deviation over the splits",
        "queries": f"{_span(counts['n_valid'])} valid of {_span(counts['n_query'])}",
        "gallery": f"{_span(counts['n_gallery'])} rows of {counted(counts['n_identity'], 'identity')}",
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        **({"ranked": report.protocol["ranked"]} if "ranked" in report.protocol else {}),
    }
    caution = splits_caution(counts, report.protocol, report.notes)
    deliver_table(report, caution, aligned(rows, n_left=1), {}, facts, as_json=as_json, output=output)


def _span(values: list[int]) -> str:
    """Counts of all splits: one number where they agree."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
