"""The page in a real browser: nothing sticks out sideways, on a phone as on a desk, and dark is dark."""

from __future__ import annotations

import dataclasses
import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from full_report import confidence, write_images
from PIL import Image

from reid_dist.reports import ImageSet, Report, make_pictures

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")

QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def browse(page: Path, profile: Path, *options: str) -> str:
    assert BROWSER is not None
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", *options, page.as_uri()]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


@pytest.fixture
def wide_report(make_report: Callable[..., Report], tmp_path: Path) -> Report:
    """Long unbroken texts, and very wide tables and pictures: what pushes a page out of its frame."""
    long = "unbroken" * 30
    plain = make_report(n_query=50, n_invalid=5)
    n = 24
    pairs = {
        "query_camid": range(n),
        "gallery_camid": [long + str(camera) for camera in range(n)],
        "n_valid": np.full((n, n), 1_000_000),
        long: np.full((n, n), 0.5),
    }
    names = write_images(tmp_path / "wide", 3, size=(900, 90))
    pictures = make_pictures(plain, ImageSet(names * 17), ImageSet(names * 6000), n_hardest=2, root=tmp_path / "wide")
    assert pictures.queries
    pictures = dataclasses.replace(pictures, note=long)
    return make_report(
        n_query=50,
        n_invalid=5,
        metrics={**plain.metrics, long: 0.5},
        notes=[long],
        protocol={**plain.protocol, "name": long, long: long},
        environment={long: long},
        timing={**plain.timing, long: 1.0},
        confidence=confidence([*plain.metrics, long]),
        bounds={long + long: [0.25, 0.5]},
        ties={"rule": "distance", "optimistic": {long: 1.0}, "pessimistic": {long: 0.0}},
        verification={"n_genuine": 10**18, "thresholds": {long: 0.125}},
        breakdowns={
            "camera_pair": pairs,
            "camera": {"camid": [long], "n_query": [1], "n_valid": [1], "mAP": [0.5]},
            long: {"value": [long], "n_query": [1], "n_valid": [1], **{f"{long}@{k}": [0.5] for k in range(9)}},
            "gallery_size": {"order": "stored", "seed": 0, "n_rows": [1, 10**9], long: [0.5, 0.25]},
        },
        pictures=pictures,
    )


@pytest.mark.slow
def test_no_page_overflows(report: Report, full_report: Report, wide_report: Report, tmp_path: Path) -> None:
    # The page itself runs no script (its policy forbids it), so a frame around it measures; every width at once.
    widths = (320, 360, 600, 1200)
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page.to_html())}"></iframe>'
        for page in (report, full_report, wide_report)
        for width in widths
    )
    script = (
        "onload = () => { document.title = [...document.querySelectorAll('iframe')].map(frame => {"
        " const root = frame.contentDocument.documentElement; return root.scrollWidth + '/' + root.clientWidth;"
        "}).join(' '); }"
    )
    wrapper = tmp_path / "frames.html"
    wrapper.write_text(f"<!DOCTYPE html><title>unmeasured</title><body>{frames}<script>{script}</script>")
    dom = browse(wrapper, tmp_path / "profile", "--dump-dom")
    measured = re.search(r"<title>([^<]*)</title>", dom)
    assert measured is not None
    pairs = [tuple(map(int, pair.split("/"))) for pair in measured[1].split()]
    assert [shown for _, shown in pairs] == [*widths, *widths, *widths]
    assert [needed for needed, _ in pairs] == [*widths, *widths, *widths]


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "dark"), [(1, False), (0, True)], ids=["light", "dark"])
def test_the_page_follows_the_scheme_of_the_reader(report: Report, tmp_path: Path, scheme: int, dark: bool) -> None:
    page, picture = tmp_path / "report.html", tmp_path / "page.png"
    page.write_text(report.to_html(), encoding="utf-8")
    options = [f"--blink-settings=preferredColorScheme={scheme}", "--window-size=1000,1400", f"--screenshot={picture}"]
    browse(page, tmp_path / "profile", *options)
    luminance = np.asarray(Image.open(picture).convert("RGB")).mean(axis=2) / 255
    background, ink = float(np.median(luminance)), (luminance > 0.6 if dark else luminance < 0.4)
    assert (background < 0.2) if dark else (background > 0.9)
    assert 0.005 < ink.mean() < 0.3, "text and charts are visible on the background"


