"""Elements of every chart: scales, ticks, the frame, lines, dots, texts.

All coordinates are in units of a view box of 440 by 290, which the page scales to the width that it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.reports.words import is_share

WIDTH, HEIGHT = 440, 290
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 30, 46
MOST_POINTS = 400  # more than there are pixels
_LETTER = 7.4  # width of a digit in the bold font of the values


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale from values to coordinates, with its name and its labelled ticks.

    Values `low` and `high` are at coordinates `start` and `stop`; on a logarithmic scale values are positive.
    """

    name: str
    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    start: float
    stop: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.stop - self.start)


def x_axis(
    name: str,
    low: float,
    high: float,
    ticks: Sequence[tuple[float, str]],
    *,
    start: float = LEFT,
    stop: float = WIDTH - RIGHT,
    logarithmic: bool = False,
) -> Axis:
    """Return a horizontal axis, by default of the width of the frame."""
    return Axis(name=name, low=low, high=high, ticks=ticks, start=start, stop=stop, logarithmic=logarithmic)


def y_axis(
    name: str, low: float, high: float, ticks: Sequence[tuple[float, str]], *, logarithmic: bool = False
) -> Axis:
    """Return a vertical axis of the height of the frame; up is a smaller coordinate."""
    return Axis(name=name, low=low, high=high, ticks=ticks, start=HEIGHT - BOTTOM, stop=TOP, logarithmic=logarithmic)


def frame(label: str, x: Axis, y: Axis, body: Sequence[Markup]) -> Markup:
    """Return the chart: grid and labels below, ``body`` on top; ``label`` is the text for screen readers."""
    right = WIDTH - RIGHT
    parts = [
        rule("grid", (LEFT, y(tick)), (right, y(tick))) + text(LEFT - 8, y(tick) + 4.5, words, anchor="end")
        for tick, words in y.ticks
    ]
    parts.append(rule("axis", (LEFT, y.start), (right, y.start)))
    parts += [text(x(tick), HEIGHT - BOTTOM + 19, words, anchor="middle") for tick, words in x.ticks]
    parts.append(text((x.start + x.stop) / 2, HEIGHT - 6, x.name, anchor="middle", style="name"))
    parts.append(text(6, 14, y.name, style="name"))
    return svg(label, [*parts, *body])


def svg(
    label: str, parts: Sequence[Markup], *, width: float = WIDTH, height: float = HEIGHT, style: str = ""
) -> Markup:
    """Return a drawing of a size; `label` is for screen readers."""
    return Markup('<svg class="plot"{} viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        Markup(' style="{}"').format(style) if style else "", f"{width:g}", f"{height:g}", label, Markup("").join(parts)
    )


def text(x: float, y: float, words: str, *, anchor: str = "start", style: str = "") -> Markup:
    """Return a text at coordinates."""
    return Markup('<text{} x="{}" y="{}" text-anchor="{}">{}</text>').format(
        Markup(' class="{}"').format(style) if style else "", at(x), at(y), anchor, words
    )


def rule(style: str, start: tuple[float, float], stop: tuple[float, float], title: str = "") -> Markup:
    """Return a straight line between coordinates; `title` is shown under the pointer."""
    inside = Markup("<title>{}</title>").format(title) if title else ""
    return Markup('<line class="{}" x1="{}" y1="{}" x2="{}" y2="{}">{}</line>').format(
        style, at(start[0]), at(start[1]), at(stop[0]), at(stop[1]), inside
    )


def line(x: Axis, y: Axis, xs: NDArray[np.generic], ys: NDArray[np.float64], series: str) -> Markup:
    """Return a line through the points whose value is finite; ``series`` names its style."""
    places = zip(xs.tolist(), ys.tolist(), strict=True)
    return polyline(((x(a), y(b)) for a, b in places if math.isfinite(b)), f"line {series}")


