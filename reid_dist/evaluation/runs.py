"""From a job as a file describes it to its report: features, a block of distances or top-k lists."""

from __future__ import annotations

import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.task_graph import Progress
from reid_dist.errors import InputError, ReidDistError, StoreNotFoundError
from reid_dist.evaluation.evaluate import evaluate, evaluate_distances
from reid_dist.evaluation.lists import evaluate_lists, lists_digest
from reid_dist.evaluation.options import JOB_OPTIONS, RankingOptions
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.reports import Report
from reid_dist.reports.pictures import ImageSet, make_pictures
from reid_dist.stores import DistanceBlock, FeatureSet, LabelledSet, Role, open_features, open_labels

if TYPE_CHECKING:
    from distributed import Client

# Errors of reading a damaged archive.
_DAMAGE = (
    *(OSError, ValueError, EOFError, AttributeError, TypeError, LookupError, RuntimeError, OverflowError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile, zlib.error, struct.error),
)


def open_side(job: PipelineJob, role: Role, progress: Callable[[int, int, str], None] | None = None) -> LabelledSet:
    """Open one side of a job; its features only where something is computed from them."""
    source = getattr(job, role)
    if job.distances is not None or job.lists is not None:
        return open_labels(source, role)
    return open_features(source, role=role, progress=progress)


def evaluate_sides(
    job: PipelineJob,
    query: LabelledSet,
    gallery: LabelledSet,
    client: Client | None,
    workspace: Path | str | None,
    progress: Progress,
) -> Report:
    """Evaluate the opened sides of a job, and add pictures if it has any.

    Raises
    ------
    InputError
        If distances and lists are both given, or options do not fit.
    """
    _refuse_unfit(job, query.n_rows)
    options = job.options()
    # Distances and lists have no distance of their own; other options that need features are refused with the reason.
    given = cast("RankingOptions", {name: value for name, value in options.items() if name != "distance"})
    if job.lists is not None:
        index, distance = _read_lists(job.lists)
        report = evaluate_lists(index, query, gallery, distance=distance, **given)
    elif job.distances is not None:
        block = DistanceBlock.open(job.distances)
        report = evaluate_distances(
            block, query, gallery, client=client, workspace=workspace, progress=progress, **given
        )
    elif isinstance(query, FeatureSet) and isinstance(gallery, FeatureSet):
        report = evaluate(query, gallery, client=client, workspace=workspace, progress=progress, **options)
    else:
        raise AssertionError("features are opened where they are evaluated")
    return report if job.pictures is None else _with_pictures(report, job, query, gallery)


def ranking_digests(job: PipelineJob) -> dict[str, str]:
    """Return the content digest of the distances or lists that take the features' place, by the name of their input.

    Raises
    ------
    StoreNotFoundError, InputError
        If they cannot be read.
    """
    if job.lists is not None:
        return {"lists": lists_digest(_read_lists(job.lists)[0])}
    return {} if job.distances is None else {"distances": DistanceBlock.open(job.distances).content_digest}


def _refuse_unfit(job: PipelineJob, n_query: int) -> None:
    """Refuse options that contradict each other."""
    if job.distances is not None and job.lists is not None:
        raise InputError("a job takes its ranking from distances or from lists, not from both")
    given = "distances" if job.distances is not None else "lists"
    if (job.distances or job.lists) and JOB_OPTIONS["distance"].is_set(job.distance):
        raise InputError(
            f"distance {job.distance!r} is computed from features, and {given} take their place; leave one of them out"
        )
    if job.pictures is not None and job.lists is not None:
        raise InputError("pictures show the lists that a run finds (topk), and none are found where lists are given")
    if job.pictures is not None and job.topk is None:
        raise InputError("pictures are made from top-k lists; set topk as well (--topk 10)")
    chosen = job.pictures if isinstance(job.pictures, tuple) else ()
    outside = [row for row in chosen if not 0 <= row < n_query]
    if outside:
        raise InputError(f"pictures: query row {outside[0]} is none of the {n_query} queries (rows count from 0)")


def _read_lists(path: str) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read top-k lists: `index` and, if it is there, `distance`."""
    try:
        if not zipfile.is_zipfile(path):
            # Without this, numpy would take the file for a pickle, and advise to load it as one.
            if not Path(path).exists():
                raise StoreNotFoundError(f"there is no file of lists {path!r}")
            raise InputError(f"{path} is no .npz file of lists; write them as topk.npz has them (index, distance)")
        with np.load(path, allow_pickle=False) as archive:
            if "index" not in archive.files:
                raise InputError(f"{path} holds no array 'index' of gallery rows; write lists as topk.npz has them")
            return archive["index"], archive["distance"] if "distance" in archive.files else None
    except ReidDistError:
        raise
    except _DAMAGE as error:
        raise InputError(f"{path} is no .npz file of lists: {' '.join(str(error).split())}") from None


def _with_pictures(report: Report, job: PipelineJob, query: LabelledSet, gallery: LabelledSet) -> Report:
    """Add thumbnails of the hardest and of chosen queries."""
    pictures = make_pictures(
        report,
        ImageSet(query.image_paths, query.pids, query.camids),
        ImageSet(gallery.image_paths, gallery.pids, gallery.camids),
        chosen=() if isinstance(job.pictures, str) else job.pictures or (),
        root=job.image_root,
    )
    options = {**report.options, "pictures": job.pictures, "image_root": job.image_root}
    return replace(report, pictures=pictures, options=options)
