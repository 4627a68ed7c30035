"""The page of the nights in a real browser: nothing sticks out or is cut off, and everything can be read."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import example_nights as nights
import numpy as np
import pytest
from PIL import Image

from reid_dist.nightly.page import render_nights

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
LONG = "unbroken" * 25
WIDTHS = (320, 390, 768, 1280)
LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"

# Opens everything that is folded, and results for each frame; `found` is what a measurement fills.
MEASURE = """
onload = () => {
  const results = [...document.querySelectorAll('iframe')].map(frame => {
    const page = frame.contentDocument, root = page.documentElement, view = frame.contentWindow;
    page.querySelectorAll('details').forEach(each => { each.open = true; });
    const found = [];
    MEASUREMENT
    return found;
  });
  const result = document.createElement('pre');
  result.id = 'result';
  result.textContent = JSON.stringify(results);
  document.body.replaceChildren(result);
};
"""

STICKS_OUT = """
found.push([root.scrollWidth, root.clientWidth]);
"""

# Texts beyond the edge of their sheet, or hidden by their element; scrolling elements are exempt.
CUT_OFF = """
const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest('.scroll') || parent.closest('h3.title')) continue;
  const range = page.createRange();
  range.selectNodeContents(node);
  const text = range.getBoundingClientRect();
  const sheet = (parent.closest('.badge, .cell, .sheet, .case, .verdict, .job') || page.body).getBoundingClientRect();
  if (text.width && (text.left < sheet.left - 1 || text.right > sheet.right + 1)) found.push(node.data.trim());
}
"""

# The lowest ratio of contrast of any text to what lies behind it, by the formula of WCAG 2.
CONTRAST = """
const parse = colour => {
  const parts = colour.match(/[\\d.]+/g).map(Number);
  return [parts[0], parts[1], parts[2], parts.length > 3 ? parts[3] : 1];
};
const luminance = colour => {
  const [r, g, b] = colour.slice(0, 3).map(value => {
    value /= 255;
    return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = element => {
  for (let each = element; each; each = each.parentElement) {
    const colour = parse(view.getComputedStyle(each).backgroundColor);
    if (colour[3] === 1) return colour;
  }
  throw Error('nothing is behind');
};
const walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const node = walker.currentNode, parent = node.parentElement;
  if (!node.data.trim() || parent.closest('title')) continue;
  const style = view.getComputedStyle(parent);
  const ink = parse(parent.closest('svg') ? style.fill : style.color);
  const [high, low] = [luminance(ink), luminance(behind(parent))].sort((a, b) => b - a);
  found.push([Math.round(100 * (high + 0.05) / (low + 0.05)) / 100, node.data.trim().slice(0, 40)]);
}
"""


def browse(address: str, profile: Path, *options: str) -> str:
    assert BROWSER is not None
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def measured(pages: list[str], widths: tuple[int, ...], measurement: str, tmp_path: Path, *options: str) -> list[Any]:
    """What a measurement found, for each page at each width: the page runs no script, so a frame around it does."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>'
        for page in pages
        for width in widths
    )
    wrapper = tmp_path / "frames.html"
    scheme = '<meta name="color-scheme" content="light dark">'
    script = MEASURE.replace("MEASUREMENT", measurement)
    wrapper.write_text(f"<!DOCTYPE html>{scheme}<title>frames</title><body>{frames}<script>{script}</script>")
    dom = browse(wrapper.as_uri(), tmp_path / "profile", "--dump-dom", *options)
    result = re.search(r'<pre id="result">(.*?)</pre>', dom, re.DOTALL)
    assert result is not None
    found: list[Any] = json.loads(html.unescape(result[1]))
    assert len(found) == len(pages) * len(widths)
    return found


@pytest.fixture(scope="module")
def page() -> str:
    return render_nights(nights.eventful_nights(), suite="nightly")


def test_no_page_is_wider_than_its_window(page: str, tmp_path: Path) -> None:
    found = measured(
        [page, render_nights(nights.nights_full_of(LONG, folder=LONG), suite="w" * 200)], WIDTHS, STICKS_OUT, tmp_path
    )
    assert [shown for ((_, shown),) in found] == [*WIDTHS, *WIDTHS]
    assert [needed for ((needed, _),) in found] == [*WIDTHS, *WIDTHS]


@pytest.mark.slow
def test_nothing_is_cut_off(page: str, tmp_path: Path) -> None:
    assert measured([page], WIDTHS, CUT_OFF, tmp_path) == [[]] * len(WIDTHS)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_every_text_contrasts_with_its_background(page: str, tmp_path: Path, scheme: str) -> None:
    (texts,) = measured([page], (1280,), CONTRAST, tmp_path, scheme)
    assert len(texts) > 1000
    weak = sorted((ratio, text) for ratio, text in texts if ratio < 4.5)
    assert weak == []


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "dark"), [(LIGHT, False), (DARK, True)], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280], ids=["phone", "desktop"])
def test_the_page_follows_the_scheme_of_the_reader(
    page: str, tmp_path: Path, scheme: str, dark: bool, width: int
) -> None:
    # A window of a browser is never as narrow as a phone; a frame is.
    frame, picture = tmp_path / "frame.html", tmp_path / "page.png"
    frame.write_text(
        '<!DOCTYPE html><meta name="color-scheme" content="light dark"><style>body{margin:0;overflow:hidden}</style>'
        f'<iframe style="width:{width}px;height:2400px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    )
    browse(
        frame.as_uri(), tmp_path / "profile", scheme, f"--window-size={max(width, 500)},2400", f"--screenshot={picture}"
    )
    pixels = np.asarray(Image.open(picture).convert("RGB"))[:, :width] / 255
    luminance = pixels.mean(axis=2)
    background, ink = float(np.median(luminance)), (luminance > 0.6 if dark else luminance < 0.4)
    assert (background < 0.2) if dark else (background > 0.9)
    assert 0.01 < ink.mean() < 0.3, "text is visible on the background"
    # Red of what is worse, purple of an alarm: tones of their own in both schemes.
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    assert np.count_nonzero((red > green + 0.25) & (red > blue + 0.25)) > 500
    assert np.count_nonzero((blue > green + 0.15) & (red > green + 0.08)) > 500


@pytest.mark.slow
def test_a_link_to_a_job_unfolds_it(page: str, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(page, encoding="utf-8")
    target = (
        r'<details class="job \w+"( open="")?>\s*<summary>(?:(?!</summary>).)*osnet/market1501/plain</span></summary>'
    )
    opened = []
    for place in ("", "#job-7"):
        found = re.search(target, browse(path.as_uri() + place, tmp_path / "profile", "--dump-dom"), re.DOTALL)
        assert found is not None
        opened.append(found[1] is not None)
    assert opened == [False, True]
