"""Pages in a real browser, and measurements of them.

Pages run no script (their policy forbids it), so a page around them holds each in frames of several widths and
measures those.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no chromium on this machine")

LIGHT, DARK = "--blink-settings=preferredColorScheme=1", "--blink-settings=preferredColorScheme=0"
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

# Opens everything that is folded, and lists results for each frame; a measurement appends to `found`.
_MEASURE = """
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


def browse(address: str, profile: Path, *options: str) -> str:
    """Open an address, and return what the browser prints."""
    assert BROWSER is not None
    command = [BROWSER, *QUIET, f"--user-data-dir={profile}", *options, address]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def measured(pages: Sequence[str], widths: Sequence[int], measurement: str, tmp_path: Path, *options: str) -> list[Any]:
    """Results of a measurement (JavaScript) of each page at each width; folded parts are open."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{html.escape(page)}"></iframe>'
        for page in pages
        for width in widths
    )
    wrapper = tmp_path / "frames.html"
    scheme = '<meta name="color-scheme" content="light dark">'
    script = _MEASURE.replace("MEASUREMENT", measurement)
    wrapper.write_text(f"<!DOCTYPE html>{scheme}<title>frames</title><body>{frames}<script>{script}</script>")
    dom = browse(wrapper.as_uri(), tmp_path / "profile", "--dump-dom", *options)
    result = re.search(r'<pre id="result">(.*?)</pre>', dom, re.DOTALL)
    assert result is not None
    found: list[Any] = json.loads(html.unescape(result[1]))
    assert len(found) == len(pages) * len(widths)
    return found


def assert_no_page_overflows(pages: Sequence[str], widths: Sequence[int], tmp_path: Path) -> None:
    """No page is wider than its window."""
    found = measured(pages, widths, "found.push([root.scrollWidth, root.clientWidth]);", tmp_path)
    assert [shown for ((_, shown),) in found] == [*widths] * len(pages)
    assert [needed for ((needed, _),) in found] == [*widths] * len(pages)


def screenshot(address: str, tmp_path: Path, scheme: str, width: int, height: int) -> np.ndarray:
    """Pixels of a page in a colour scheme, (height, width, 3), from 0 to 1."""
    picture = tmp_path / "page.png"
    browse(
        address, tmp_path / "profile", scheme, f"--window-size={max(width, 500)},{height}", f"--screenshot={picture}"
    )
    return np.asarray(Image.open(picture).convert("RGB"))[:, :width] / 255


def assert_follows_scheme(pixels: np.ndarray, dark: bool, least_ink: float) -> None:
    """The background is light or dark, and text and charts are visible on it."""
    luminance = pixels.mean(axis=2)
    background, ink = float(np.median(luminance)), (luminance > 0.6 if dark else luminance < 0.4)
    assert (background < 0.2) if dark else (background > 0.9)
    assert least_ink < ink.mean() < 0.3, "text and charts are visible on the background"