def area(x: Axis, y: Axis, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> Markup:
    """Return the area below that line."""
    points = [(a, b) for a, b in zip(xs.tolist(), ys.tolist(), strict=True) if math.isfinite(b)]
    corners = [(points[0][0], y.low), *points, (points[-1][0], y.low)]
    return polygon([(x(a), y(b)) for a, b in corners], "area")


def band(x: Axis, y: Axis, xs: NDArray[np.float64], ends: NDArray[np.float64], series: str) -> list[Markup]:
    """Return the areas between the ends of intervals, (n, 2), at `xs`, (n,); NaN leaves a gap."""
    low, high = ends.T.tolist()
    at_x = [x(value) for value in xs.tolist()]
    return [
        polygon(
            [*((at_x[place], y(high[place])) for place in run), *((at_x[place], y(low[place])) for place in run[::-1])],
            f"band {series}",
        )
        for run in runs([None if math.isnan(value) else value for value in low])
    ]


def polyline(points: Iterable[tuple[float, float]], style: str, dashes: str = "") -> Markup:
    """Return a line through coordinates."""
    return Markup('<polyline class="{}"{} points="{}"/>').format(
        style,
        Markup(' stroke-dasharray="{}"').format(dashes) if dashes else "",
        " ".join(f"{at(x)},{at(y)}" for x, y in points),
    )


def polygon(points: Iterable[tuple[float, float]], style: str) -> Markup:
    """Return an area between coordinates."""
    return Markup('<polygon class="{}" points="{}"/>').format(style, " ".join(f"{at(x)},{at(y)}" for x, y in points))


def shape(x: float, y: float, steps: str, style: str, title: str) -> Markup:
    """Return a shape drawn by relative ``steps`` from coordinates, with a title under the pointer."""
    return Markup('<path class="{}" d="M{} {}{}"><title>{}</title></path>').format(style, at(x), at(y), steps, title)


def padded(low: float, high: float, *, spread: float, level: float) -> tuple[float, float]:
    """Return the ends of an axis around values; the margin is a share of their spread, or of their size if they agree.

    Values that agree to the last digits shown are then a level line in the middle.
    """
    margin = max(spread * (high - low), level * max(abs(low), abs(high)), 1e-9)
    return low - margin, high + margin


def runs(values: Sequence[float | None]) -> list[list[int]]:
    """Return the positions of every unbroken run of values; None is a gap."""
    known = groupby(range(len(values)), key=lambda position: values[position] is not None)
    return [list(run) for is_known, run in known if is_known]


def dot(x: float, y: float, title: str) -> Markup:
    """Return a marked point, at coordinates, that shows ``title`` under the pointer."""
    return Markup('<circle class="dot" cx="{}" cy="{}" r="4"><title>{}</title></circle>').format(at(x), at(y), title)


def touch(x: float, y: float, title: str) -> Markup:
    """Return an invisible place, at coordinates, that shows ``title`` under the pointer."""
    return Markup('<circle class="touch" cx="{}" cy="{}" r="9"><title>{}</title></circle>').format(at(x), at(y), title)


def value_label(
    x: Axis, y: Axis, xs: NDArray[np.generic], ys: NDArray[np.float64], place: tuple[float, float], words: str
) -> Markup:
    """Return the text of a point of a line, where it hides least of the line and stays inside the frame.

    The line is `xs`, `ys`, (n_points,), without the values that are not finite; `place` is the point, in values.
    """
    known = np.isfinite(ys)
    line_x = np.array([x(value) for value in xs[known].tolist()])
    line_y = np.array([y(value) for value in ys[known].tolist()])
    # Points between the points too: a line of two points crosses a label as well.
    dense = np.linspace(x.start, x.stop, 8 * MOST_POINTS)
    height = np.interp(dense, line_x, line_y, left=np.nan, right=np.nan)
    width, (at_x, at_y) = _LETTER * len(words), (x(place[0]), y(place[1]))
    best, least = ("start", 0.0, 0.0), math.inf
    for anchor, shift, left in (("start", 6, 0.0), ("end", -6, -width), ("middle", 0, -width / 2)):
        for far, base in enumerate((at_y + 20, at_y - 9, at_y - 26, at_y + 36)):
            start, top = at_x + shift + left, base - 11
            outside = start < LEFT - 2 or start + width > WIDTH or top < TOP - 16 or base > HEIGHT - BOTTOM - 3
            over = (dense >= start) & (dense <= start + width) & (height >= top - 2) & (height <= base + 3)
            cost = float(np.count_nonzero(over)) + (1e6 if outside else far / 100)
            if cost < least:
                best, least = (anchor, at_x + shift, base), cost
    anchor, text_x, base = best
    return text(text_x, base, words, anchor=anchor, style="value")


def nothing(words: str) -> Markup:
    """Return the text in place of a chart that cannot be drawn."""
    return svg(words, [text(WIDTH / 2, 45, words, anchor="middle", style="name")], height=80)


def round_ticks(low: float, high: float) -> list[float]:
    """Return three to six round values from ``low`` to ``high``, both in reach of a step of 1, 2 or 5."""
    rough = (high - low) / 5
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(size * magnitude for size in (1, 2, 5, 10) if size * magnitude >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(count * step, 12) for count in range(first, last + 1)]


def share_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round shares and how they are written, in percent with as few decimals as they need."""
    return [(tick, f"{round(100 * tick, 6):g} %") for tick in round_ticks(low, high)]


def metric_ticks(metric: str, low: float, high: float) -> list[tuple[float, str]]:
    """Return round values of a metric and their texts: shares in percent, other values as they are."""
    if is_share(metric):
        return share_ticks(low, high)
    return [(tick, f"{tick:g}") for tick in round_ticks(low, high)]


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return up to ``most`` values from ``low`` to ``high``: powers of ten, and some between where those are few."""
    decades = math.log10(high / low)
    steps = (1,) if decades >= 2.5 else (1, 3) if decades >= 1.2 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [float(f"{step * 10.0**power:.12g}") for power in powers for step in steps]
    inside = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    return inside[:: math.ceil(len(inside) / most)] if len(inside) > 1 else [low, high]


def thinned(n_points: int) -> NDArray[np.int64]:
    """Return the positions of at most 400 of ``n_points`` points, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, n_points - 1, min(n_points, MOST_POINTS)).round().astype(np.int64))


def at(coordinate: float) -> str:
    """Return a coordinate as it is written; a tenth of a unit is less than a pixel."""
    return f"{coordinate:.1f}"
