"""Evaluation of a job, as `evaluate`, `run` and `demo` do it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.cli.options import RunOptions
from reid_dist.cli.progress import rows_progress, stages
from reid_dist.cli.resumable import Computation, options_spec, run_resumable
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.option_values import complete, recorded
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runs import evaluate_sides, open_side, ranking_digests
from reid_dist.reports import Report, print_report
from reid_dist.reports.files import DOCUMENT, written_files
from reid_dist.stages.expansion import describe_expansion
from reid_dist.stores import LabelledSet, Role

if TYPE_CHECKING:
    from distributed import Client

# Rankings that take the place of features.
_GIVEN = ("distances", "lists")


def evaluate_job(job: PipelineJob, run: RunOptions, *, again: str | None = None) -> Report:
    """Evaluate a job and save its report; parameters and errors as of `run_resumable`."""

    def prepare() -> Computation[Report]:
        query, gallery = _open(job, "query"), _open(job, "gallery")

        def compute(client: Client | None, workspace: Path | str | None) -> Report:
            with stages() as progress:
                return evaluate_sides(job, query, gallery, client, workspace, progress)

        return Computation(
            spec=evaluation_spec(job, query, gallery),
            spec_of=_spec_of,
            compute=compute,
            n_query=query.n_rows,
            max_rank=job.options()["max_rank"],
            digests=lambda: {**dict.fromkeys(_GIVEN), **ranking_digests(job)},
        )

    # Lists are read here; there is nothing to distribute.
    on_cluster, other = job.lists is None, "the report of another job"
    return run_resumable(run, Report, prepare, document=DOCUMENT, other=other, on_cluster=on_cluster, again=again)


def evaluation_spec(job: PipelineJob, query: LabelledSet, gallery: LabelledSet) -> dict[str, Any]:
    """All that the report of a job depends on, by name; distances and lists by path, since digests read them whole."""
    checked = CheckedOptions.of(job.options(), query, gallery)
    paths = {name: getattr(job, name) for name in _GIVEN}
    return {
        **options_spec(checked, query, gallery),
        "distance": None if job.lists or job.distances else job.distance,
        "expand": describe_expansion(checked.expand) if checked.expand else None,
        "rerank": None if checked.rerank is None else checked.rerank.describe(),
        "metrics": _metrics(checked.values["metrics"], [metric.name for metric in checked.metrics]),
        "pictures": job.pictures,
        "image_root": job.image_root if job.pictures is not None else None,
        **{name: None if path is None else str(Path(path).absolute()) for name, path in paths.items()},
    }


def _spec_of(report: Report) -> dict[str, Any]:
    """Specification of a finished report."""
    return {
        **{name: report.inputs.get(name, {}).get("content_digest") for name in ("query", "gallery", *_GIVEN)},
        "protocol": {
            name: text for name, text in report.protocol.items() if name not in ("ground_truth", "single_shot")
        },
        "ground_truth": report.protocol.get("ground_truth", {}).get("content_digest"),
        "distance": None if set(_GIVEN) & set(report.inputs) else report.distance["name"],
        "expand": report.expand,
        "rerank": report.rerank,
        # An option that is missing in a report is newer than the report.
        **recorded(complete({})),
        "pictures": None,
        "image_root": None,
        **report.options,
        "metrics": _metrics(report.options.get("metrics"), [*report.metrics, *report.bounds]),
    }


def _metrics(given: Sequence[str] | None, reported: Sequence[str]) -> dict[str, Any]:
    """Metrics as they were given, and those of the report: without any, these are the protocol's own."""
    return {"asked": given, "reported": sorted({*reported})}


def _open(job: PipelineJob, role: Role) -> LabelledSet:
    with rows_progress() as progress:
        return open_side(job, role, progress)


def deliver(report: Report, *, as_json: bool, output: Path | None) -> None:
    """Print a report, and the names of its files."""
    if as_json:
        sys.stdout.write(report.to_json())
        return
    print_report(report)
    if output is not None:
        print(f"\nwritten to {output}: {', '.join(written_files(output))}")
