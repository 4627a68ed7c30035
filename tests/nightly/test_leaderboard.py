"""The leaderboard: newest accepted values, order, trends, and the page in a browser."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import replace
from pathlib import Path

import example_nights as nights
import pytest
from small_nights import run_night, save_model, write_suite
from support.browser import assert_no_page_overflows, browse, needs_browser

from reid_dist.errors import InputError, StoreNotFoundError
from reid_dist.nightly.history import History
from reid_dist.nightly.history.history_values import Estimate, State
from reid_dist.nightly.page.leaderboard import FORMATS, board_table, boards, leaderboard_html
from reid_dist.nightly.page.trend_charts import sparkline
from reid_dist.nightly.wording import SIGNS
from reid_dist.reports import Report
from reid_dist.reports.tables import compare_runs
from reid_dist.reports.tables.run_table import NEAR_BEST


def entry(model: str, night: int, value: float, **more):
    made = nights.entry(model, night=night, **more)
    return replace(made, metrics={"mAP": Estimate(value, value - 0.01, value + 0.01), "EER": Estimate(1 - value)})


def history():
    """Two models over three nights; the last value of the better one is worse and not accepted."""
    bad = nights.finding("accuracy", "worse")
    newest = entry("strong", 2, 0.7)
    newest = replace(newest, findings=(bad, *(each for each in newest.findings if each.gate != "accuracy")))
    return [
        nights.run(0, [entry("weak", 0, 0.5), entry("strong", 0, 0.8)]),
        nights.run(1, [entry("weak", 1, 0.55), entry("strong", 1, 0.81)]),
        nights.run(2, [entry("weak", 2, 0.6), newest]),
    ]


def test_the_newest_accepted_values_in_order() -> None:
    (board,) = boards(history())
    assert (board.dataset, board.job, board.metrics) == ("market1501", "plain", ("mAP",))
    assert [(each.rank, each.best, each.near_best) for each in board.standings] == [
        (1, {"mAP"}, frozenset()),
        (2, frozenset(), frozenset()),
    ]
    found = [
        (each.model, each.entry.metrics["mAP"].value, each.newest.metrics["mAP"].value) for each in board.standings
    ]
    assert found == [("strong", 0.81, 0.7), ("weak", 0.6, 0.6)]
    assert board.standings[0].past["mAP"] == (0.8, 0.81, 0.7)
    table = board_table(board, Path(), drawn=True)
    assert [cell.is_best for cell in table.column("mAP")] == [True, False]
    assert [cell.value for cell in table.column("Trend of mAP")] == pytest.approx([-0.1, 0.1])
    sign = SIGNS["worse"]
    assert f'data-key="strong {sign.mark} newest: {sign.words}"' in leaderboard_html([board], Path())
    (by_errors,) = boards(history(), ["EER"])
    assert [each.model for each in by_errors.standings] == ["strong", "weak"]


def test_an_accepted_fall_counts() -> None:
    nightly = history()
    weak, strong = nightly[2].entries
    nightly[2] = replace(nightly[2], entries=(weak, replace(strong, accepted="new labels")))
    assert boards(nightly)[0].standings[0].entry.metrics["mAP"].value == 0.7


def test_values_of_other_jobs_are_ranked_apart() -> None:
    nightly = history()
    weak, strong = nightly[1].entries
    nightly[1] = replace(nightly[1], entries=(weak, replace(strong, job_digest="f" * 64)))
    found = [[(each.rank, each.model) for each in board.standings] for board in boards(nightly)]
    assert found == [[(1, "weak")], [(1, "strong")]]


def test_equal_values_share_a_rank() -> None:
    entries = [entry(name, 0, value) for name, value in (("a", 0.5), ("b", 0.7), ("c", 0.7), ("d", 0.6))]
    entries.append(replace(entry("e", 0, 0.1), metrics={"CMC@1": Estimate(0.3)}))
    (board,) = boards([nights.run(0, entries)], ["mAP"])
    assert [(each.rank, each.model) for each in board.standings] == [
        (1, "b"), (1, "c"), (3, "d"), (4, "a"), (None, "e")
    ]  # fmt: skip


@pytest.mark.slow
def test_values_near_the_best_have_a_dagger_and_reports_a_link(tmp_path: Path) -> None:
    """As a table of these runs has them; a model without a report is not tested, and named."""
    models = {name: save_model(tmp_path / name, noise, seed) for name, noise, seed in (
        ("a", 1.2, 0), ("b", 1.2, 1), ("c", 3.0, 2), ("pruned", 3.2, 3)
    )}  # fmt: skip
    run = run_night(write_suite(tmp_path, models, {"plain": {}}))
    with History.open(tmp_path / "nights.db", create=False) as opened:

        def report(number: int, name: str) -> Report:
            if name == "pruned/set/plain":
                raise StoreNotFoundError("pruned")
            return opened.report(number, name)

        (board,) = boards([run], reports=report)
        reports = {name: opened.report(1, f"{name}/set/plain") for name in ("a", "b", "c")}
    assert board.untested == ("pruned",)
    table = compare_runs(list(reports.values()), names=list(reports), metrics=["mAP", "CMC@1", "mINP"])
    rows = {row.name: dict(zip(table.metrics, row.cells, strict=True)) for row in table.groups[0].rows}
    for standing in board.standings[:3]:
        assert standing.near_best == {name for name in board.metrics if rows[standing.model][name].is_near_best}
    first, second, third, last = board.standings
    assert {first.model, second.model} == {"a", "b"}
    assert ("mAP" in second.near_best, third.near_best, last.near_best) == (True, frozenset(), frozenset())
    page, text, table_text = (FORMATS[form]([board], tmp_path / "boards") for form in (".html", ".md", ".csv"))
    for standing in board.standings:
        path = f"./../nights/{standing.entry.folder}/report.html"
        assert (tmp_path / "boards" / path).resolve().is_file()
        assert f'href="{path}"' in page
        assert f"[1](<{path}>)" in text
    rows_of_csv = list(csv.DictReader(io.StringIO(table_text)))
    assert [row["Model"] for row in rows_of_csv] == [each.model for each in board.standings]
    assert [row["mAP mark"] for row in rows_of_csv] == ["", NEAR_BEST, "", ""]


@pytest.mark.parametrize("name", ["a|b", "=1+1", "<b>x</b>", "*x*"])
def test_foreign_names_stay_texts(name: str, tmp_path: Path) -> None:
    found = boards([nights.run(0, [entry(name, 0, 0.5), entry("strong", 0, 0.8)])])
    lines = FORMATS[".md"](found, tmp_path).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1
    assert "<b>" not in "".join(lines)
    assert "<b>x" not in leaderboard_html(found, tmp_path)
    (row,) = [row for row in csv.DictReader(io.StringIO(FORMATS[".csv"](found, tmp_path))) if row["Rank"] == "2"]
    assert row["Model"] == ("'=1+1" if name.startswith("=") else name)


def test_models_without_an_accepted_value_are_left_out() -> None:
    failed = replace(nights.entry("broken"), state="failed", reason="no file", metrics={}, findings=())
    assert failed.state != State.DONE
    nightly = [nights.run(0, [entry("weak", 0, 0.5), failed])]
    assert [each.model for each in boards(nightly)[0].standings] == ["weak"]
    for nothing in ([], [nights.run(0, [failed])]):
        with pytest.raises(InputError, match="no job of this history has an accepted value"):
            boards(nothing)


def test_a_trend_has_gaps() -> None:
    drawn = sparkline("mAP", [0.5, 0.6, None, 0.7])
    assert drawn.count("<polyline") == 2
    assert "50.00% to 70.00%" in html.unescape(drawn)
    assert sparkline("mAP", [None, None]) == ""


_SORTED = """<iframe srcdoc="{page}"></iframe><script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  const names = () => [...page.querySelectorAll("tbody th")].map((each) => each.dataset.key.split(" ")[0]).join(" ");
  const out = [names()];
  for (const column of [2, 2, 1]) {{
    page.querySelectorAll("thead button")[column].click();
    out.push(names());
  }}
  document.body.innerHTML = "<p id=out>" + out.join(", ") + "</p>";
}};
</script>"""


@pytest.mark.slow
@needs_browser
def test_heads_sort(tmp_path: Path) -> None:
    page = tmp_path / "sorted.html"
    page.write_text(_SORTED.format(page=html.escape(leaderboard_html(boards(history()), tmp_path))))
    shown = browse(page.as_uri(), tmp_path / "profile", "--dump-dom")
    found = re.search(r'<p id="out">([^<]*)</p>', shown)
    # By falling mAP from the start: a click turns it, another turns it back; then by falling name.
    assert found is not None, shown[-2000:]
    assert found[1] == "strong weak, weak strong, strong weak, weak strong"


@needs_browser
@pytest.mark.slow
def test_no_page_is_wider_than_its_window(tmp_path: Path) -> None:
    long = "unbroken" * 30
    wide = [nights.run(0, [entry(long, 0, 0.5, dataset=long, job=long), entry("strong", 0, 0.8)])]
    pages = [leaderboard_html(boards(runs), tmp_path) for runs in (nights.eventful_nights(), wide)]
    assert_no_page_overflows(pages, (390, 420, 1280), tmp_path)
