"""Threads of this process on Ctrl-C: nothing more is begun, and what takes long is not waited for."""

from __future__ import annotations

import threading
import time

import pytest

from reid_dist.engine.task_graph import Progress, TaskGraph, execute


class Interrupted(Progress):
    """Ctrl-C as soon as a task is done."""

    def advance(self, stage: str) -> None:
        raise KeyboardInterrupt


def test_ctrl_c_does_not_wait_for_a_long_task() -> None:
    release, begun = threading.Event(), []

    def long(number: int) -> int:
        begun.append(number)
        release.wait(60)
        return number

    def quick() -> int:
        while not begun:
            time.sleep(0.01)
        return 0

    graph = TaskGraph()
    graph.add("quick", quick, stage="quick")
    graph.finals = [graph.add(f"long-{number}", long, number) for number in range(6)] + ["quick"]
    started = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            execute(graph, None, 2, Interrupted())
        assert time.monotonic() - started < 20
        assert not release.is_set()
    finally:
        release.set()
    time.sleep(0.2)
    assert len(begun) <= 2


def test_ctrl_c_lets_a_short_task_end() -> None:
    """So that it does not write where somebody tidies up."""
    begun, ended = threading.Event(), []

    def short() -> None:
        begun.set()
        time.sleep(0.3)
        ended.append(True)

    graph = TaskGraph()
    graph.add("quick", begun.wait, 60, stage="quick")
    graph.finals = [graph.add("short", short), "quick"]
    with pytest.raises(KeyboardInterrupt):
        execute(graph, None, 2, Interrupted())
    assert ended == [True]


def test_a_failed_task_is_reported_after_running_tasks_have_ended() -> None:
    begun, ended = threading.Event(), []

    def short() -> None:
        begun.set()
        time.sleep(0.3)
        ended.append(True)

    def failing() -> None:
        begun.wait(60)
        raise ValueError("broken")

    graph = TaskGraph()
    graph.finals = [graph.add("short", short), graph.add("failing", failing)]
    with pytest.raises(ValueError, match="broken"):
        execute(graph, None, 2, Progress())
    assert ended == [True]
