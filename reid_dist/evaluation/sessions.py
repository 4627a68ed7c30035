"""The keywords of public functions as a session."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

from reid_dist.engine.checks import check_client, check_count
from reid_dist.engine.task_graph import Stopwatch
from reid_dist.evaluation.progress_bars import Shown, shown_progress
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace

if TYPE_CHECKING:
    from distributed import Client


@contextlib.contextmanager
def begin_session(
    client: Client | None,
    workspace: str | PathLike[str] | None,
    progress: Shown,
    chunk_rows: int | None = None,
) -> Iterator[Session]:
    """Session of the keywords of a public function, checked; bars are shown while it lasts."""
    check_client(client)
    if chunk_rows is not None:
        check_count("chunk_rows", chunk_rows)
    place = None if workspace is None else Workspace.at(workspace)
    with shown_progress(progress) as shown:
        yield Session(client=client, workspace=place, chunk_rows=chunk_rows, progress=Stopwatch(shown))
