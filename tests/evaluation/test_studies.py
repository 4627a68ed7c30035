"""Several evaluations of one job: what an interrupted study leaves, and two at a time over one workspace."""

from __future__ import annotations

import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from reid_dist.evaluation.study import begin_study
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace


@dataclass(frozen=True)
class Value:
    number: int


@pytest.mark.parametrize("finished", [False, True])
def test_parts_of_an_interrupted_study_are_found_again(tmp_path: Path, finished: bool) -> None:
    """The workspace around it holds parts, so that it is kept and named; a study without parts leaves nothing."""
    workspace, made = Workspace.at(tmp_path / "parts"), list[int]()

    def evaluate(_: Session) -> Value:
        made.append(5)
        return Value(5)

    with (
        contextlib.suppress(KeyboardInterrupt),
        begin_study(Session(workspace=workspace), "values", "a job", Value, folder="5" * 64) as study,
    ):
        if finished:
            study.part("one", evaluate)
        raise KeyboardInterrupt
    assert workspace.holds_parts() == finished
    assert study.folder.exists() == finished
    with begin_study(Session(workspace=workspace), "values", "a job", Value, folder="5" * 64) as study:
        assert study.part("one", evaluate) == Value(5)
    assert made == [5]
    assert not workspace.holds_parts()
    assert not study.folder.exists()


@pytest.mark.filterwarnings("ignore:another run works on:UserWarning")
def test_two_studies_of_one_job_take_turns(tmp_path: Path) -> None:
    """The first removes the folder in the end, which the second would miss in the middle."""
    workspace, inside, most = Workspace.at(tmp_path / "parts"), list[int](), list[int]()
    both = threading.Barrier(2)

    def run() -> None:
        both.wait(10)
        with begin_study(Session(workspace=workspace), "values", "a job", Value, folder="5" * 64) as study:
            inside.append(1)
            most.append(len(inside))
            assert study.part("one", lambda _: Value(5)) == Value(5)
            # Time for the other run to come in.
            time.sleep(0.3)
            inside.pop()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert most == [1, 1]
