"""The leaderboard of a history: for every data set and job, all models by their newest accepted values."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from markupsafe import Markup, escape

from reid_dist.core.credentials import without_controls
from reid_dist.errors import InputError, StoreError
from reid_dist.metrics.metric import headline_metrics, metric_family
from reid_dist.nightly.history.history_values import Entry, Run, State
from reid_dist.nightly.night_tables import bare_estimate
from reid_dist.nightly.outcomes import outcome
from reid_dist.nightly.page.trend_charts import sparkline
from reid_dist.nightly.wording import BOARD_TEST, SIGNS, board_sizes, untested_models, value_text
from reid_dist.reports import Report
from reid_dist.reports.html import page_environment
from reid_dist.reports.tables import compare_runs
from reid_dist.reports.tables.run_table import NEAR_BEST
from reid_dist.reports.tabular.csv_text import tables_csv
from reid_dist.reports.tabular.markup import markdown
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Row, Table, metric_column

MOST_NIGHTS: Final = 90
"""Number of nights in a trend."""

_MOST_METRICS: Final = 4

Reports = Callable[[int, str], Report]
"""The report of an entry by the number of its run and its name; StoreError where it is pruned or damaged."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A model on one data set and job: its newest good entry with that run, and its newest entry of any kind.

    `rank` is that by the first metric, from 1, None without a value; equal values share one.  `best` and `near_best`
    are the metrics in which it has the best value, and in which it does not differ significantly from the best.
    """

    rank: int | None
    model: str
    run: Run
    entry: Entry
    newest: Entry
    # Values of every metric, oldest first; None for a night without one.
    past: Mapping[str, tuple[float | None, ...]]
    best: frozenset[str]
    near_best: frozenset[str]


@dataclass(frozen=True, slots=True)
class Board:
    """Models of one data set and job whose values compare, the best of the first metric first.

    `untested` are the models without values per query, where others were tested.
    """

    suite: str
    dataset: str
    job: str
    metrics: tuple[str, ...]
    standings: tuple[Standing, ...]
    untested: tuple[str, ...]


_Good = tuple[Run, Entry]


def boards(history: Sequence[Run], metrics: Sequence[str] = (), *, reports: Reports | None = None) -> list[Board]:
    """Return the boards of all runs, oldest first; `metrics` are the columns, by default those that papers print.

    Models that were evaluated by another job, or on other rows or labels, have a board of their own.  Differences from
    the best value are tested with `reports`, or not at all.  InputError if no job has an accepted value.
    """
    nights: dict[tuple[str, str, str], dict[str, list[_Good]]] = {}
    for run in history:
        for entry in run.entries:
            models = nights.setdefault((run.suite, entry.dataset, entry.job), {})
            models.setdefault(entry.model, []).append((run, entry))
    found = []
    for key, models in nights.items():
        alike: dict[object, dict[str, _Good]] = {}
        for model, past in models.items():
            good = next(((run, entry) for run, entry in reversed(past) if entry.is_good), None)
            if good is not None:
                alike.setdefault(good[1].comparison_key, {})[model] = good
        boards_of_key = (_board(key, each, models, metrics, reports) for each in alike.values())
        found += [board for board in boards_of_key if board is not None]
    if not found:
        raise InputError(
            "no leaderboard: no job of this history has an accepted value"
            + (f" of {', '.join(metrics)}" if metrics else "; run `reid-dist nightly` first")
        )
    return found


def _board(
    key: tuple[str, str, str],
    good: Mapping[str, _Good],
    nights: Mapping[str, Sequence[_Good]],
    metrics: Sequence[str],
    reports: Reports | None,
) -> Board | None:
    names = list(dict.fromkeys(name for _, entry in good.values() for name in entry.metrics))
    printed = headline_metrics(names) if names else []
    chosen = [name for name in metrics if name in names] if metrics else (printed or names)[:_MOST_METRICS]
    if not chosen:
        return None
    near, untested = _tested(good, chosen, reports)
    values = {name: {model: _order(name, entry) for model, (_, entry) in good.items()} for name in chosen}
    ranked = sorted(values[chosen[0]].items(), key=lambda pair: (pair[1], pair[0]))
    standings = []
    for model, place in ranked:
        run, entry = good[model]
        rank = 1 + sum(other < place for _, other in ranked)
        standings.append(
            Standing(
                rank if place < float("inf") else None,
                model,
                run,
                entry,
                nights[model][-1][1],
                {name: _past(name, nights[model]) for name in chosen},
                frozenset(n for n in chosen if len(good) > 1 and values[n][model] == min(values[n].values())),
                frozenset(n for n in chosen if model in near.get(n, ())),
            )
        )
    return Board(*key, tuple(chosen), tuple(standings), untested)


def _tested(
    good: Mapping[str, _Good], metrics: Sequence[str], reports: Reports | None
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Return the models that do not differ significantly from the best, by metric, and those without a report."""
    known: dict[str, Report] = {}
    if reports is None or len(good) < 2:
        return {}, ()
    for model, (run, entry) in good.items():
        with contextlib.suppress(StoreError):
            known[model] = reports(run.number, entry.name)
    common = [name for name in metrics if all(name in report.metrics for report in known.values())]
    if len(known) < 2 or not common:
        return {}, ()
    (group, *others) = compare_runs(list(known.values()), names=list(known), metrics=common).groups
    if others:
        return {}, ()
    near = {}
    for at, name in enumerate(common):
        _, best = min((_order(name, entry), model) for model, (_, entry) in good.items())
        # From the best value of a model without a report nothing is known to differ.
        near[name] = [row.name for row in group.rows if row.cells[at].is_near_best and best in known]
    return near, tuple(model for model in good if model not in known)


