"""What ``reid-dist splits`` does: sources are opened, drawn from and evaluated, into a directory."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from reid_dist.cli.line import RESUME_OTHERWISE, named_already, resumable, this_run, workspace_for
from reid_dist.cli.memory import refuse_long_curves
from reid_dist.cli.observed import observed_cluster, refuse_unobservable
from reid_dist.cli.progress import rows_progress, stages
from reid_dist.cli.unfinished import differing, unfinished
from reid_dist.clusters import ClusterConfig
from reid_dist.errors import InputError
from reid_dist.evaluation.splits import Draw, SplitReport, evaluate_splits
from reid_dist.evaluation.splits.report import DOCUMENT
from reid_dist.metrics.definitions import default_metrics, parse_metrics
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.reports.files import refuse_occupied, refuse_uri
from reid_dist.stores import FeatureSet
from reid_dist.stores.importers import open_features

__all__ = ["evaluate_drawn"]


def evaluate_drawn(
    query: str,
    gallery: str,
    draw: Draw,
    options: Mapping[str, Any],
    cluster: ClusterConfig,
    *,
    output: Path | None,
    name: str | None,
    workspace: str | None,
    resume: bool,
    performance_page: Path | None,
) -> SplitReport:
    """Open both sides, evaluate every split, and write the file.

    Parameters
    ----------
    query, gallery
        What is opened.
    draw
        How galleries are drawn.
    options
        protocol, distance, metrics, max_rank and chunk_rows, as `evaluate` takes them.
    cluster
        Where to run.
    output
        Where ``splits.json`` and ``splits.html`` go; None for nowhere.
    name
        Of the run; None for that of `output`.
    workspace
        Where drawn rows are put; None for a place in `output`.
    resume
        Whether `output` may hold an earlier run over the same splits, finished or not.
    performance_page
        Where Dask's performance report goes.

    Raises
    ------
    StoreExistsError
        If `output` holds something and `resume` is not set.
    InputError
        If it holds other splits.
    RunFailedError
        If the cluster broke; the message says what is left.
    """
    refuse_unobservable(cluster, performance_page)
    if output is not None:
        refuse_uri(output) if resume else refuse_occupied(output, otherwise=RESUME_OTHERWISE)
    finished = resume and output is not None and (output / DOCUMENT).is_file()
    with contextlib.ExitStack() as on_exit:
        with rows_progress() as progress:
            near = open_features(query, role="query", progress=progress)
            far = open_features(gallery, role="gallery", progress=progress)
        asked = _identity(near, far, draw, options)
        if finished and output is not None:
            return named_already(_same_splits(SplitReport.load(output), asked, output), name, output)
        refuse_long_curves(near.n_rows, options["max_rank"])
        folder = on_exit.enter_context(workspace_for(output, workspace))
        on_exit.enter_context(resumable(folder, output))
        on_exit.enter_context(unfinished(output, folder, asked))
        with observed_cluster(cluster, performance_page) as client, stages() as told:
            report = evaluate_splits(
                near, far, **asdict(draw), client=client, workspace=folder, progress=told, **options
            )
    report = replace(report, run=this_run(name, output, report.heading.title))
    if output is not None:
        report.save(output, overwrite=True)
    return report


def _identity(query: FeatureSet, gallery: FeatureSet, draw: Draw, options: Mapping[str, Any]) -> dict[str, Any]:
    """All that the answer depends on, by name."""
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


def _same_splits(report: SplitReport, asked: Mapping[str, Any], output: Path) -> SplitReport:
    """Return a finished report if it is the answer to this very question."""
    found = {
        **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
        "draw": {name: report.draw.get(name) for name in asked["draw"]},
        "protocol": {name: report.protocol.get(name) for name in asked["protocol"]},
        "distance": report.distance["name"],
        "metrics": list(report.metrics),
        # A report that says nothing of it is older than what it says now.
        "max_rank": report.options.get("max_rank", asked["max_rank"]),
    }
    others = differing(asked, found)
    if others:
        raise InputError(f"{output} holds other splits ({', '.join(others)} differ); choose another --output")
    return report
