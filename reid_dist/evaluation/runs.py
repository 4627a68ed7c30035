"""From a job as a file describes it to its report: features, a block of distances or top-k lists."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.regular_files import open_regular
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError, ReidDistError, StoreNotFoundError
from reid_dist.evaluation.benchmarks import refuse_unfit_labels
from reid_dist.evaluation.benchmarks.resolving import refuse_alone
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.evaluate import evaluate, evaluate_distances
from reid_dist.evaluation.options import JOB_OPTIONS, RankingOptions
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runner import Computation, ReportForm, options_spec, reported_spec
from reid_dist.evaluation.sides import RowsProgress
from reid_dist.reports import Report
from reid_dist.stages.expansion import describe_expansion
from reid_dist.stores import DistanceBlock, FeatureSet, LabelledSet, open_labels
from reid_dist.stores.importers.source import members_of

if TYPE_CHECKING:
    from distributed import Client

# Rankings that take the place of features.
_GIVEN = ("distances", "lists")

# Errors of reading a damaged archive.
_DAMAGE = (
    *(OSError, ValueError, EOFError, AttributeError, TypeError, LookupError, RuntimeError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error),
)


@dataclass(frozen=True)
class OpenedJob:
    """A job with both sides open; `evaluate` is a function of a client, a workspace and the progress."""

    job: PipelineJob
    query: LabelledSet
    gallery: LabelledSet
    evaluate: Callable[[Client | None, Path | str | None, Progress], Report]

    @property
    def spec(self) -> dict[str, Any]:
        """All that the report depends on, by name; distances and lists by path, since digests read them whole."""
        job, checked = self.job, CheckedOptions.of(self.job.options(), self.query, self.gallery)
        paths = {name: getattr(job, name) for name in _GIVEN}
        return {
            **options_spec(checked, self.query, self.gallery),
            "distance": None if job.lists or job.distances else job.distance,
            "expand": describe_expansion(checked.expand) if checked.expand else None,
            "rerank": None if checked.rerank is None else checked.rerank.describe(),
            "metrics": _metrics(checked.values["metrics"], [metric.name for metric in checked.metrics]),
            "benchmark": job.benchmark,
            "benchmark_alone": job.benchmark_alone,
            "pictures": job.pictures,
            "image_root": job.image_root if job.pictures is not None else None,
            **{name: None if path is None else str(Path(path).absolute()) for name, path in paths.items()},
        }


def open_job(job: PipelineJob, progress: RowsProgress | None = None) -> OpenedJob:
    """Open both sides of a job, features only where something is computed from them; contradictions are refused."""
    _refuse_contradictions(job)
    if job.lists is None and job.distances is None:
        near, far = job.sides.open(progress)
        opened = OpenedJob(job, near, far, partial(evaluate_features, job, near, far))
    else:
        query, gallery = open_labels(job.query, "query"), open_labels(job.gallery, "gallery")
        opened = OpenedJob(job, query, gallery, partial(evaluate_ranking, job, query, gallery))
    if job.published is not None:
        refuse_unfit_labels(job.published, opened.query, opened.gallery)
    _refuse_missing_rows(job, opened.query.n_rows)
    return opened


def evaluate_features(
    job: PipelineJob,
    query: FeatureSet,
    gallery: FeatureSet,
    client: Client | None,
    workspace: Path | str | None,
    progress: Progress,
) -> Report:
    """Evaluate a job whose distances are computed from features."""
    where: dict[str, Any] = {"client": client, "workspace": workspace, "progress": progress}
    if job.published is None:
        report = evaluate(query, gallery, **where, **job.options())
    else:
        from reid_dist.evaluation.benchmarked import evaluate_published

        alone = job.benchmark_alone
        report = evaluate_published(query, gallery, job.published, job.options(), alone=alone, **where)
    return _with_pictures(report, job, query, gallery)


def evaluate_ranking(
    job: PipelineJob,
    query: LabelledSet,
    gallery: LabelledSet,
    client: Client | None,
    workspace: Path | str | None,
    progress: Progress,
) -> Report:
    """Evaluate a job whose distances or lists are given."""
    # Distances and lists have no distance of their own; other options that need features are refused with the reason.
    options = cast("RankingOptions", {name: value for name, value in job.options().items() if name != "distance"})
    if job.lists is not None:
        from reid_dist.evaluation.benchmarks.variants import Scores, under_benchmark
        from reid_dist.evaluation.lists import evaluate_lists

        index, distance = _read_lists(job.lists)
        report = evaluate_lists(index, query, gallery, distance=distance, **options)
        apart: dict[str, Scores] | None = None if job.benchmark_alone else {}
        return report if job.published is None else under_benchmark(report, job.published, gallery, apart=apart)
    block = DistanceBlock.open(job.distances)
    where: dict[str, Any] = {"client": client, "workspace": workspace, "progress": progress}
    if job.published is None:
        report = evaluate_distances(block, query, gallery, **where, **options)
    else:
        from reid_dist.evaluation.benchmarked import evaluate_published_distances

        alone = job.benchmark_alone
        report = evaluate_published_distances(block, query, gallery, job.published, options, alone=alone, **where)
    return _with_pictures(report, job, query, gallery)


def prepare_evaluation(
    job: PipelineJob,
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> Computation[Report]:
    """Open a job for `run_job`; `rows` shows the progress of reading, `stages` that of the evaluation."""
    with rows() as reading:
        opened = open_job(job, reading)

    def compute(client: Client | None, workspace: Path | str | None) -> Report:
        with stages() as progress:
            return opened.evaluate(client, workspace, progress)

    return Computation(
        form=ReportForm(Report),
        spec=opened.spec,
        spec_of=_spec_of,
        compute=compute,
        curve_shape=None if job.lists is not None else (opened.query.n_rows, job.max_rank),
        other="the report of another job",
        beside=Report.prepare_save,
        digests=lambda: {**dict.fromkeys(_GIVEN), **_ranking_digests(job)},
    )


def _spec_of(report: Report) -> dict[str, Any]:
    """Specification of a finished report."""
    from reid_dist.evaluation.benchmarks.variants import is_alone

    return {
        "pictures": None,
        "image_root": None,
        **reported_spec(report),
        "benchmark": None if report.benchmark is None else report.benchmark["name"],
        "benchmark_alone": is_alone(report.benchmark),
        **{name: report.inputs.get(name, {}).get("content_digest") for name in _GIVEN},
        "distance": None if set(_GIVEN) & set(report.inputs) else report.distance["name"],
        "expand": report.expand,
        "rerank": report.rerank,
        "metrics": _metrics(report.options.get("metrics"), [*report.metrics, *report.bounds]),
    }


def _metrics(given: Sequence[str] | None, reported: Sequence[str]) -> dict[str, Any]:
    """Metrics as they were given, and those of the report: without any, these are the protocol's own."""
    return {"given": given, "reported": sorted({*reported})}


