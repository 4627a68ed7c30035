"""Pooled stores as results of the runner: where they go, and what is left of an unfinished run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.evaluation.result_spec import Spec, differing
from reid_dist.stages.pooling import PooledPlace
from reid_dist.stores import FeatureSet, Workspace
from reid_dist.stores.folders import folder_at
from reid_dist.stores.locations import State, at_location, beside, refuse_unless_free, state_of
from reid_dist.stores.locks import lock
from reid_dist.stores.objects import is_object_uri
from reid_dist.stores.stored import StoreReader


@dataclass(frozen=True)
class PooledStore:
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

    def remark(self, result: FeatureSet) -> str | None:
        """A store has no name of its own."""
        return None

    def prepare(self) -> None:
        """Nothing is to be prepared."""

    def save(self, result: FeatureSet, spec: Spec) -> FeatureSet:
        """Return the store."""
        return result

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
