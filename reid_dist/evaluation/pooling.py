"""Pooling of a feature set into a new store, and pooled stores as results of the runner."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, cast

from reid_dist.core.registry import unknown_name
from reid_dist.core.temporary import temporary_directory
from reid_dist.errors import InputError, StoreError, StoreExistsError
from reid_dist.evaluation.checked_options import Spec, differing
from reid_dist.evaluation.options import POOL_OPTIONS, PoolOptions, complete
from reid_dist.evaluation.runner import ResultStore
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.stages.pooling_job import POOLINGS, PooledPlace, PoolJob, PoolRecipe, write_pooled
from reid_dist.stages.row_groups import pooled_labels
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, FeatureSource, Workspace, as_feature_set
from reid_dist.stores.featureset import Progress as RowsProgress
from reid_dist.stores.folders import folder_at
from reid_dist.stores.kept_rows import Offenders, kept_dtype
from reid_dist.stores.locations import (
    State,
    at_location,
    beside,
    canonical_uri,
    refuse_unless_free,
    state_of,
)
from reid_dist.stores.locks import lock
from reid_dist.stores.objects import is_object_uri
from reid_dist.stores.stored import StoreReader

if TYPE_CHECKING:
    from distributed import Client

_ACCUMULATOR_BYTES = 256 << 20


@lists_options(PoolOptions)
def pool(
    features: FeatureSource,
    uri: str | os.PathLike[str],
    *,
    chunk_rows: int | None = None,
    overwrite: bool = False,
    accumulator_bytes: int = _ACCUMULATOR_BYTES,
    progress: Shown | RowsProgress = None,
    client: Client | None = None,
    workspace: str | os.PathLike[str] | None = None,
    **options: Unpack[PoolOptions],
) -> FeatureSet:
    """Pool every group of rows that share a label into one row, and write the rows to a store.

    The defaults follow common practice: rows enter the mean as stored, and the mean is scaled to length 1.  If a model
    normalises features before they are stored, the result is the mean of unit vectors; for features of other lengths,
    `normalise_rows` gives every row the same weight.  A mean of exactly zero has no direction and is refused.  If a
    mean cancels except for rounding errors, its direction is that of these errors.

    Pooled rows are in the order of the first rows of their groups.  Their labels are: the pid of the group; its camid;
    as item id the label of the group; every column with one value within every group (others are dropped, with a
    note); the image path of the group's first row.

    Parameters
    ----------
    features
        Feature set, in memory or stored, or its path.
    uri
        Location of the new store.
    **options
        As listed in `reid_dist.evaluation.options.PoolOptions`.
    chunk_rows, overwrite
        As in `FeatureSet.save`, for the pooled set.
    accumulator_bytes
        Memory for the sums of a task, in bytes: ``8 * dim`` per group of a block.  The result does not depend on it.
    progress
        As in `evaluate`; or a callback with the number of rows read, the number of rows to read and the location of the
        new store.  It is called after every block read, or on a cluster after every task.
    client
        Cluster to run on; None for threads of this process.  The result does not depend on it.
    workspace
        Directory or URI visible to every worker, for pooled rows until the store is written; None uses a temporary
        directory next to the new store.  If a run fails, finished groups are kept, and the same call resumes from them.

    Returns
    -------
    FeatureSet
        The pooled set, (n_groups, dim).

    Raises
    ------
    UnknownNameError
        If a label or the method does not exist.
    InputError
        If `media` is given with a method other than the mean, if a group has several identities, if it has several
        cameras under ``camids="keep"``, or for rows of zeros without `allow_zero`.
    StoreExistsError, StoreError
        If the store exists, or cannot be written.
    DamagedStoreError
        If a chunk of the source does not match its checksum.
    RunFailedError, ClusterError
        As in `evaluate`.
    """
    if accumulator_bytes < 1:
        raise InputError(f"accumulator_bytes must be a positive number of bytes, not {accumulator_bytes}")
    job = pool_job(as_feature_set(features), options)
    to = PooledPlace(uri=canonical_uri(uri), chunk_rows=chunk_rows, overwrite=overwrite)
    rows = progress if callable(progress) else None
    with begin_session(client, workspace, None if callable(progress) else progress) as session:
        return pool_to(session, job, to, rows, accumulator_bytes)


def pool_job(features: FeatureSet, given: PoolOptions) -> PoolJob:
    """Check options against the labels of a set; errors are those of `pool`."""
    options = cast("PoolOptions", complete(given, POOL_OPTIONS))
    how, media = POOLINGS.get(options["method"]), options["media"]
    if options["normalise_rows"] and features.n_zero_rows and not options["allow_zero"]:
        zero = Offenders(features.n_zero_rows, features.first_zero_rows)
        raise InputError(
            f"rows of zeros cannot be scaled to length 1: found {zero}; leave them out, or let them be "
            "(allow_zero=True, --allow-zero)"
        )
    if media is not None and media not in features.columns:
        raise unknown_name("label column of media", media, features.columns)
    if media is not None and not how.weighs:
        raise InputError(
            f"media are for means, in which each has the same weight; the {how.name} over all rows of a group is "
            "that over its media: leave media out"
        )
    values: dict[str, Any] = {**options, "dtype": kept_dtype(options["dtype"]).name}
    recipe = PoolRecipe(features=features, **{name: values[name] for name in PoolRecipe.options()})
    groups = recipe.groups
    labels, notes = pooled_labels(features, groups, options["camids"])
    recorded = {name: values[name] for name, option in POOL_OPTIONS.items() if option.recorded}
    return PoolJob(recipe=recipe, groups=groups, labels=labels, notes=notes, options=values, recorded=recorded)


def pool_to(
    session: Session,
    job: PoolJob,
    to: PooledPlace,
    rows: RowsProgress | None = None,
    sums_bytes: int = _ACCUMULATOR_BYTES,
) -> FeatureSet:
    """Pool in threads or on a cluster; `rows` shows the progress of rows read, for the location of the new store.

    A store that is there, and sizes of chunks that do not fit together, are refused before anything is read.
    """
    refuse_unless_free(to.uri, overwrite=to.overwrite)
    job.chunk_rows(to)
    features = job.recipe.features
    show = None if rows is None else partial(_show_rows, rows, to.uri)
    with contextlib.ExitStack() as stack:
        # Beside the new store there is room for its rows.
        placed = session if session.workspace is not None else session.within(stack.enter_context(_beside(to.uri)))

        def attempt() -> FeatureSet:
            with placed.visible(features, features) as (seen, _):
                return write_pooled(job, seen, to, placed.resources(), sums_bytes=sums_bytes, show=show)

        return placed.retried(attempt)


def _show_rows(rows: RowsProgress, uri: str, done: int, total: int) -> None:
    rows(done, total, uri)


@contextlib.contextmanager
def _beside(uri: str) -> Iterator[str]:
    """Temporary directory beside a store, or the usual one where that is on object storage."""
    if is_object_uri(uri):
        with temporary_directory() as folder:
            yield folder
        return
    above = Path(uri).parent
    try:
        above.mkdir(parents=True, exist_ok=True)
        made = temporary_directory(str(above))
    except OSError as error:
        raise StoreError(f"cannot write a store at {uri}: {error.strerror}") from error
    with made as folder:
        yield folder


@dataclass(frozen=True)
class PooledStore(ResultStore[FeatureSet]):
    """A pooled store, which its computation writes.

    The record of an unfinished run and its workspace are in a directory beside the store until it is done; on object
    storage there is no record.
    """

    at: PooledPlace
    mismatch = "another store"

    @property
    def location(self) -> str:
        """Location of the store."""
        return self.at.uri

    @property
    def home(self) -> Path | None:
        """Local directory of an unfinished run."""
        return None if is_object_uri(self.at.uri) else Path(self._beside)

    @property
    def workspace(self) -> str:
        """Location of the workspace, unless the command names another one."""
        return at_location(self._beside, "workspace")

    @property
    def _beside(self) -> str:
        """Location of what an unfinished run leaves."""
        return beside(self.at.uri, "{}.unfinished")

    @contextlib.contextmanager
    def begun(self, *, resume: bool) -> Iterator[None]:
        """Refuse a store that is there, and what an earlier run has left, unless it is resumed or replaced.

        At the end the directory is removed; if the run breaks, only where it has no finished part.
        """
        if not (resume and state_of(self.at.uri) is State.COMPLETE):
            refuse_unless_free(self.at.uri, overwrite=self.at.overwrite)
        if folder_at(self._beside).exists() and not resume:
            if not self.at.overwrite:
                self._refuse()
            self._remove()
        try:
            yield
        except BaseException:
            # Keep the original exception.
            with contextlib.suppress(StoreError, OSError):
                if not Workspace.at(self.workspace).holds_parts():
                    self._remove()
            raise
        # Another process may have begun to write the store meanwhile.
        with contextlib.suppress(StoreError):
            self._remove()

    def find(self, spec: Spec) -> FeatureSet | None:
        """Open the store, if it is complete and not to be replaced by another one."""
        if state_of(self.at.uri) is not State.COMPLETE:
            return None
        found = FeatureSet.open(self.at.uri)
        return None if self.at.overwrite and differing(spec, self.spec(found)) else found

    def spec(self, result: FeatureSet) -> Spec:
        """The spec that the store was written with; that of a store which was not pooled is its content."""
        source = StoreReader.open(result.uri).manifest.source
        spec: Spec = source.get("spec", {} if "pooling" in source else {"store": result.content_digest})
        return spec

    def _refuse(self) -> NoReturn:
        # Another process that writes the store now is reported as such.
        lock(self.at.uri).release()
        raise StoreExistsError(
            f"{self.at.uri} is unfinished, and {self._beside} holds what is done of it; --resume to continue that run, "
            "begin again with --overwrite, or write elsewhere"
        )

    def _remove(self) -> None:
        """Remove the directory; StoreExistsError if another process writes the store."""
        if not is_object_uri(self._beside) and not Path(self._beside).exists():
            return
        held = lock(self.at.uri)
        try:
            with contextlib.suppress(OSError):
                folder_at(self._beside).clear()
        finally:
            held.release()
