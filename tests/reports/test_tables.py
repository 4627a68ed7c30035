"""Tables of many runs: groups, best values, letters, and their texts."""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import run
from support.pages import Page, tables

from reid_dist import Report, compare, compare_runs
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import bootstrap_intervals, bootstrap_p_values
from reid_dist.reports.tables import ShownRuns
from reid_dist.reports.tables.letters import compact_letters, holm
from reid_dist.reports.tables.run_table import NEAR_BEST

PIDS = np.arange(80)


def near(base: np.ndarray, gain: float, seed: int = 0, **changes) -> Report:
    """A run whose queries score as in `base`, plus a gain and a little noise."""
    noise = np.random.default_rng(seed).normal(0, 0.02, len(base))
    return run(np.clip(base + gain + noise, 0, 1), PIDS, **changes)


@pytest.fixture(scope="module")
def runs() -> list[Report]:
    base = np.random.default_rng(5).uniform(0.2, 0.7, len(PIDS))
    return [near(base, 0.0, 1), near(base, 0.001, 2), near(base, 0.1, 3)]


@st.composite
def differing_pairs(draw) -> tuple[int, set[tuple[int, int]]]:
    n = draw(st.integers(1, 7))
    pairs = list(itertools.combinations(range(n), 2))
    return n, set(draw(st.lists(st.sampled_from(pairs), unique=True))) if pairs else set()


def letters_of(text: str) -> set[str]:
    return set(re.findall(r"[a-z]\d*", text))


@given(case=differing_pairs())
def test_two_items_share_a_letter_unless_they_differ(case) -> None:
    n, differing = case
    letters = list(map(letters_of, compact_letters(n, differing)))
    assert all(letters)
    assert "a" in letters[0]
    for pair in itertools.combinations(range(n), 2):
        assert bool(letters[pair[0]] & letters[pair[1]]) == (pair not in differing)
    having = {letter: {item for item in range(n) if letter in letters[item]} for letter in set.union(*letters)}
    for one, other in itertools.permutations(having.values(), 2):
        assert not one <= other, "a letter that says nothing"


def test_holm_by_hand() -> None:
    # 4 x 0.01, then 3 x 0.02, then 2 x 0.03 which is not below the one before, then the largest of these.
    assert holm({"a": 0.02, "b": 0.01, "c": 0.03, "d": 0.04}) == pytest.approx(
        {"a": 0.06, "b": 0.04, "c": 0.06, "d": 0.06}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"a": 1.0, "b": 1.0}
    assert holm({}) == {}


@pytest.mark.parametrize("gain", [0.0, 0.004, 0.01, 0.1])
def test_the_p_value_is_the_level_at_which_an_interval_excludes_zero(gain: float) -> None:
    """By its own definition, against intervals of the same draws at levels around it."""
    values = {"x": np.random.default_rng(3).normal(gain, 0.03, len(PIDS))}
    n = 999
    p_value = bootstrap_p_values(values, PIDS, n_resamples=n)["x"]
    assert 2 / (n + 1) <= p_value <= 1

    def excludes(level: float) -> bool:
        interval = bootstrap_intervals(values, PIDS, level=level, n_resamples=n).intervals["x"]
        return interval.low > 0 or interval.high < 0

    step = 4 / n
    if p_value < 1 - step:
        assert excludes(1 - p_value - step)
    if p_value > step + 2 / n:
        assert not excludes(1 - p_value + step)


def test_letters_and_best(runs: list[Report]) -> None:
    table = compare_runs(runs, names=["one", "two", "three"], metrics=["mAP", "TAR@FAR=0.01"])
    (group,) = table.groups
    cells = {row.name: row.cells for row in group.rows}
    assert [cells[name][0].letters for name in ("one", "two", "three")] == ["b", "b", "a"]
    assert [cells[name][0].is_best for name in ("one", "two", "three")] == [False, False, True]
    # Not the mean of values per query: a value, and nothing beside it.
    assert [(cell.value, cell.interval, cell.letters, cell.is_best) for cell in (row[1] for row in cells.values())] == [
        (0.5, None, "", True)
    ] * 3
    assert any(note.startswith("no interval: TAR@FAR=0.01") for note in group.notes)
    assert "Holm's correction for 3 pairs" in group.test
    assert not any(cell.is_near_best for row in group.rows for cell in row.cells)


