"""The leaderboard of a history: for every data set and job, all models by their newest accepted values."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.credentials import without_controls
from reid_dist.errors import InputError
from reid_dist.metrics.metric import headline_metrics, metric_family
from reid_dist.nightly.history.history_values import DONE, Entry, Estimate, Run
from reid_dist.nightly.outcomes import outcome
from reid_dist.nightly.page.trend_charts import sparkline
from reid_dist.nightly.wording import SIGNS, estimate_text, value_text, when
from reid_dist.reports.html import page_environment

MOST_NIGHTS: Final = 90
"""Number of nights in a trend."""

_MOST_METRICS: Final = 4


@dataclass(frozen=True, slots=True)
class Standing:
    """A model on one data set and job: its newest good entry with that run, and its newest entry of any kind."""

    model: str
    run: Run
    entry: Entry
    newest: Entry
    # Values of every metric, oldest first; None for a night without one.
    past: Mapping[str, tuple[float | None, ...]]


@dataclass(frozen=True, slots=True)
class Board:
    """Models of one data set and job, the best of the first metric first, and why some do not compare."""

    suite: str
    dataset: str
    job: str
    metrics: tuple[str, ...]
    standings: tuple[Standing, ...]
    note: str


def boards(history: Sequence[Run], metrics: Sequence[str] = ()) -> list[Board]:
    """Return the boards of all runs, oldest first; `metrics` are the columns, by default those that papers print."""
    found: dict[tuple[str, str, str], dict[str, list[tuple[Run, Entry]]]] = {}
    for run in history:
        for entry in run.entries:
            models = found.setdefault((run.suite, entry.dataset, entry.job), {})
            models.setdefault(entry.model, []).append((run, entry))
    return [board for key, models in found.items() if (board := _board(key, models, metrics)) is not None]


def _board(
    key: tuple[str, str, str], models: Mapping[str, Sequence[tuple[Run, Entry]]], metrics: Sequence[str]
) -> Board | None:
    good = {
        model: next(((run, entry) for run, entry in reversed(nights) if entry.is_good), None)
        for model, nights in models.items()
    }
    names = list(dict.fromkeys(name for found in good.values() if found is not None for name in found[1].metrics))
    printed = headline_metrics(names) if names else []
    chosen = [name for name in metrics if name in names] if metrics else (printed or names)[:_MOST_METRICS]
    if not chosen:
        return None
    standings = [
        Standing(model, *found, models[model][-1][1], {name: _past(name, models[model]) for name in chosen})
        for model, found in good.items()
        if found is not None
    ]
    standings.sort(key=lambda standing: (_order(chosen[0], standing.entry), standing.model))
    kinds = {standing.entry.comparison_key for standing in standings}
    note = "" if len(kinds) == 1 else "these entries differ in job, rows or labels: their values do not compare"
    return Board(*key, tuple(chosen), tuple(standings), note)


def _past(name: str, nights: Sequence[tuple[Run, Entry]]) -> tuple[float | None, ...]:
    values = (
        entry.metrics[name].value if entry.state == DONE and name in entry.metrics else None for _, entry in nights
    )
    return tuple(values)[-MOST_NIGHTS:]


def _order(name: str, entry: Entry) -> float:
    """Place of an entry by a metric, best first; those without a value last."""
    value = entry.metrics.get(name, Estimate(None)).value
    if value is None:
        return float("inf")
    family = metric_family(name)
    return value if family is not None and family.lower_is_better else -value


def render_leaderboard(history: Sequence[Run], metrics: Sequence[str] = ()) -> str:
    """Return the page of the leaderboard; equal runs give equal bytes.

    InputError if no job has an accepted value.
    """
    shown = boards(history, metrics)
    if not shown:
        raise InputError(
            "no leaderboard: no job of this history has an accepted value"
            + (f" of {', '.join(metrics)}" if metrics else "; run `reid-dist nightly` first")
        )
    environment = page_environment("reid_dist.nightly")
    script = environment.get_template("leaderboard.js").render()
    # The page runs this script alone.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    content = {"boards": [_content(board) for board in shown], "script": script, "digest": digest}
    return without_controls(environment.get_template("leaderboard.html.j2").render(content))


def _content(board: Board) -> dict[str, Any]:
    return {
        "title": f"{board.dataset}, {board.job}",
        "suite": board.suite,
        "metrics": board.metrics,
        "note": board.note,
        "rows": [_row(board, standing) for standing in board.standings],
    }


def _row(board: Board, standing: Standing) -> dict[str, Any]:
    entry, newest = standing.entry, outcome(standing.newest)
    return {
        "model": standing.model,
        "label": entry.labels.get("model", ""),
        "cells": [
            (name, _key(entry.metrics.get(name)), estimate_text(name, entry.metrics.get(name)))
            for name in board.metrics
        ],
        "trend": sparkline(board.metrics[0], standing.past[board.metrics[0]]),
        "change": _change(standing.past[board.metrics[0]]),
        "seconds": entry.seconds,
        "time": value_text("seconds", entry.seconds) if entry.seconds is not None else "-",
        "run": standing.run.number,
        "when": when(entry.started),
        "newest": None if standing.newest == entry else SIGNS[newest],
    }


def _key(estimate: Estimate | None) -> str:
    """Value by which a column is sorted."""
    return "-1" if estimate is None or estimate.value is None else repr(estimate.value)


def _change(values: Sequence[float | None]) -> str:
    """Last value minus the first, by which trends are sorted."""
    known = [value for value in values if value is not None]
    return repr(known[-1] - known[0]) if known else "0"