@pytest.mark.slow
def test_a_printed_page_is_short(full_report: Report, tmp_path: Path) -> None:
    # Pictures of five queries, open on the screen, and every other part of a page.
    page, printed = tmp_path / "report.html", tmp_path / "page.pdf"
    page.write_text(full_report.to_html(), encoding="utf-8")
    browse(page, tmp_path / "profile", "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    n_pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed.read_bytes()))
    assert 4 < n_pages <= 14


def test_printing_keeps_columns_and_cuts_nothing(full_report: Report, wide_report: Report, tmp_path: Path) -> None:
    # The rules for print, used on a screen as wide as the print of a page of A4 or letter paper.
    width = 690
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="'
        f'{html.escape(page.to_html().replace("@media print", "@media all"))}"></iframe>'
        for page in (full_report, wide_report)
    )
    script = (
        "onload = () => { document.title = [...document.querySelectorAll('iframe')].map(frame => {"
        " const page = frame.contentDocument, style = (name, rule) => [...new Set([...page.querySelectorAll(name)]"
        ".map(each => frame.contentWindow.getComputedStyle(each)[rule]))];"
        " const columns = style('.pair', 'gridTemplateColumns').map(each => each.split(' ').length);"
        " return [page.documentElement.scrollWidth, Math.max(...columns), style('tr', 'breakInside'),"
        " style('h2', 'breakAfter'), style('.scroll', 'overflowX')].join('/'); }).join(' '); }"
    )
    wrapper = tmp_path / "frames.html"
    wrapper.write_text(f"<!DOCTYPE html><title>unmeasured</title><body>{frames}<script>{script}</script>")
    measured = re.search(r"<title>([^<]*)</title>", browse(wrapper, tmp_path / "profile", "--dump-dom"))
    assert measured is not None
    whole, wide = measured[1].split()
    assert whole == f"{width}/2/avoid/avoid/visible"
    assert wide.split("/", 1)[1] == "2/avoid/avoid/visible"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("width", [390, 1200], ids=["phone", "desk"])
def test_pictures_are_shown_and_framed_in_three_ways(full_report: Report, tmp_path: Path, width: int) -> None:
    script = (
        "onload = () => { const page = document.querySelector('iframe').contentDocument;"
        " const images = [...page.querySelectorAll('.tile img')];"
        " const styles = new Set([...page.querySelectorAll('.tile')].map(tile => tile.className + '='"
        " + getComputedStyle(tile.querySelector('img, .missing')).borderTopStyle));"
        " document.title = [images.length, images.filter(image => image.naturalWidth > 0 &&"
        " image.getBoundingClientRect().height > 60).length, [...styles].sort().join(' ')].join('|'); }"
    )
    wrapper = tmp_path / "frame.html"
    wrapper.write_text(
        "<!DOCTYPE html><title>unmeasured</title><body>"
        f'<iframe style="width:{width}px;height:900px" srcdoc="{html.escape(full_report.to_html())}"></iframe>'
        f"<script>{script}</script>"
    )
    dom = browse(wrapper, tmp_path / "profile", "--dump-dom")
    measured = re.search(r"<title>([^<]*)</title>", dom)
    assert measured is not None
    there, shown, styles = measured[1].split("|")
    assert full_report.pictures is not None
    given = [tile for ranked in full_report.pictures.queries for tile in (ranked.query, *ranked.items)]
    assert int(there) == int(shown) == sum(tile.image is not None for tile in given) > 40
    assert styles == "tile junk=dotted tile query=double tile right=solid tile wrong=dashed"