def test_rows_are_ranked_and_what_does_not_differ_from_the_best_has_a_dagger(runs: list[Report]) -> None:
    order = sorted(runs[:2], key=lambda run: run.metrics["mAP"])
    table = compare_runs(order, names=["lower", "best"], metrics="mAP")
    (group,) = table.groups
    assert [row.name for row in group.rows] == ["lower", "best"]
    assert [row.name for row in group.ranked] == ["best", "lower"]
    assert [(cell.is_best, cell.is_near_best) for row in group.ranked for cell in row.cells] == [
        (True, False), (False, True)
    ]  # fmt: skip
    (shown,) = table.tables()
    assert [(cell.is_best, cell.mark) for cell in shown.column("mAP")] == [(True, ""), (False, NEAR_BEST)]
    (note,) = (note for note in shown.notes if note.name == NEAR_BEST)
    assert note.needed
    assert "at 5%: the larger p-value" in note.text
    assert table.to_markdown().count("<sup>\N{DAGGER}</sup>") == table.to_latex().count(r"{\textdagger}") == 1
    (lettered,) = ShownRuns(table, letters=True).tables()
    assert [cell.mark for cell in lettered.column("mAP")] == ["a", "a"]
    assert [note.name for note in lettered.notes][:1] == ["letters"]
    # Of runs that all differ from the best, nothing is marked, and a note says so.
    (differing,) = compare_runs([runs[0], runs[2]], metrics="mAP").tables()
    assert not any(cell.mark for cell in differing.column("mAP"))
    assert [note.name for note in differing.notes][:1] == ["test"]


def test_two_runs_agree_with_their_comparison(runs: list[Report]) -> None:
    (group,) = compare_runs([runs[0], runs[2]], metrics=["mAP"]).groups
    comparison = compare(runs[0], runs[2], metrics=["mAP"])
    assert group.paired == comparison
    assert comparison.metrics[0].verdict == "better"
    assert [row.cells[0].letters for row in group.rows] == ["b", "a"]
    interval = group.rows[0].cells[0].interval
    alone = bootstrap_intervals({"mAP": runs[0].per_query["AP"]}, PIDS, n_resamples=10_000).intervals["mAP"]
    assert interval == alone


def test_other_conditions_are_other_groups(runs: list[Report]) -> None:
    other = near(np.full(len(PIDS), 0.5), 0.0, protocol={"name": "no_cameras"})
    unlike = replace(runs[0], per_query={**runs[0].per_query, "pid": PIDS + 1})
    table = compare_runs([runs[0], other, runs[1], unlike], names=list("abcd"), metrics="mAP")
    assert [[row.name for row in group.rows] for group in table.groups] == [["a", "c"], ["b"], ["d"]]
    assert table.groups[1].title == "no_cameras: 80 queries, 100 gallery rows"
    assert [row.cells[0].is_best for row in table.groups[1].rows] == [False]


def test_stages_that_differ_are_columns(runs: list[Report]) -> None:
    other = replace(runs[1], rerank={"name": "k_reciprocal", "k1": 20, "k2": 6})
    (group,) = compare_runs([runs[0], other], metrics="mAP").groups
    assert group.stages == ("rerank",)
    assert [row.stages for row in group.rows] == [("-",), ("k_reciprocal",)]
    assert {"distance: cosine", "rerank: k_reciprocal(k1=20, k2=6)"} <= set(group.notes)
    (group,) = compare_runs([runs[0], other, replace(other, rerank=other.rerank | {"k1": 30})], metrics="mAP").groups
    assert [row.stages for row in group.rows] == [("-",), ("k_reciprocal(k1=20)",), ("k_reciprocal(k1=30)",)]


def test_names(runs: list[Report], tmp_path: Path) -> None:
    named = replace(runs[0], run={"name": "my model"})
    for folder, report in (("a/out", named), ("b/out", runs[1]), ("c/plain", runs[2])):
        report.save(tmp_path / folder)
    paths = [tmp_path / folder for folder in ("a/out", "b/out", "c/plain")]
    assert [row.name for row in compare_runs(paths[::2], metrics="mAP").groups[0].rows] == ["my model", "plain"]
    assert [row.name for row in compare_runs(paths[:2], metrics="mAP").groups[0].rows] == ["my model", str(paths[1])]


