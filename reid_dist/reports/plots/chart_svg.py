"""Charts as inline SVG that takes its colours from the page, and as files.

Written by hand rather than drawn by a plotting library: a chart here is some twenty elements whose colours are
CSS classes, so that one picture is right on a light and on a dark screen, its labels are text in the font of the
page, a value is shown under the pointer without scripts, and the bytes depend on the numbers alone.
Colour is never the only sign: lines have dashes and names, points have shapes, cells their numbers.

All coordinates are in units of a view box of 440 by 290 and more for the legend, which the page scales to its width.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from markupsafe import Markup

from reid_dist.core.formatting import shortened
from reid_dist.reports.plots.chart import (
    MOST_POINTS,
    Band,
    Bars,
    Chart,
    Dots,
    Float64,
    Layer,
    Line,
    Rule,
    Steps,
    runs,
    style_of,
)

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 30, 46
_LETTER = 7.4  # width of a digit in the bold font of the values
_LEGEND_ROW = 20
_MOST_TOUCHED = 25  # points of a line that show their value under the pointer
_MOST_DOTS = 120
_MOST_LETTERS = 46  # of a name in the legend
# Relative paths around a point.
_SHAPES: Final = {
    "dot": "m-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "ring": "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
    "best": "m0 -9l9 9l-9 9l-9 -9z",
    "diamond": "m0 -9l9 9l-9 9l-9 -9z",
    "up": "m-7 5h14l-7 -12z",
    "down": "m-7 -5h14l-7 12z",
    "square": "m-5 -5h10v10h-10z",
    "cross": "m-5 -5l10 10m0 -10l-10 10",
}


def draw(chart: Chart, *, hover: bool = True) -> Markup:
    """Return a chart as an ``svg`` element; `hover` shows values of lines under the pointer, and has links of bars."""
    if not chart.layers:
        return nothing(chart.words)
    plane = _Plane(chart)
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    grid = [f"M{LEFT} {at(plane.y(each))}H{right}" for each, _ in chart.y.ticks]
    if not any(isinstance(layer, Bars) for layer in chart.layers):
        grid += [f"M{at(plane.x(each))} {TOP}V{bottom}" for each, _ in chart.x.ticks]
    parts = [path("grid", "".join(grid)), path("axis", f"M{LEFT} {bottom}H{right}")]
    parts += [text(LEFT - 8, plane.y(each) + 4.5, words, anchor="end") for each, words in chart.y.ticks]
    for each, words in chart.x.ticks:
        # Inside the drawing, whose files are cut there.
        middle = min(plane.x(each), WIDTH - _LETTER * len(words) / 2)
        parts.append(text(middle, bottom + 19, words, anchor="middle"))
    parts.append(text((LEFT + right) / 2, HEIGHT - 6, chart.x.name, anchor="middle", style="name"))
    # Clear of the texts above rules.
    parts.append(text(6, 11, chart.y.name, style="name"))
    for layer in chart.layers:
        parts += plane.shapes(layer if hover or not isinstance(layer, Bars) else replace(layer, links=()))
    # What has titles or texts lies above all lines.
    for layer in chart.layers:
        if hover and isinstance(layer, Line | Steps):
            parts += plane.touches(layer)
    for layer in chart.layers:
        if isinstance(layer, Dots):
            parts += plane.dots(layer)
    legend, rows = _legend(chart.legend)
    return svg(chart.words, [*parts, *plane.rule_texts(), *legend], height=HEIGHT + _LEGEND_ROW * rows)


class _Plane:
    """Coordinates of a chart."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart

    def x(self, value: float) -> float:
        return LEFT + self.chart.x.place(value) * (WIDTH - RIGHT - LEFT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - self.chart.y.place(value) * (HEIGHT - BOTTOM - TOP)

    def shapes(self, layer: Layer) -> list[Markup]:
        """Return a layer without single points and texts."""
        match layer:
            case Line():
                return self._line(layer, layer.x, layer.y, dotted=layer.dotted and len(layer.x) <= _MOST_DOTS)
            case Steps():
                return self._line(layer, np.repeat(layer.edges, 2)[1:-1], np.repeat(layer.y, 2), dotted=False)
            case Bars():
                return self._bars(layer)
            case Band():
                return self._band(layer)
            case Rule():
                return self._rule(layer)
            case _:
                return []

    def _line(self, layer: Line | Steps, xs: Float64, ys: Float64, *, dotted: bool) -> list[Markup]:
        x, y = [*map(self.x, xs.tolist())], [*map(self.y, ys.tolist())]
        pieces = [[(x[each], y[each]) for each in run] for run in runs(ys)]
        base, parts = self.y(self.chart.y.low), []
        if layer.filled:
            parts = [polygon([(p[0][0], base), *p, (p[-1][0], base)], _css("area", layer.series)) for p in pieces]
        parts += [polyline(piece, _css("line", layer.series)) for piece in pieces]
        if dotted:
            steps = "".join(f"M{at(a)} {at(b)}h0" for piece in pieces for a, b in piece)
            parts.append(path(_css("dots", layer.series), steps))
        return parts

    def _bars(self, layer: Bars) -> list[Markup]:
        x, y, edges = self.chart.x, self.chart.y, layer.edges.tolist()
        bars, links = [], layer.links or [""] * len(layer.y)
        for start, stop, height, link in zip(edges[:-1], edges[1:], layer.y.tolist(), links, strict=True):
            if height:
                outline = (
                    f"M{at(self.x(start) + 1)} {at(self.y(y.low))}V{at(self.y(height))}H{at(self.x(stop) - 1)}"
                    f"V{at(self.y(y.low))}z"
                )
                words = f"{x.name} {x.write(start)} to {x.write(stop)}: {y.write(height)}"
                bar = path(_css("bar", layer.series), outline, words)
                bars.append(Markup('<a href="{}">{}</a>').format(link, bar) if link else bar)
        return bars

    def _band(self, layer: Band) -> list[Markup]:
        places, *both = layer.corners
        x = [*map(self.x, np.clip(places, self.chart.x.low, self.chart.x.high).tolist())]
        ends = (np.clip(each, self.chart.y.low, self.chart.y.high).tolist() for each in both)
        low, high = ([*map(self.y, each)] for each in ends)
        found = runs(both[0] + both[1])
        if layer.upright:
            steps = "".join(f"M{at(x[each])} {at(low[each])}V{at(high[each])}" for run in found for each in run)
            return [path(_css("whisker", layer.series), steps)] if steps else []
        outlines = ([*((x[at], high[at]) for at in run), *((x[at], low[at]) for at in run[::-1])] for run in found)
        return [polygon(outline, _css("band", layer.series)) for outline in outlines]

    def _rule(self, layer: Rule) -> list[Markup]:
        x, y = self.chart.x, self.chart.y
        if layer.at is None:
            ends = [(max(x.low, y.low),) * 2, (min(x.high, y.high),) * 2]
        else:
            ends = [(layer.at, y.low), (layer.at, y.high)]
        if not (ends[0] < ends[1] and x.holds(ends[0][0])):
            return []
        start, stop = (f"{at(self.x(a))} {at(self.y(b))}" for a, b in ends)
        return [path("rule", f"M{start}L{stop}", layer.name)]

    def touches(self, layer: Line | Steps) -> list[Markup]:
        """Return places that show values of a line under the pointer."""
        known = np.flatnonzero(np.isfinite(layer.y))
        some = known[np.linspace(0, len(known) - 1, min(len(known), _MOST_TOUCHED)).round().astype(np.int64)]
        return [
            Markup('<circle class="touch" cx="{}" cy="{}" r="9"><title>{}</title></circle>').format(
                at(self.x(a)), at(self.y(b)), self._title(layer, a, b)
            )
            for a, b in zip(layer.x[some].tolist(), layer.y[some].tolist(), strict=True)
        ]

    def _title(self, layer: Line | Steps | Dots, a: float, b: float) -> str:
        x, y = self.chart.x, self.chart.y
        return f"{layer.name or y.name}: {y.write(b)} at {x.name} {x.write(a)}"

    def dots(self, layer: Dots) -> list[Markup]:
        """Return points of a shape, and their values."""
        parts = []
        for place, (a, b) in enumerate(zip(layer.x.tolist(), layer.y.tolist(), strict=True)):
            if self.chart.x.holds(a) and self.chart.y.holds(b):
                steps = f"M{at(self.x(a))} {at(self.y(b))}{_SHAPES[layer.shape]}"
                title = layer.titles[place] if layer.titles else self._title(layer, a, b)
                parts.append(path(_css(f"shape {layer.shape}", layer.series), steps, title))
                if layer.labelled:
                    parts.append(self._value(a, b))
        return parts

    def _value(self, a: float, b: float) -> Markup:
        """Return the value of a point, where it hides least of the lines and stays inside the frame."""
        words = self.chart.y.write(b)
        # Points between the points too: a line of two points crosses a label as well.
        dense = np.linspace(LEFT, WIDTH - RIGHT, 8 * MOST_POINTS)
        heights = [np.full(len(dense), np.nan)]
        for layer in self.chart.layers:
            if isinstance(layer, Line) and np.isfinite(layer.y).any():
                known = np.isfinite(layer.y)
                places, levels = map(self.x, layer.x[known].tolist()), map(self.y, layer.y[known].tolist())
                heights.append(np.interp(dense, [*places], [*levels], left=np.nan, right=np.nan))
        width, at_x, at_y = _LETTER * len(words), self.x(a), self.y(b)
        best, least = ("start", 0.0, 0.0), math.inf
        for anchor, shift, left in (("start", 6, 0.0), ("end", -6, -width), ("middle", 0, -width / 2)):
            for far, base in enumerate((at_y + 20, at_y - 9, at_y - 26, at_y + 36)):
                start, top = at_x + shift + left, base - 11
                outside = start < LEFT - 2 or start + width > WIDTH or top < TOP - 16 or base > HEIGHT - BOTTOM - 3
                across = (dense >= start) & (dense <= start + width)
                over = sum(np.count_nonzero(across & (each >= top - 2) & (each <= base + 3)) for each in heights)
                cost = float(over) + (1e6 if outside else far / 100)
                if cost < least:
                    best, least = (anchor, at_x + shift, base), cost
        anchor, text_x, base = best
        return text(text_x, base, words, anchor=anchor, style="value")

    def rule_texts(self) -> list[Markup]:
        """Return the texts above rules, in two rows; one that fits in neither is left to the pointer."""
        parts, ends = [], [0.0, 0.0]
        for layer in self.chart.layers:
            if not isinstance(layer, Rule) or not layer.text or layer.at is None or not self.chart.x.holds(layer.at):
                continue
            half = _LETTER * len(layer.text) / 2
            place = min(max(self.x(layer.at), half), WIDTH - half)
            row = next((row for row, end in enumerate(ends) if place - half > end + 4), None)
            if row is not None:
                ends[row] = place + half
                parts.append(text(place, TOP - 4 + 13 * row, layer.text, anchor="middle", style="value"))
        return parts


def _legend(entries: Sequence[tuple[str, int]]) -> tuple[list[Markup], int]:
    """Return names with a piece of their lines below the chart, and the number of rows."""
    parts: list[Markup] = []
    x, row = float(LEFT), 0
    for whole, series in entries:
        name = shortened(whole, _MOST_LETTERS)
        width = 34 + _LETTER * len(name)
        if x > LEFT and x + width > WIDTH:
            x, row = float(LEFT), row + 1
        y = HEIGHT + 10 + _LEGEND_ROW * row
        parts += [polyline([(x, y), (x + 24, y)], _css("line", series)), text(x + 30, y + 4.5, name, style="series")]
        x += width + 12
    return parts, row + 1 if entries else 0


def small_line(words: str, values: Float64, low: float, high: float) -> Markup:
    """Return values at even distances as a line of 120 by 30 without axes; a single value is a dash."""
    width, height, margin = 120.0, 30.0, 3.0
    step = (width - 2 * margin) / max(1, len(values) - 1)
    heights = (height - margin - (values - low) / (high - low) * (height - 2 * margin)).tolist()
    pieces = [[(margin + place * step, heights[place]) for place in run] for run in runs(values)]
    lines = [polyline(p if len(p) > 1 else [p[0], (p[0][0] + 2, p[0][1])], _css("line", 0)) for p in pieces]
    return svg(words, lines, width=width, height=height)


def svg(
    words: str, parts: Sequence[Markup], *, width: float = WIDTH, height: float = HEIGHT, style: str = ""
) -> Markup:
    """Return a drawing of a size; `words` are for screen readers."""
    return Markup('<svg class="plot"{} viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        Markup(' style="{}"').format(style) if style else "", f"{width:g}", f"{height:g}", words, Markup("").join(parts)
    )


def _css(kind: str, series: int) -> str:
    """Classes of an element of a series."""
    colour, dashes = style_of(series)
    return f"{kind} s{colour} d{dashes}" if kind == "line" else f"{kind} s{colour}"


def nothing(words: str) -> Markup:
    """Return the text in place of a chart that cannot be drawn."""
    return svg(words, [text(WIDTH / 2, 45, words, anchor="middle", style="name")], height=80)


def text(x: float, y: float, words: str, *, anchor: str = "start", style: str = "") -> Markup:
    """Return a text at coordinates."""
    return Markup('<text{} x="{}" y="{}" text-anchor="{}">{}</text>').format(
        Markup(' class="{}"').format(style) if style else "", at(x), at(y), anchor, words
    )


def path(style: str, steps: str, title: str = "") -> Markup:
    """Return a shape by the steps of its outline; `title` is shown under the pointer."""
    inside = Markup("<title>{}</title>").format(title) if title else ""
    return Markup('<path class="{}" d="{}">{}</path>').format(style, steps, inside)


def polyline(points: Iterable[tuple[float, float]], style: str) -> Markup:
    """Return a line through coordinates."""
    return Markup('<polyline class="{}" points="{}"/>').format(style, _pairs(points))


def polygon(points: Iterable[tuple[float, float]], style: str) -> Markup:
    """Return an area between coordinates."""
    return Markup('<polygon class="{}" points="{}"/>').format(style, _pairs(points))


def _pairs(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{at(x)},{at(y)}" for x, y in points)


def at(coordinate: float) -> str:
    """Return a coordinate as it is written; a tenth of a unit is less than a pixel."""
    return f"{coordinate:.1f}"
