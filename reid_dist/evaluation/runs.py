"""From a job as a file describes it to its report: features, a block of distances or top-k lists."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.limits import refuse_unusable_path
from reid_dist.core.regular_files import open_regular
from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError, ReidDistError, StoreNotFoundError
from reid_dist.evaluation.benchmarks import refuse_unfit_labels
from reid_dist.evaluation.benchmarks.benchmark import refuse_other_codes
from reid_dist.evaluation.benchmarks.variants import Scores, benchmark_spec, under_benchmark
from reid_dist.evaluation.checked_options import CheckedOptions, ranking_spec
from reid_dist.evaluation.evaluate import evaluate_block, evaluate_once
from reid_dist.evaluation.options import JOB_OPTIONS, RankingOptions
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runner import Run
from reid_dist.evaluation.sides import RowsProgress, Sides
from reid_dist.reports import Report
from reid_dist.stages.session import Session
from reid_dist.stores import DistanceBlock, FeatureSet, LabelledSet, open_labels
from reid_dist.stores.importers.source import members_of

if TYPE_CHECKING:
    from reid_dist.evaluation.splits import SplitReport

# Errors of reading a damaged archive.
_DAMAGE = (
    *(OSError, ValueError, EOFError, AttributeError, TypeError, LookupError, RuntimeError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error),
)


@dataclass(frozen=True)
class OpenedJob:
    """A job with both sides open.

    `given` is the content digest of distances or lists that take the features' place, by the name of their input;
    `evaluate` is a function of a session.
    """

    job: PipelineJob
    query: LabelledSet
    gallery: LabelledSet
    given: dict[str, str]
    evaluate: Callable[[Session], Report]

    @property
    def spec(self) -> dict[str, Any]:
        """All that the report depends on, by name."""
        job, checked = self.job, CheckedOptions.of(self.job.options(), self.query, self.gallery)
        given = {"distance": None, **self.given} if self.given else {}
        return {
            **ranking_spec(checked, self.query, self.gallery, **given),
            **benchmark_spec(job.published, other_codes=job.other_codes),
            **job.sides.spec,
            **_pictures_spec(job),
        }


def open_job(job: PipelineJob, progress: RowsProgress | None = None) -> OpenedJob:
    """Open both sides of a job, features only where something is computed from them; contradictions are refused."""
    _refuse_contradictions(job)
    if job.lists is None and job.distances is None:
        near, far = job.sides.open(progress)
        opened = OpenedJob(job, near, far, {}, partial(evaluate_features, job, near, far))
    else:
        sides = open_labels(job.query, "query"), open_labels(job.gallery, "gallery")
        if job.lists is not None:
            from reid_dist.evaluation.listed_evaluation import as_lists, lists_digest

            lists = as_lists(*_read_lists(job.lists))
            given = {"lists": lists_digest(lists[0])}
            opened = OpenedJob(job, *sides, given, partial(_evaluate_lists, job, *sides, lists))
        else:
            block = DistanceBlock.open(job.distances, similarity=job.similarity)
            given = {"distances": block.content_digest}
            opened = OpenedJob(job, *sides, given, partial(_evaluate_distances, job, *sides, block))
    if job.published is not None:
        refuse_unfit_labels(job.published, opened.query, opened.gallery)
    _refuse_missing_rows(job, opened.query.n_rows)
    return opened


def evaluate_features(job: PipelineJob, query: FeatureSet, gallery: FeatureSet, session: Session) -> Report:
    """Evaluate a job whose distances are computed from features."""
    if job.published is None:
        report = evaluate_once(session, query, gallery, **job.options())
    else:
        from reid_dist.evaluation.benchmarked import evaluate_published

        options, other_codes = job.options(), job.other_codes
        report = evaluate_published(session, query, gallery, job.published, options, other_codes=other_codes)
    return _with_pictures(report, job, query, gallery)


def _evaluate_lists(
    job: PipelineJob,
    query: LabelledSet,
    gallery: LabelledSet,
    lists: tuple[NDArray[Any], NDArray[Any] | None],
    _: Session,
) -> Report:
    """Evaluate a job whose lists are given; they are read here, and there is nothing to distribute."""
    from reid_dist.evaluation.listed_evaluation import evaluate_lists

    report = evaluate_lists(lists[0], query, gallery, distance=lists[1], **_ranking_options(job))
    extra_runs: dict[str, Scores] | None = {} if job.other_codes else None
    return report if job.published is None else under_benchmark(report, job.published, gallery, extra_runs=extra_runs)


def _evaluate_distances(
    job: PipelineJob, query: LabelledSet, gallery: LabelledSet, block: DistanceBlock, session: Session
) -> Report:
    """Evaluate a job whose distances are given."""
    options = _ranking_options(job)
    if job.published is None:
        report = evaluate_block(session, block, query, gallery, **options)
    else:
        from reid_dist.evaluation.benchmarked import evaluate_published_distances

        report = evaluate_published_distances(
            session, block, query, gallery, job.published, options, other_codes=job.other_codes
        )
    return _with_pictures(report, job, query, gallery)


def _ranking_options(job: PipelineJob) -> RankingOptions:
    """Options where a ranking is given, which has no distance of its own; others of features are refused elsewhere."""
    return cast("RankingOptions", {name: value for name, value in job.options().items() if name != "distance"})


def prepared_job(
    job: PipelineJob,
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> tuple[type[Any], Callable[[], Run[Any]]]:
    """Class of the report of a job, and what opens the job for `run_job`; parameters as of `prepare_evaluation`."""
    if not job.has_splits:
        return Report, partial(prepare_evaluation, job, rows, stages)
    from reid_dist.evaluation.splits import SplitReport

    return SplitReport, partial(prepare_splits, job.sides, job.split_options(), rows, stages)


def prepare_evaluation(
    job: PipelineJob,
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> Run[Report]:
    """Open a job for `run_job`; `rows` shows the progress of reading, `stages` that of the evaluation."""
    with rows() as reading:
        opened = open_job(job, reading)

    def compute(session: Session) -> Report:
        with stages() as progress:
            return opened.evaluate(session.showing(progress))

    shape = None if job.lists is not None else (opened.query.n_rows, job.max_rank)
    return Run(spec=opened.spec, compute=compute, curve_shape=shape)


def prepare_splits(
    sides: Sides,
    options: Mapping[str, Any],
    rows: Callable[[], AbstractContextManager[RowsProgress | None]],
    stages: Callable[[], AbstractContextManager[Progress]],
) -> Run[SplitReport]:
    """Open an evaluation over splits for `run_job`; `options` are those of `evaluate_splits`."""
    from reid_dist.evaluation.splits import SplitJob, run_splits

    with rows() as reading:
        near, far = sides.open(reading)
    job = SplitJob.of(near, far, options)

    def compute(session: Session) -> SplitReport:
        with stages() as progress:
            return run_splits(session.showing(progress), job)

    spec = {**job.spec, **sides.spec}
    return Run(spec=spec, compute=compute, curve_shape=(near.n_rows, job.checked.values["max_rank"]))


def _pictures_spec(job: PipelineJob) -> dict[str, Any]:
    """Entries of a spec of pictures."""
    return {} if job.pictures is None else {"pictures": job.pictures, "image_root": job.image_root}


def _refuse_contradictions(job: PipelineJob) -> None:
    """Refuse options that contradict each other."""
    refuse_other_codes(job.other_codes, job.benchmark)
    if job.distances is not None and job.lists is not None:
        raise InputError("a job takes its ranking from distances or from lists, not from both")
    if job.similarity and job.distances is None:
        raise InputError("similarity is of given distances; name their file (--distances), or leave it out")
    given = "distances" if job.distances is not None else "lists"
    if (job.distances or job.lists) and JOB_OPTIONS["distance"].is_set(job.distance):
        raise InputError(
            f"distance {job.distance!r} is computed from features, and {given} take their place; leave one of them out"
        )
    if (job.distances or job.lists) and job.fuse:
        raise InputError(f"fuse is of features, and {given} take their place; leave one of them out")
    if (job.distances or job.lists) and (job.sides.spec or job.left_out):
        raise InputError(
            f"exclude and drop_duplicates leave rows of features out, and {given} take their place; leave the rows out "
            f"of the {given}"
        )
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
        ImageSet.of(query),
        ImageSet.of(gallery),
        chosen=() if isinstance(job.pictures, str) else job.pictures or (),
        root=job.image_root,
    )
    return replace(report, pictures=pictures, options={**report.options, **_pictures_spec(job)})
