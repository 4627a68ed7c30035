"""``--log-json``: standard error holds events alone, whatever is written there and whatever goes wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def run(reid_dist: Any) -> Callable[..., tuple[int, str, list[dict[str, Any]]]]:
    """Call a command; every line that it writes on standard error must be an event."""

    def call(*words: object) -> tuple[int, str, list[dict[str, Any]]]:
        done = reid_dist(*words)
        events = [json.loads(line) for line in done.err.splitlines()]
        assert all({"time", "event"} <= event.keys() for event in events)
        assert [event["time"] for event in events] == sorted(event["time"] for event in events)
        assert (events[0]["event"], events[-1]["event"]) == ("started", "ended")
        assert events[-1]["exit_code"] == done.code
        return done.code, done.out, events

    return call


def of_kind(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == name]


def test_evaluate(run: Any, reid_dist, stores, threads: Path) -> None:
    words = ("evaluate", *stores, "--cluster", threads, "--chunk-rows", 16, "--json")
    code, out, events = run(*words, "--log-json")
    assert code == 0
    quiet = reid_dist(*words)
    assert json.loads(out)["result_digest"] == json.loads(quiet.out)["result_digest"]
    begun, done = of_kind(events, "stage_started"), of_kind(events, "stage_done")
    assert [event["stage"] for event in begun] == ["pairs", "sweep"] == [event["stage"] for event in done]
    for start, end in zip(begun, done, strict=True):
        assert start["total"] == end["total"] == end["done"]
        assert end["seconds"] > 0
        assert end["rate"] == pytest.approx(end["done"] / end["seconds"], rel=0.5)
        assert end["eta_seconds"] == 0


@pytest.mark.slow
def test_run_on_a_local_cluster(run: Any, stores, tmp_path: Path) -> None:
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(f"query: {stores[0]}\ngallery: {stores[1]}\n")
    code, out, events = run("run", pipeline, "--workers", 1, "--log-json", "--output", tmp_path / "out")
    assert code == 0
    assert "mAP" in out
    assert [event["stage"] for event in of_kind(events, "stage_done")] == ["pairs", "sweep"]
    assert not of_kind(events, "error")


def test_sweep(run: Any, stores, threads: Path) -> None:
    words = ("sweep", *stores, "--expand", "aqe", "--k", "0:2", "--cluster", threads, "--log-json")
    code, _, events = run(*words)
    assert code == 0
    points = of_kind(events, "point")
    assert [(event["done"], event["total"]) for event in points] == [(1, 3), (2, 3), (3, 3)]
    assert all(0 <= event["metrics"]["mAP"] <= 1 for event in points)
    assert {event["point"] for event in points} == {"k=0", "k=1", "k=2"}


def test_splits(run: Any, stores, threads: Path) -> None:
    code, _, events = run("splits", *stores, "--repeats", 3, "--cluster", threads, "--log-json")
    assert code == 0
    (done,) = of_kind(events, "stage_done")
    assert (done["stage"], done["done"]) == ("splits", 3)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("evaluate", "a", "b", "--no-such"), 2, "No such option"),
        (("evaluate", "a"), 2, "no such file or store"),
        (("evaluate", "missing.zarr", "missing.zarr"), 2, "missing.zarr"),
        (("run", "missing.yaml"), 2, "missing.yaml"),
        (("splits", "a", "b", "--cluster", "missing.yaml"), 2, "missing.yaml"),
        (("sweep", "a", "b"), 2, "expand"),
    ],
)
def test_errors_are_events(run: Any, words: tuple[str, ...], code: int, message: str) -> None:
    found, out, events = run(*words, "--log-json")
    assert found == code
    assert out == ""
    (error,) = of_kind(events, "error")
    assert message in error["message"]
    assert error["exit_code"] == code


_NOISY = """
import os, subprocess, sys, warnings
from reid_dist.cli import click_options
real = click_options.choose_cluster

def noisy(*words, **options_of_cluster):
    print("from Python", file=sys.stderr)
    warnings.warn("a warning")
    os.write(2, b"from C, without an end")
    subprocess.run([sys.executable, "-c", "import sys; print('from a child', file=sys.stderr)"])
    {then}
    return real(*words, **options_of_cluster)

click_options.choose_cluster = noisy
from reid_dist.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("then", "code"), [("", 2), ("1 / 0", 1), ("raise KeyboardInterrupt", 130)])
def test_what_others_write_becomes_events(then: str, code: int) -> None:
    """Also a defect of ours: its traceback is part of the error."""
    done = subprocess.run(
        [sys.executable, "-c", _NOISY.format(then=then), "evaluate", "missing", "missing", "--log-json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    events = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.returncode == code
    shown = " ".join(event["text"] for event in of_kind(events, "log"))
    for text in ("from Python", "a warning", "from C, without an end", "from a child"):
        assert text in shown
    (error,) = of_kind(events, "error")
    assert ("ZeroDivisionError" in error.get("traceback", "")) == (code == 1)
    assert events[-1] == {**events[-1], "event": "ended", "exit_code": code}
