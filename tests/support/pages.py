"""Readers of pages, charts and consoles: nesting of tags, texts, tables, coordinates."""

from __future__ import annotations

import io
import itertools
import math
import re
from html.parser import HTMLParser
from typing import TypeAlias

from reid_dist.reports import Report, print_report

VOID = {"meta", "br", "wbr", "hr", "img", "link", "input", "col"}
SHAPES = {"line", "rect", "circle", "path", "polyline", "polygon"}


Attributes: TypeAlias = dict[str, str | None]


class Page(HTMLParser):
    """Tags and texts of a page, and for each tag the span of its texts; a wrong nesting fails."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[int] = []
        self.tags: list[tuple[str, Attributes]] = []
        self.spans: list[slice] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == [], f"never closed: {[self.tags[place] for place in self.open]}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs), f"an attribute of <{tag}> occurs twice"
        self.tags.append((tag, dict(attrs)))
        self.spans.append(slice(len(self.words), len(self.words)))
        if tag not in VOID:
            self.open.append(len(self.tags) - 1)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in SHAPES, f"<{tag}/> does not close itself in HTML"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        place = self.open.pop()
        assert self.tags[place][0] == tag
        if tag in ("td", "th"):  # Cells are separate texts.
            self.words.append(" ")
        self.spans[place] = slice(self.spans[place].start, len(self.words))

    def handle_data(self, data: str) -> None:
        if self.words and self.tags and self.tags[-1][0] == "wbr":
            self.words[-1] += data  # a place where a word may break
        elif not self.open or self.tags[self.open[-1]][0] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def named(self, tag: str) -> list[Attributes]:
        return [attributes for name, attributes in self.tags if name == tag]

    def all(self, tag: str, css: str = "", within: slice | None = None) -> list[tuple[Attributes, str]]:
        """Attributes and texts of the tags of a name, of a class, inside a span."""
        return [
            (attributes, " ".join("".join(self.words[span]).split()))
            for (name, attributes), span in zip(self.tags, self.spans, strict=True)
            if name == tag
            and (not css or css in str(attributes.get("class")).split())
            and (within is None or within.start <= span.start < span.stop <= within.stop)
        ]


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
        assert_link_stays(attributes)
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


def assert_link_stays(attributes: Attributes) -> None:
    """A link leads to a place on the page, or is a file that the page holds itself."""
    address = str(attributes.get("href", "#"))
    is_file = "download" in attributes and address.startswith(("data:image/svg+xml,", "data:text/csv;charset=utf-8,"))
    assert address.startswith("#") or is_file, address


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