def _ranking_digests(job: PipelineJob) -> dict[str, str]:
    """Content digest of the distances or lists that take the features' place, by the name of their input."""
    if job.lists is not None:
        from reid_dist.evaluation.lists import lists_digest

        return {"lists": lists_digest(_read_lists(job.lists)[0])}
    return {} if job.distances is None else {"distances": DistanceBlock.open(job.distances).content_digest}


def _refuse_contradictions(job: PipelineJob) -> None:
    """Refuse options that contradict each other."""
    refuse_alone(job.benchmark_alone, job.benchmark)
    if job.distances is not None and job.lists is not None:
        raise InputError("a job takes its ranking from distances or from lists, not from both")
    given = "distances" if job.distances is not None else "lists"
    if (job.distances or job.lists) and JOB_OPTIONS["distance"].is_set(job.distance):
        raise InputError(
            f"distance {job.distance!r} is computed from features, and {given} take their place; leave one of them out"
        )
    if (job.distances or job.lists) and job.fuse:
        raise InputError(f"fuse is of features, and {given} take their place; leave one of them out")
    if job.pictures is not None and job.lists is not None:
        raise InputError("pictures show the lists that a run finds (topk), and none are found where lists are given")
    if job.pictures is not None and job.topk is None:
        raise InputError("pictures are made from top-k lists; set topk as well (--topk 10)")


def _refuse_missing_rows(job: PipelineJob, n_query: int) -> None:
    """Refuse pictures of query rows that do not exist."""
    chosen = job.pictures if isinstance(job.pictures, tuple) else ()
    outside = [row for row in chosen if not 0 <= row < n_query]
    if outside:
        raise InputError(f"pictures: query row {outside[0]} is none of the {n_query} queries (rows count from 0)")


def _read_lists(path: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read top-k lists: `index` and, if it is there, `distance`."""
    try:
        refuse_unusable_path(path)
        with open(path, "rb", opener=open_regular) as file:
            # Without this, numpy would take the file for a pickle, and advise to load it as one.
            if not zipfile.is_zipfile(file):
                raise InputError(f"{path} is no .npz file of lists; write them as topk.npz has them (index, distance)")
            file.seek(0)
            with zipfile.ZipFile(file) as members:
                members_of(members)
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                if "index" not in archive.files:
                    raise InputError(f"{path} holds no array 'index' of gallery rows; write lists as topk.npz has them")
                return archive["index"], archive["distance"] if "distance" in archive.files else None
    except FileNotFoundError:
        raise StoreNotFoundError(f"there is no file of lists {path!r}") from None
    except ReidDistError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{path} is no .npz file of lists: {' '.join(str(error).split())}") from None


def _with_pictures(report: Report, job: PipelineJob, query: LabelledSet, gallery: LabelledSet) -> Report:
    """Add thumbnails of the hardest and of chosen queries, if the job has any."""
    if job.pictures is None:
        return report
    from reid_dist.reports.pictures import ImageSet, make_pictures

    pictures = make_pictures(
        report,
        ImageSet(query.image_paths, query.pids, query.camids),
        ImageSet(gallery.image_paths, gallery.pids, gallery.camids),
        chosen=() if isinstance(job.pictures, str) else job.pictures or (),
        root=job.image_root,
    )
    options = {**report.options, "pictures": job.pictures, "image_root": job.image_root}
    return replace(report, pictures=pictures, options=options)