def _past(name: str, nights: Sequence[_Good]) -> tuple[float | None, ...]:
    return tuple(entry.value(name) if entry.state == State.DONE else None for _, entry in nights)[-MOST_NIGHTS:]


def _order(name: str, entry: Entry) -> float:
    """Place of an entry by a metric, best first; those without a value last."""
    value = entry.value(name)
    if value is None:
        return float("inf")
    family = metric_family(name)
    return value if family is not None and family.lower_is_better else -value


def _report_path(standing: Standing, folder: Path) -> str:
    run, entry = standing.run, standing.entry
    page = Path(run.folder) / entry.folder / entry.page
    if not (run.folder and entry.folder and page.is_file()):
        return ""
    # With a leading dot, so that no name of a folder is read as a scheme.
    return f"./{urllib.parse.quote(Path(os.path.relpath(page, folder)).as_posix())}"


# --------------------------------------------------------------------------------------------------------------- tables


def board_table(board: Board, folder: Path, *, drawn: bool = False) -> Table:
    """Return a board for a folder, from which it links to reports; with trends of the first metric where `drawn`."""
    first = board.metrics[0]
    trends = [Column(f"Trend of {first}"), Column("Time")] if drawn else []
    rows: list[Row] = []
    for each in board.standings:
        past, entry, path = each.past[first], each.entry, _report_path(each, folder)
        known = [value for value in past if value is not None]
        # Of a single night there is no trend.
        line = sparkline(first, past) if len(past) > 1 else ""
        seconds = "-" if entry.seconds is None else value_text("seconds", entry.seconds)
        costs = [Cell(line or "-", known[-1] - known[0] if known else 0.0), Cell(seconds, entry.seconds)]
        rows.append(
            [
                *(board.suite, board.dataset, board.job, Cell(f"{each.rank or '-'}", each.rank)),
                _model(each) if drawn else each.model,
                *(
                    bare_estimate(
                        name,
                        entry.metrics.get(name),
                        is_best=name in each.best,
                        mark=NEAR_BEST if name in each.near_best else "",
                    )
                    for name in board.metrics
                ),
                *(costs if drawn else []),
                Cell(f"{each.run.number}", each.run.number, link=path),
                *(entry.started, Cell("", entry.seconds), path),
            ]
        )
    details = [[Column(name, Kind.TEXT, is_detail=True) for name in names] for names in _DETAILS]
    columns = [Column("Rank"), Column("Model", Kind.NAME), *map(metric_column, board.metrics), *trends, Column("Run")]
    return Table(
        title=f"{board.dataset}, {board.job}",
        columns=[*details[0], *columns, *details[1]],
        rows=rows,
        notes=[*map(Note, _notes(board))],
    )


_DETAILS: Final = (("Suite", "Data set", "Job"), ("Started", "Seconds", "Report"))


def _model(standing: Standing) -> Markup:
    """Return a model, and the outcome of its newest night if that is not the one of its values."""
    shown = escape(standing.model)
    if standing.newest != standing.entry:
        sign = SIGNS[outcome(standing.newest)]
        shown += Markup(' <br><span class="badge {}">{} newest: {}</span>').format(sign.kind, sign.mark, sign.words)
    return shown


def _notes(board: Board) -> Iterator[str]:
    yield ": ".join(filter(None, [board.suite, board_sizes(board.standings[0].entry)]))
    if any(standing.near_best for standing in board.standings) or board.untested:
        yield f"{NEAR_BEST} {BOARD_TEST}"
    if board.untested:
        yield untested_models(board.untested)


def leaderboard_html(shown: Sequence[Board], folder: Path) -> str:
    """Return the page of boards for a folder; equal runs give equal bytes."""
    environment = page_environment("reid_dist.nightly")
    script = environment.get_template("leaderboard.js").render()
    # The page runs this script alone.
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    tables = [board_table(board, folder, drawn=True) for board in shown]
    content = {"tables": tables, "script": script, "digest": digest}
    return without_controls(environment.get_template("leaderboard.html.j2").render(content))


def _tables(shown: Sequence[Board], folder: Path) -> list[Table]:
    return [board_table(board, folder) for board in shown]


FORMATS: Final[Mapping[str, Callable[[Sequence[Board], Path], str]]] = {
    ".html": leaderboard_html,
    ".md": lambda shown, folder: markdown(_tables(shown, folder)),
    ".csv": lambda shown, folder: tables_csv(_tables(shown, folder)),
}
"""What writes boards to a file for its folder, by the suffix of the file."""
