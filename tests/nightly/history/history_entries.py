"""Entries and reports as nights make them, small and quick."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from functools import cache, partial
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reid_dist.nightly.history import History
from reid_dist.nightly.history.chain import update_run
from reid_dist.nightly.history.history_values import ALARM, Change, Entry, Estimate, Finding, Outcome
from reid_dist.reports import Report
from reid_dist.reports.comparison import ChangedQuery

NAME = "resnet50/market1501/plain"
GOOD = Finding(gate="accuracy", verdict=Outcome.SAME, facts={"text": "mAP 50.00% as before"})
BAD = Finding(
    gate="accuracy",
    verdict=Outcome.WORSE,
    facts={"text": "mAP lost 1.20 points"},
    baseline=1,
    changes=(
        Change(
            name="mAP",
            baseline=0.5,
            candidate=0.488,
            difference=-0.012,
            low=-0.02,
            high=-0.004,
            verdict=Outcome.WORSE,
            lost=(ChangedQuery(row=7, pid=12, camid=None, baseline=0.9, candidate=1 / 3),),
        ),
        Change(name="mINP", baseline=None, candidate=0.1),
    ),
)
ALARMED = Finding(gate="accuracy", verdict=Outcome.SAME, facts={"text": "other digests"}, alarm=ALARM)
SLOW = Finding(gate="speed", verdict=Outcome.WORSE, facts={"text": "1.8 times the median of 5 runs"})


def small_report(seed: int = 0, n_query: int = 40, **changes: Any) -> Report:
    rng = np.random.default_rng(seed)
    values = rng.random(n_query)
    values[3] = np.nan
    fields: dict[str, Any] = {
        "metrics": {"mAP": float(np.nanmean(values)), "CMC@1": 0.75, "undefined": float("nan")},
        "curves": {"CMC": np.linspace(0.75, 1.0, 10)},
        "counts": {
            "n_query": n_query,
            "n_valid": n_query - 1,
            "n_gallery": 100,
            "n_junk": 3,
            "n_invalid_by_reason": {"no relevant item in the gallery": 1},
        },
        "per_query": {
            "AP": values,
            "first_rank": rng.integers(1, 50, n_query).astype(float),
            "reason": np.where(np.arange(n_query) == 3, "no relevant item in the gallery", ""),
            "pid": rng.integers(0, 9, n_query),
            "camid": rng.integers(0, 3, n_query),
        },
        "protocol": {"name": "market1501", "summary": "another camera must see the person again"},
        "distance": {"name": "cosine", "definition": "1 - cos"},
        "inputs": {
            side: {"uri": f"{side}.zarr", "content_digest": f"blake3:{side}", "labels_digest": side}
            for side in ("query", "gallery")
        },
        "confidence": {
            "level": 0.95, "unit": "identity", "n_resamples": 100, "seed": 0, "intervals": {"mAP": [0.4, 0.6]},
        },
        "timing": {"open": 0.25, "counts": 1.5},
        "environment": {"reid_dist": "0.1.0", "host": "node-17"},
    }  # fmt: skip
    return Report(**fields | changes)


def entry_of(report: Report | None = None, *, name: str = NAME, **changes: Any) -> Entry:
    """An entry with every field, of the numbers of the report."""
    model, dataset, job = name.split("/")
    report = small_report() if report is None else report
    entry = Entry(
        model=model,
        dataset=dataset,
        job=job,
        labels={"team": "retrieval", "owner": "Ünal"},
        started="2026-05-09T02:00:11Z",
        seconds=12.25,
        timing={"open": 0.1, "counts": 1 / 3},
        peak_bytes=3 << 32,
        reused=("expanded query",),
        machine={"cpu": "EPYC", "cores": 48},
        metrics={
            "mAP": Estimate(report.metrics["mAP"], 0.4, 0.6),
            "CMC@1": Estimate(0.75),
            "undefined": Estimate(None),
        },
        counts=dict(report.counts),
        conventions={"protocol": report.protocol, "expand": None, "options": {"max_rank": 50}},
        inputs=dict(report.inputs),
        environment=dict(report.environment),
        input_digest="in",
        job_digest="job",
        result_digest=report.result_digest,
        folder=f"runs/00001/{name}",
    )
    return replace(entry, **changes)


def failed_entry(name: str = NAME) -> Entry:
    model, dataset, job = name.split("/")
    return Entry(model=model, dataset=dataset, job=job, state="failed", reason="query.zarr is damaged: chunk 3")


def record(
    history: History,
    *entries: Entry | tuple[Entry, Report],
    suite: str = "market",
    digest: str = "",
    exit_code: int | None = 0,
    **begun: Any,
) -> int:
    """Record a run of entries, with or without their reports; it does not end without an exit code."""
    number = history.begin(suite, digest, **begun)
    for each in entries:
        entry, report = each if isinstance(each, tuple) else (each, None)
        history.add(number, entry, report)
    if exit_code is not None:
        history.finish(number, exit_code)
    return number


def reported(report: Report, **changes: Any) -> tuple[Entry, Report]:
    """A report and its entry."""
    return entry_of(report, **changes), report


def alter(path: Path, *statements: str) -> None:
    """Execute statements on the file of a history, as another program."""
    with holding(path, *statements):
        pass


@contextlib.contextmanager
def holding(path: Path, *statements: str) -> Iterator[sqlite3.Connection]:
    """Another program that has executed statements, and holds their locks."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
        for statement in statements:
            holder.execute(statement).fetchall()
        yield holder


def last_seen(path: Path, number: int, at: datetime) -> None:
    """Set the time at which a run was last seen."""
    with holding(path) as connection:
        update_run(connection, number, seen=at.strftime("%Y-%m-%dT%H:%M:%SZ"))


def output_of(program: str, path: Path) -> str:
    """What a process prints that has `path`, `History`, `entry_of`, `small_report`, `NAME` and `ReidDistError`."""
    head = f"""
import os, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from history_entries import NAME, entry_of, small_report
from reid_dist.errors import ReidDistError
from reid_dist.nightly.history import History
path = {str(path)!r}
"""
    done = subprocess.run([sys.executable, "-c", head + program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@contextlib.contextmanager
def refused(kind: type[Exception], match: str) -> Iterator[pytest.ExceptionInfo[Exception]]:
    """Expect an error of one line."""
    with pytest.raises(kind, match=match) as caught:
        yield caught
    assert "\n" not in str(caught.value)


@cache
def processes() -> ForkServerContext:
    """New processes within milliseconds, for one that has imported everything makes them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "reid_dist.nightly.history", "reid_dist.nightly.history.history_file"])
    return context


def start(work: Callable[..., None], *arguments: object) -> ForkServerProcess:
    process = processes().Process(target=work, args=arguments)
    process.start()
    return process


class Mortal(sqlite3.Connection):
    """Kills its process before one of its statements."""

    left = 0

    def execute(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().execute(*arguments)

    def executemany(self, *arguments: Any) -> sqlite3.Cursor:
        self._count()
        return super().executemany(*arguments)

    def _count(self) -> None:
        if Mortal.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        Mortal.left -= 1


def kill_after(n_statements: int) -> None:
    """Kill this process before one of the next statements of its databases."""
    sqlite3.connect = partial(sqlite3.connect, factory=Mortal)
    Mortal.left = n_statements
