"""The leaderboard: newest accepted values, order, trends, and the page in a browser."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from pathlib import Path

import example_nights as nights
import pytest
from browser import assert_no_page_overflows, browse, needs_browser

from reid_dist.errors import InputError
from reid_dist.nightly.history.history_values import DONE, Estimate
from reid_dist.nightly.page.leaderboard import boards, render_leaderboard
from reid_dist.nightly.page.trend_charts import sparkline


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
    assert (board.dataset, board.job, board.metrics, board.note) == ("market1501", "plain", ("mAP",), "")
    found = [
        (each.model, each.entry.metrics["mAP"].value, each.newest.metrics["mAP"].value) for each in board.standings
    ]
    assert found == [("strong", 0.81, 0.7), ("weak", 0.6, 0.6)]
    assert board.standings[0].past["mAP"] == (0.8, 0.81, 0.7)
    (by_errors,) = boards(history(), ["EER"])
    assert [each.model for each in by_errors.standings] == ["strong", "weak"]


def test_an_accepted_fall_counts() -> None:
    nightly = history()
    weak, strong = nightly[2].entries
    nightly[2] = replace(nightly[2], entries=(weak, replace(strong, accepted="new labels")))
    assert boards(nightly)[0].standings[0].entry.metrics["mAP"].value == 0.7


def test_other_labels_do_not_compare() -> None:
    nightly = history()
    weak, strong = nightly[1].entries
    nightly[1] = replace(nightly[1], entries=(weak, replace(strong, job_digest="f" * 64)))
    assert "do not compare" in boards(nightly)[0].note


def test_models_without_an_accepted_value_are_left_out() -> None:
    failed = replace(nights.entry("broken"), state="failed", reason="no file", metrics={}, findings=())
    assert failed.state != DONE
    nightly = [nights.run(0, [entry("weak", 0, 0.5), failed])]
    assert [each.model for each in boards(nightly)[0].standings] == ["weak"]
    for nothing in ([], [nights.run(0, [failed])]):
        with pytest.raises(InputError, match="no job of this history has an accepted value"):
            render_leaderboard(nothing)


def test_a_trend_has_gaps() -> None:
    drawn = sparkline("mAP", [0.5, 0.6, None, 0.7])
    assert drawn.count("<polyline") == 2
    assert "50.00 % to 70.00 %" in html.unescape(drawn)
    assert sparkline("mAP", [None, None]) == ""


_SORTED = """<iframe srcdoc="{page}"></iframe><script>
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  const names = () => [...page.querySelectorAll("tbody tr")].map((row) => row.cells[0].dataset.key).join(" ");
  const out = [names()];
  for (const column of [1, 1, 0]) {{
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
    page.write_text(_SORTED.format(page=html.escape(render_leaderboard(history()))))
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
    pages = [render_leaderboard(nights.eventful_nights()), render_leaderboard(wide)]
    assert_no_page_overflows(pages, (390, 1280), tmp_path)
