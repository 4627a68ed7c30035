"""The page of the nights in a real browser: nothing sticks out or is cut off, and everything can be read."""

from __future__ import annotations

import html
import re
from pathlib import Path

import example_nights as nights
import numpy as np
import pytest
from support.browser import (
    DARK,
    LIGHT,
    assert_follows_scheme,
    assert_no_page_overflows,
    browse,
    measured,
    needs_browser,
    screenshot,
)

from reid_dist.nightly.page.document import render_nights

pytestmark = needs_browser

LONG = "unbroken" * 25
WIDTHS = (320, 390, 768, 1280)

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


@pytest.fixture(scope="module")
def page() -> str:
    return render_nights(nights.eventful_nights())


@pytest.mark.slow
def test_no_page_is_wider_than_its_window(page: str, tmp_path: Path) -> None:
    wide = render_nights(nights.nights_full_of(LONG, folder=LONG))
    assert_no_page_overflows([page, wide], WIDTHS, tmp_path)


@pytest.mark.slow
def test_printed_tables_stay_on_the_page(page: str, tmp_path: Path) -> None:
    # The rules for print, used on a screen as wide as the print of a page of A4 or letter paper, with all jobs open.
    printed = page.replace("@media print", "@media all")
    beyond = """
    found.push(root.scrollWidth, [...page.querySelectorAll('table')].map(each => each.getBoundingClientRect().right)
      .filter(right => right > root.clientWidth).length);
    """
    assert measured([printed], [690], beyond, tmp_path) == [[690, 0]]


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
    frame = tmp_path / "frame.html"
    frame.write_text(
        '<!DOCTYPE html><meta name="color-scheme" content="light dark"><style>body{margin:0;overflow:hidden}</style>'
        f'<iframe style="width:{width}px;height:2400px;border:0" srcdoc="{html.escape(page)}"></iframe>'
    )
    pixels = screenshot(frame.as_uri(), tmp_path, scheme, width, 2400)
    assert_follows_scheme(pixels, dark, 0.01)
    # Red of what is worse, purple of an alarm: tones of their own in both schemes.
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    assert np.count_nonzero((red > green + 0.25) & (red > blue + 0.25)) > 500
    assert np.count_nonzero((blue > green + 0.15) & (red > green + 0.08)) > 500


@pytest.mark.slow
def test_a_link_to_a_job_unfolds_it(page: str, tmp_path: Path) -> None:
    path = tmp_path / "index.html"
    path.write_text(page, encoding="utf-8")
    target = r'<details class="job same"( open="")?>'
    opened = []
    for place in ("", "#job-7"):
        found = re.search(target, browse(path.as_uri() + place, tmp_path / "profile", "--dump-dom"), re.DOTALL)
        assert found is not None
        opened.append(found[1] is not None)
    assert opened == [False, True]
