"""Pooled stores as results of the runner: where they go, what is left of an unfinished run, and what they hold."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.evaluation.runner import Destination
from reid_dist.stages.pooling import PooledPlace, PoolJob
from reid_dist.stores import FeatureSet, Workspace
from reid_dist.stores.folders import folder_at
from reid_dist.stores.locations import State, at_location, refuse_unless_free, state_of, unfinished_beside
from reid_dist.stores.locks import lock
from reid_dist.stores.object_errors import is_object_uri
from reid_dist.stores.stored import open_stored


@dataclass(frozen=True)
class StoreForm:
    """Pooled stores, which their computation writes; `spec` is that of the job."""

    at: PooledPlace
    spec: dict[str, Any]

    def find(self, to: Destination) -> FeatureSet | None:
        """Open the store, if it is complete and not to be replaced by another one."""
        if state_of(self.at.uri) is not State.COMPLETE:
            return None
        found = FeatureSet.open(self.at.uri)
        return None if self.at.overwrite and spec_of_pooled(found) != self.spec else found

    def place(self, to: Destination) -> object:
        """Location of the store."""
        return self.at.uri

    def name(self, result: FeatureSet) -> str:
        """Location of the store."""
        return result.uri

    def keep(self, result: FeatureSet, to: Destination) -> FeatureSet:
        """Return the store."""
        return result


@dataclass(frozen=True)
class UnfinishedRun:
    """Directory of a run that writes a store: its record and its workspace, beside the store until it is done.

    On object storage it has no record.
    """

    store: str

    @property
    def home(self) -> str:
        """Location of the directory."""
        return unfinished_beside(self.store)

    @property
    def workspace(self) -> str:
        """Location of the workspace, unless the command names another one."""
        return at_location(self.home, "workspace")

    @property
    def exists(self) -> bool:
        """Whether an earlier run has left anything."""
        return folder_at(self.home).exists()

    @contextlib.contextmanager
    def begun(self, *, resume: bool, overwrite: bool) -> Iterator[None]:
        """Refuse a store that is there, and what an earlier run has left, unless it is resumed or replaced.

        At the end the directory is removed; if the run breaks, only where it has no finished part.
        """
        if not (resume and state_of(self.store) is State.COMPLETE):
            refuse_unless_free(self.store, overwrite=overwrite)
        if self.exists and not resume:
            if not overwrite:
                self._refuse()
            self._remove()
        try:
            yield
        except BaseException:
            # Whatever else is wrong by now, the error on its way is the one to report.
            with contextlib.suppress(StoreError, OSError):
                if not Workspace.at(self.workspace).holds_parts():
                    self._remove()
            raise
        # Another process may have begun to write the store meanwhile.
        with contextlib.suppress(StoreError):
            self._remove()

    def _refuse(self) -> NoReturn:
        # Another process that writes the store now is reported as such.
        lock(self.store).release()
        raise StoreExistsError(
            f"{self.store} is unfinished, and {self.home} holds what is done of it; --resume to continue that run, "
            "begin again with --overwrite, or write elsewhere"
        )

    def _remove(self) -> None:
        """Remove the directory; StoreExistsError if another process writes the store."""
        if not is_object_uri(self.home) and not Path(self.home).exists():
            return
        held = lock(self.store)
        try:
            with contextlib.suppress(OSError):
                folder_at(self.home).clear()
        finally:
            held.release()


def pooled_spec(job: PoolJob, to: PooledPlace) -> dict[str, Any]:
    """All that a pooled store depends on, by name."""
    return {
        "source": job.recipe.features.content_digest,
        **job.options,
        "dtype": job.recipe.dtype,
        "allow_zero": job.allow_zero,
        "chunk_rows": job.chunk_rows(to),
    }


def spec_of_pooled(store: FeatureSet) -> dict[str, Any]:
    """The same of a finished store; entries are missing where it is no pooled one."""
    manifest = open_stored(store.uri).manifest
    return {
        "source": manifest.source.get("content_digest"),
        **manifest.source.get("pooling", {}),
        "dtype": manifest.dtype,
        "allow_zero": manifest.allow_zero,
        "chunk_rows": manifest.chunk_rows,
    }