def test_refusals(runs: list[Report]) -> None:
    for wrong, message in (
        (runs[0], "a sequence of runs, found one Report"),
        ([], "one run or more, found none"),
    ):
        with pytest.raises(InputError, match=message):
            compare_runs(wrong)
    with pytest.raises(InputError, match="one entry for each of 3 runs, found 1"):
        compare_runs(runs, names=["one"])


def test_too_few_draws_are_noted(runs: list[Report]) -> None:
    (group,) = compare_runs(runs, metrics="mAP", n_resamples=60).groups
    assert "60 resamples are too few for so many comparisons; use 120" in group.notes
    assert [row.cells[0].letters for row in group.rows] == ["a"] * 3


HOSTILE = r"50% & more_of #1 \ {x} ~^ | <b> * [a] `c` $"


@pytest.fixture(scope="module")
def hostile(runs: list[Report]):
    return compare_runs(runs, names=[HOSTILE, "two\nlines", "three"], metrics=["mAP"])


@pytest.mark.parametrize("name", ["=1+1", "+1+cmd", "-2+3", "@SUM(A1)", "\tx", "\uff1dSUM(A1)"])
def test_no_name_in_csv_is_a_formula(runs: list[Report], name: str) -> None:
    table = compare_runs(runs[:2], names=[name, "-0.5"], metrics=["mAP"])
    found = {float(row["mAP"]): row["run"] for row in csv.DictReader(io.StringIO(table.to_csv()))}
    assert found[runs[0].metrics["mAP"]] == f"'{name}"
    assert found[runs[1].metrics["mAP"]] == "-0.5", "a number is none"


def test_csv_and_json(hostile, runs: list[Report]) -> None:
    rows = {row["run"]: row for row in csv.DictReader(io.StringIO(hostile.to_csv()))}
    assert [float(rows[name]["mAP"]) for name in (HOSTILE, "two\nlines", "three")] == [
        report.metrics["mAP"] for report in runs
    ]
    assert [row["mAP best"] for row in rows.values()] == ["1", "0", "0"]
    assert rows[HOSTILE]["result_digest"] == runs[0].result_digest
    document = json.loads(hostile.to_json())
    assert not {"moved", "reports"} & set(document["groups"][0])
    entry = document["groups"][0]["rows"][2]
    assert entry["metrics"]["mAP"]["value"] == runs[2].metrics["mAP"]
    assert entry["metrics"]["mAP"]["is_best"] is True
    assert entry["curves"]["CMC"] == [0.5, 1.0]


def test_the_page(runs: list[Report]) -> None:
    names = ["<script>alert(1)</script>", "three"]
    text = compare_runs([runs[0], runs[2]], names=names, metrics="mAP").to_html()
    assert "<script" not in text
    assert text.count('<svg class="plot"') == 1
    parsed = Page(text)
    assert re.search(r"mAP: \d+ queries lost, \d+ gained", parsed.text)
    changes = next(table for table in tables(text) if table[0][-1] == "verdict")
    assert [row[0] for row in changes[1:]] == ["mAP"]
    assert changes[1][-1] == "better"
    # On a narrow page, the verdict is beside the name of the metric, and values are below it.
    assert text.count('<table class="stacks">') == 1
    assert 'data-head="baseline"' in text


def test_many_letters_stay_apart() -> None:
    n = 30
    letters = compact_letters(n, set(itertools.combinations(range(n), 2)))
    assert (letters[0], letters[25], letters[26]) == ("a", "z", "a1")
    assert len(set(letters)) == n


def test_no_change_has_the_p_value_1() -> None:
    assert bootstrap_p_values({"x": np.zeros(len(PIDS))}, PIDS)["x"] == 1
    assert np.isnan(bootstrap_p_values({"x": np.full(len(PIDS), np.nan)}, PIDS)["x"])


def test_the_first_metric_sorts_the_rows_and_intervals_are_on_request(hostile) -> None:
    (plain,), (full,) = hostile.tables(), ShownRuns(hostile, intervals=True).tables()
    assert [cell.text for cell in plain.column("run")] == ["three", "two\nlines", HOSTILE]
    assert [cell.ends for cell in plain.column("mAP")] == [None] * 3
    interval = hostile.groups[0].rows[2].cells[0].interval
    assert full.column("mAP")[0].ends[1:] == (interval.low, interval.high)
    assert [column.head for column in full.shown] == ["run", "mAP"]
