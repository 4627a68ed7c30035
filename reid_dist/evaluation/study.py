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
    """Evaluations of one job, in a folder of a workspace.

    `session` is that of the folder, and `folder` its path; `make` is the dataclass of a part, of plain values.
    """

    def __init__(self, session: Session, folder: Path, kind: str, identity: Any, make: Callable[..., Part]) -> None:
        self.session, self.folder = session.within(folder), folder
        self._kind, self._identity, self._make = kind, identity, make

    @cached_property
    def _stage(self) -> Stage:
        return Workspace.at(self.folder).stage(self._kind, [__version__, self._identity], {})

    def part(self, name: str, evaluate: Callable[[Session], Part]) -> Part:
        """Return a finished part; one that is missing or damaged is evaluated, and kept."""
        found = read_record(self._stage, name, self.session.warn)
        if found is not None:
            return self._make(**found)
        part = evaluate(self.session.within(self.folder))
        write_record(self._stage, name, vars(part))
        return part

    @contextlib.contextmanager
    def apart(self, session: Session, name: str) -> Iterator[tuple[Session, Path]]:
        """Session in a folder of its own, which is found again by its name, and removed when the work is done."""
        folder = self.folder / f"{NESTED}{name}"
        folder.mkdir(exist_ok=True)
        yield session.within(folder), folder
        shutil.rmtree(folder, ignore_errors=True)

    def finish(self) -> None:
        """Remove all parts."""
        Workspace.at(self.folder).remove(self._stage)


@contextlib.contextmanager
def begin_study(
    session: Session, kind: str, identity: Any, make: Callable[..., Part], *, folder: str | None
) -> Iterator[Study[Part]]:
    """Study in the workspace of a session; its parts are removed when all is done.

    `kind` and `identity` are of its parts, as a stage takes them.  `folder` is the identity of a folder of its own
    within the workspace, which is removed as well, and None for the workspace itself.
    """
    with _folder_of(session, folder) as place:
        study = Study(session, place, kind, identity, make)
        yield study
        study.finish()


@contextlib.contextmanager
def _folder_of(session: Session, identity: str | None) -> Iterator[Path]:
    """Directory of a study: in the workspace of a session, or temporary where there is none.

    A study with an `identity` has a folder of its own, which one run at a time works in, and which is removed when all
    is done.  If a run breaks, finished parts stay, and the same work goes on from there.
    """
    if session.workspace is None:
        with temporary_directory() as name:
            yield Path(name)
        return
    place = local_path(session.workspace.path)
    if identity is None:
        yield make_folder(place, "choose another workspace")
        return
    folder = place / f"{NESTED}{identity[:20]}"
    with stage_lock(str(folder), session.warn):
        make_folder(folder, "choose another workspace")
        try:
            yield folder
        except BaseException:
            if not Workspace.at(folder).holds_parts():
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder, ignore_errors=True)
