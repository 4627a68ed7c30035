"""The page in a real browser: nothing sticks out sideways, on a phone as on a desk, and dark is dark."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from full_report import confidence, write_images
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

from reid_dist import FeatureSet, operating_points
from reid_dist.core.findings import info
from reid_dist.reports import ImageSet, Report, make_pictures

pytestmark = needs_browser


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
    query, gallery = (ImageSet(np.array(names * times), np.arange(3 * times)) for times in (17, 6000))
    pictures = make_pictures(plain, query, gallery, n_hardest=2, root=tmp_path / "wide")
    assert pictures.queries
    pictures = dataclasses.replace(pictures, note=long)
    return make_report(
        n_query=50,
        n_invalid=5,
        metrics={**plain.metrics, long: 0.5},
        notes=[info("text", text=long)],
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
    rng = np.random.default_rng(0)
    sides = [FeatureSet.from_arrays(rng.standard_normal((n, 4)), rng.integers(0, 9, n)) for n in (30, 200)]
    points = operating_points(*sides, protocol="no_cameras", prior=0.01)
    with_points = dataclasses.replace(report, operating_points=points)
    pages = [page.to_html() for page in (report, full_report, wide_report, points, with_points)]
    assert_no_page_overflows(pages, (320, 360, 600, 1200), tmp_path)


@pytest.mark.slow
def test_no_word_is_broken_on_a_phone(report: Report, full_report: Report, tmp_path: Path) -> None:
    # Words are letters alone: file names break after their separators, and digests anywhere.
    words = """
    const range = page.createRange(), walker = page.createTreeWalker(page.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode;
      if (node.parentElement.closest('svg, style, code, .hash') || /[0-9a-f]{24}/.test(node.data)) continue;
      for (const word of node.data.matchAll(/[A-Za-z]{2,}/g)) {
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        const lines = new Set([...range.getClientRects()].map(each => Math.round(each.top)));
        if (lines.size > 1) found.push(word[0]);
      }
    }
    """
    pages = [each.to_html() for each in (report, full_report)]
    assert measured(pages, [420, 1300], words, tmp_path) == [[]] * 4


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "dark"), [(LIGHT, False), (DARK, True)], ids=["light", "dark"])
def test_the_page_follows_the_scheme_of_the_reader(report: Report, tmp_path: Path, scheme: str, dark: bool) -> None:
    page = tmp_path / "report.html"
    page.write_text(report.to_html(), encoding="utf-8")
    assert_follows_scheme(screenshot(page.as_uri(), tmp_path, scheme, 1000, 1400), dark, 0.005)


@pytest.mark.slow
def test_a_printed_page_is_short(full_report: Report, tmp_path: Path) -> None:
    # Pictures of five queries, open on the screen, and every other part of a page.
    page, printed = tmp_path / "report.html", tmp_path / "page.pdf"
    page.write_text(full_report.to_html(), encoding="utf-8")
    browse(page.as_uri(), tmp_path / "profile", "--no-pdf-header-footer", f"--print-to-pdf={printed}")
    n_pages = len(re.findall(rb"/Type\s*/Page\b(?!s)", printed.read_bytes()))
    assert 4 < n_pages <= 14
