"""Readers of pages, charts and consoles: nesting of tags, texts, tables, coordinates."""

from __future__ import annotations

import io
import itertools
import math
import re
from html.parser import HTMLParser

from reid_dist.reports import Report, print_report

VOID = {"meta", "br", "hr", "img", "link", "input", "col"}
SHAPES = {"line", "rect", "circle", "polyline", "polygon"}


class Page(HTMLParser):
    """Tags and texts of a page; a wrong nesting fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {self.open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> occurs twice"
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/> does not close itself in HTML"
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def assert_complete_and_offline(text: str) -> Page:
    """Identifiers and headings are consistent, and nothing is fetched; images are in the page itself."""
    page = Page(text)
    assert page.named("html") == [{"lang": "en"}]
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids)) > 5
    references = {attributes["aria-labelledby"] for _, attributes in page.tags if "aria-labelledby" in attributes}
    assert references <= set(ids)
    assert all(attributes.get("scope") in {"row", "col"} for attributes in page.named("th"))
    headings = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert headings[0] == 1
    assert headings.count(1) == 1
    assert max(after - before for before, after in itertools.pairwise(headings)) <= 1
    assert not page.named("script")
    assert not page.named("link")
    for tag, attributes in page.tags:
        assert not {"xlink:href", "srcset", "data", "action"} & set(attributes)
        assert str(attributes.get("href", "#")).startswith("#"), "links stay on the page"
        assert not any(name.startswith("on") for name in attributes)
        if "src" in attributes:
            assert tag == "img"
            assert str(attributes["src"]).startswith("data:image/jpeg;base64,")
    assert "url(" not in text
    assert "@import" not in text
    (policy,) = (a["content"] for a in page.named("meta") if a.get("http-equiv") == "Content-Security-Policy")
    images = "; img-src data:" if page.named("img") else ""
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'{images}"
    for svg in drawings(text):
        assert_drawn_inside(svg)
    return page


def assert_no_markup(page: Page) -> None:
    """No text that a report was given has become a tag or an attribute."""
    assert not page.named("script")
    assert not page.named("img")
    assert not any("onerror" in attributes for _, attributes in page.tags)


def drawings(text: str) -> list[str]:
    """Every chart of a page."""
    return re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)


def line_points(svg: str) -> list[tuple[float, float]]:
    """Coordinates of the only line of a chart."""
    (found,) = re.findall(r'<polyline[^>]*points="([^"]*)"', svg)
    return [(float(x), float(y)) for x, y in (point.split(",") for point in found.split())]


def printed(report: Report) -> str:
    """The report as a file gets it."""
    stream = io.StringIO()
    print_report(report, stream)
    return stream.getvalue()


def coordinates(svg: str) -> list[float]:
    """Every number that places something in a chart."""
    parts = re.findall(r'\b(?:x|y|x1|x2|y1|y2|cx|cy|width|height|points)="([^"]*)"', svg)
    return [float(number) for part in parts for number in re.split(r"[ ,]", part)]


def assert_drawn_inside(svg: str) -> None:
    page = Page(svg)
    numbers = coordinates(svg)
    (frame,) = page.named("svg")
    width = float(str(frame["viewbox"]).split()[2])
    assert numbers
    assert all(math.isfinite(number) and 0 <= number <= width for number in numbers)
    assert frame["role"] == "img"
    assert frame["aria-label"]


class _Tables(HTMLParser):
    """Collects the cells of every table, row by row."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[str]]] = []
        self.cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"th", "td"}:
            self.tables[-1][-1].append("")
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        self.cell = self.cell and tag not in {"th", "td"}

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.tables[-1][-1][-1] += data


def section(text: str, name: str) -> str:
    """The part of a page under the heading of this id, to the next one of its kind."""
    inside = text.split(f'id="{name}"')[1].split("<h2")[0]
    return inside.split('<section class="part"')[0] if name.startswith("breakdown-") else inside


def tables(text: str) -> list[list[list[str]]]:
    """Every table in a part of a page: rows of cells, the head among them."""
    return [[[" ".join(cell.split()) for cell in row] for row in table] for table in _Tables(text).tables]
