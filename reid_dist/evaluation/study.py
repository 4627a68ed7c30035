"""Several evaluations of one job: each is found among finished parts, or evaluated and kept."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from reid_dist._version import __version__
from reid_dist.core.temporary import temporary_directory
from reid_dist.stages.session import Session
from reid_dist.stores import Stage, Workspace
from reid_dist.stores.folders import make_folder
from reid_dist.stores.locations import local_path
from reid_dist.stores.locks import stage_lock
from reid_dist.stores.workspace import NESTED, read_record, write_record

Part = TypeVar("Part")


class Study(Generic[Part]):
    """Evaluations of one job, whose values are kept in a workspace.

    `session` is one in that workspace; `make` is the dataclass of a part, of plain values.
    """

    def __init__(
        self, session: Session, workspace: Workspace, kind: str, identity: Any, make: Callable[..., Part]
    ) -> None:
        self.session, self._workspace = session.within(workspace), workspace
        self._kind, self._identity, self._make = kind, identity, make

    @property
    def folder(self) -> Path:
        """The directory of the workspace; StoreError on object storage."""
        return local_path(self._workspace.path)

    @cached_property
    def _stage(self) -> Stage:
        return self._workspace.stage(self._kind, [__version__, self._identity], {})

    def part(self, name: str, evaluate: Callable[[Session], Part]) -> Part:
        """Return a finished part; one that is missing or damaged is evaluated, and kept."""
        found = read_record(self._stage, name, self.session.warn)
        if found is not None:
            return self._make(**found)
        part = evaluate(self.session.within(self._workspace))
        write_record(self._stage, name, vars(part))
        return part

    @contextlib.contextmanager
    def apart(self, session: Session, name: str) -> Iterator[Session]:
        """Session in a folder of its own, which is found again by its name, and removed when the work is done."""
        folder = self.folder / f"{NESTED}{name}"
        folder.mkdir(exist_ok=True)
        yield session.within(folder)
        shutil.rmtree(folder, ignore_errors=True)

    def finish(self) -> None:
        """Remove all parts."""
        self._workspace.remove(self._stage)


@contextlib.contextmanager
def begin_study(
    session: Session, kind: str, identity: Any, make: Callable[..., Part], *, folder: str | None
) -> Iterator[Study[Part]]:
    """Study in the workspace of a session; its parts are removed when all is done.

    `kind` and `identity` are of its parts, as a stage takes them.  `folder` is the identity of a folder of its own
    within the workspace, which is removed as well, and None for the workspace itself.
    """
    with _place_of(session, folder) as place:
        study = Study(session, place, kind, identity, make)
        yield study
        study.finish()


@contextlib.contextmanager
def _place_of(session: Session, identity: str | None) -> Iterator[Workspace]:
    """Workspace of a study: that of its session, or a temporary one where there is none.

    A study with an `identity` has a folder of its own, which one run at a time works in, and which is removed when all
    is done.  If a run breaks, finished parts stay, and the same work goes on from there.
    """
    if session.workspace is None:
        with temporary_directory() as name:
            yield Workspace.at(name)
        return
    if identity is None:
        yield session.workspace
        return
    folder = local_path(session.workspace.path) / f"{NESTED}{identity[:20]}"
    with stage_lock(str(folder), session.warn):
        make_folder(folder, "choose another workspace")
        try:
            yield Workspace.at(folder)
        except BaseException:
            if not Workspace.at(folder).holds_parts():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
