"""Charts in a page: the drawing, and links to it and to its values as files, which the page holds itself."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from reid_dist.reports.plots.chart import COLOURS, DASHES, Chart
from reid_dist.reports.plots.chart_svg import draw
from reid_dist.reports.tabular.table import Table


class Figure(NamedTuple):
    """A chart of a page, with its caption and a table of some of its values."""

    chart: Chart
    caption: str
    table: Table | None = None


_RULE = re.compile(r"^(\.plot[^{]*)\{([^}]*)\}$", re.MULTILINE)
_VARIABLE = re.compile(r"--([\w-]+): ([^;]+);")
_USE = re.compile(r"var\(--([\w-]+)\)")
# What addresses of the kind "data" hold as it is; no slash, so that nothing in the page looks like an address.
_PLAIN = " =:;,.()!*'"


def add_charts(environment: jinja2.Environment) -> None:
    """Give templates the filters ``drawn`` and ``files``, and the colours of charts."""
    environment.globals |= {"colours": COLOURS, "dashes": DASHES}
    environment.filters["drawn"] = draw
    # Colours of a file are those of a page on white.
    environment.filters["files"] = lambda chart: files(chart, environment.get_template("page.css").render)


def files(chart: Chart, style: Callable[[], str]) -> Markup:
    """Return links to the drawing and to the values; nothing for a chart without any."""
    if not chart.title:
        return Markup("")
    name = re.sub(r"[^\w@.=-]+", "_", chart.title)
    links = (("SVG", "image/svg+xml", svg_file(chart, style())), ("CSV", "text/csv;charset=utf-8", chart.to_csv()))
    shown = Markup("")
    for form, kind, content in links:
        address = Markup(quote(content, safe=_PLAIN, errors="replace"))  # noqa: S704
        shown += Markup('<a download="{}.{}" href="data:{},{}">{}</a>').format(name, form.lower(), kind, address, form)
    return Markup('<p class="files">{}</p>').format(shown)


def svg_file(chart: Chart, style: str) -> str:
    """Return a drawing as a file of its own, on white, with those rules of a style sheet that it needs."""
    drawing = str(draw(chart, hover=False))
    used = {name for names in re.findall(r'class="([^"]*)"', drawing) for name in names.split()}
    rules = (f"{selector} {{{body}}}" for classes, selector, body in _rules(style) if classes <= used)
    opening = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
    # In an address, other quotes take three characters; in texts of the drawing both are escaped.
    return drawing.replace("<svg ", opening, 1).replace(">", f"><style>{' '.join(rules)}</style>", 1).replace('"', "'")


@functools.lru_cache(2)
def _rules(style: str) -> list[tuple[set[str], str, str]]:
    """Return classes, selector and body of the rules for charts, colours written out: few programs know variables."""
    light: dict[str, str] = {}
    for name, colour in _VARIABLE.findall(style):  # the colours on white are the first ones
        light.setdefault(name, colour)
    return [
        (set(re.findall(r"\.([\w-]+)", selector)), selector, re.sub(_USE, lambda use: light[use[1]], body))
        for selectors, body in _RULE.findall(style)
        for selector in selectors.strip().split(", ")
    ]
