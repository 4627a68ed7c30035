"""The page in a real browser: nothing sticks out sideways, on a phone as on a desk, and dark is dark."""

from __future__ import annotations

import html
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reid_dist.reports import Report

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
def wide_report(make_report: Callable[..., Report]) -> Report:
    """Long unbroken texts everywhere: what pushes a page out of its frame."""
    long = "unbroken" * 30
    plain = make_report(n_query=50, n_invalid=5)
    return make_report(
        n_query=50,
        n_invalid=5,
        metrics={**plain.metrics, long: 0.5},
        notes=[long],
        protocol={**plain.protocol, "name": long, long: long},
        environment={long: long},
        timing={**plain.timing, long: 1.0},
    )


def test_nothing_sticks_out(report: Report, wide_report: Report, tmp_path: Path) -> None:
    # The page itself runs no script (its policy forbids it), so a frame around it measures; every width at once.
    widths = (320, 360, 600, 1200)
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page.to_html())}"></iframe>'
        for page in (report, wide_report)
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
    assert [shown for _, shown in pairs] == [*widths, *widths]
    assert [needed for needed, _ in pairs] == [*widths, *widths]


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
