"""Charts of one quantity over the nights: values with intervals or bounds, and marks of changes.

Each night has its place on the horizontal axis, with or without a value, so that charts of one job align.  Colour is
never the only sign: a shape or a letter accompanies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from markupsafe import Markup

from reid_dist.core.formatting import counted
from reid_dist.nightly.history.values import BETTER, FAILED, WORSE
from reid_dist.nightly.outcomes import ACCEPTED, MOVED
from reid_dist.nightly.wording import value_text
from reid_dist.reports.plots.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    at,
    frame,
    metric_ticks,
    nothing,
    padded,
    polygon,
    polyline,
    rule,
    runs,
    shape,
    svg,
    text,
    value_label,
    x_axis,
    y_axis,
)

_MOST_TICKS: Final = 5
_LETTER: Final = 9.0
_LINE_WIDTH, _LINE_HEIGHT, _LINE_MARGIN = 120.0, 30.0, 3.0
# Bounds of a time or a size that lie further beyond the values are cut.
_MOST_BEYOND: Final = 1.5
_COSTS: Final = ("seconds", "peak_bytes")
_SIZES: Final = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
_TIMES: Final = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
# Relative paths; the legend of the page explains them.
_SHAPES: Final = {
    FAILED: "m-5 -5l10 10m0 -10l-10 10",
    WORSE: "m-7 -5h14l-7 12z",
    BETTER: "m-7 5h14l-7 -12z",
    MOVED: "m0 -9l9 9l-9 9l-9 -9z",
    ACCEPTED: "m-5 -5h10v10h-10z",
    "last": "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One night of one quantity of one job.

    `name`, number of the run and day, is for titles, `tick` the text below the axis.  `low` and `high` are the interval
    of the value, or bounds beyond which it would have been better or worse.  A `kind` is an outcome with a shape of its
    own; others are dots.  `letters` are the kinds of what changed since the night before.
    """

    name: str
    tick: str
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = ""
    letters: str = ""


@dataclass(frozen=True, slots=True)
class _Plane:
    """Axes of a chart; `scale` is the unit of the vertical one in the unit of the history."""

    x: Axis
    y: Axis
    scale: float

    def height(self, value: float) -> float:
        return self.y(value / self.scale)

    def height_inside(self, value: float) -> float:
        return self.y(min(max(value / self.scale, self.y.low), self.y.high))


def trend_chart(quantity: str, title: str, nights: Sequence[Point], *, bounds: bool = False) -> Markup:
    """Draw a metric, ``seconds`` or ``peak_bytes`` over the nights, oldest first, with a title above the axis.

    With `bounds`, `low` and `high` of the nights are bounds, drawn as a band, and not intervals.
    """
    known = [night.value for night in nights if night.value is not None]
    if not known:
        return nothing(f"{title}: no value yet")
    unit, scale = _unit(quantity, max(known))
    plane = _Plane(_x_axis(nights), _y_axis(quantity, f"{title}, {unit}" if unit else title, nights, scale), scale)
    body = _bands(nights, plane) if bounds else _whiskers(nights, plane)
    body += [*_marks(nights, plane.x), *_lines(nights, plane), *_points(quantity, nights, plane)]
    last = max(number for number, night in enumerate(nights) if night.value is not None)
    values = np.array([np.nan if night.value is None else night.value / scale for night in nights])
    place = (float(last), float(values[last]))
    numbers = np.arange(len(nights), dtype=np.float64)
    body.append(value_label(plane.x, plane.y, numbers, values, place, value_text(quantity, nights[last].value)))
    return frame(_description(quantity, title, nights), plane.x, plane.y, body)


def sparkline(name: str, values: Sequence[float | None]) -> Markup:
    """Draw values over nights as a line without axes; a single value is a dash."""
    known = [value for value in values if value is not None]
    if not known:
        return Markup("")
    low, high = padded(min(known), max(known), spread=0.1, level=0.004)
    step = (_LINE_WIDTH - 2 * _LINE_MARGIN) / max(1, len(values) - 1)

    def place(at: int) -> tuple[float, float]:
        share = ((values[at] or 0.0) - low) / (high - low)
        return _LINE_MARGIN + at * step, _LINE_HEIGHT - _LINE_MARGIN - share * (_LINE_HEIGHT - 2 * _LINE_MARGIN)

    pieces = [[place(at) for at in run] for run in runs(values)]
    lines = [
        polyline(piece if len(piece) > 1 else [piece[0], (piece[0][0] + 2, piece[0][1])], "line a") for piece in pieces
    ]
    label = (
        f"{name} over {counted(len(values), 'night')}: {value_text(name, known[0])} to {value_text(name, known[-1])}"
    )
    return svg(label, lines, width=_LINE_WIDTH, height=_LINE_HEIGHT)


def _description(quantity: str, title: str, nights: Sequence[Point]) -> str:
    """Return the text of a chart for screen readers."""
    known = [(night.name, night.value) for night in nights if night.value is not None]
    (first, start), (last, end) = known[0], known[-1]
    words = f"{title} over {counted(len(nights), 'night')}: {value_text(quantity, start)} in {first}"
    if len(known) > 1:
        words += f", {value_text(quantity, end)} in {last}"
    marked = [f"{night.name} ({', '.join(night.letters)})" for night in nights if night.letters]
    return words + (f"; changes before {', '.join(marked[-8:])}" if marked else "")


def _unit(quantity: str, largest: float) -> tuple[str, float]:
    """Return the unit of a time or a size in a chart, and its value in the unit of the history."""
    if quantity == "seconds":
        return next(((name, one) for one, name in _TIMES if largest >= 2 * one), ("ms", 0.001))
    if quantity == "peak_bytes":
        return next(((name, 2.0**power) for power, name in _SIZES if largest >= 2**power), ("B", 1.0))
    return "", 1.0


def _x_axis(nights: Sequence[Point]) -> Axis:
    # A single night is a point in the middle.
    low, high = (-1.0, 1.0) if len(nights) == 1 else (0.0, len(nights) - 1.0)
    places = np.unique(np.linspace(0, len(nights) - 1, min(len(nights), _MOST_TICKS)).round()).tolist()
    ticks = [(place, nights[int(place)].tick) for place in places]
    return x_axis("night", low, high, ticks, start=LEFT + 12, stop=WIDTH - RIGHT - 8)


def _y_axis(quantity: str, name: str, nights: Sequence[Point], scale: float) -> Axis:
    low, high = _ends(quantity, nights)
    low, high = padded(low / scale, high / scale, spread=0.14, level=0.004)
    if quantity in _COSTS:
        low = max(low, 0.0)
    return y_axis(name, low, high, metric_ticks(quantity, low, high))


def _ends(quantity: str, nights: Sequence[Point]) -> tuple[float, float]:
    """Return the range of the values, and as much of their intervals or bounds as leaves the values readable."""
    values = [night.value for night in nights if night.value is not None]
    low, high = min(values), max(values)
    others = [end for night in nights if night.value is not None for end in (night.low, night.high) if end is not None]
    if quantity in _COSTS:
        others = [min(max(end, low / _MOST_BEYOND), high * _MOST_BEYOND) for end in others]
    return min([low, *others]), max([high, *others])


def _lines(nights: Sequence[Point], plane: _Plane) -> list[Markup]:
    """Return lines through consecutive nights; a night without a value is a gap."""
    return [
        polyline([(plane.x(number), plane.height(nights[number].value or 0.0)) for number in stretch], "line a thin")
        for stretch in runs([night.value for night in nights])
    ]


def _whiskers(nights: Sequence[Point], plane: _Plane) -> list[Markup]:
    strokes = [
        f"M{at(plane.x(number))} {at(plane.height(night.low))}V{at(plane.height(night.high))}"
        for number, night in enumerate(nights)
        if night.low is not None and night.high is not None
    ]
    return [Markup('<path class="whisker" d="{}"/>').format("".join(strokes))] if strokes else []


def _bands(nights: Sequence[Point], plane: _Plane) -> list[Markup]:
    """Return the bounds as a band per stretch of nights that have them, half a night wide on either side."""
    bands = []
    half = (plane.x(1.0) - plane.x(0.0)) / 2 if len(nights) > 1 else 20.0
    for stretch in runs([None if night.low is None else night.high for night in nights]):
        upper: list[tuple[float, float]] = []
        lower: list[tuple[float, float]] = []
        for number in stretch:
            for side in (max(plane.x(number) - half, LEFT + 2), min(plane.x(number) + half, WIDTH - RIGHT)):
                upper.append((side, plane.height_inside(nights[number].high or 0.0)))
                lower.append((side, plane.height_inside(nights[number].low or 0.0)))
        bands.append(polygon([*upper, *reversed(lower)], "bounds"))
    return bands


def _marks(nights: Sequence[Point], x: Axis) -> list[Markup]:
    """Return a dashed line at each night before which something changed, and its letters where they fit."""
    marks, ends = [], [0.0, 0.0]
    for number, night in enumerate(nights):
        if not night.letters:
            continue
        place, width = x(number), _LETTER * len(night.letters)
        marks.append(rule("moved", (place, TOP + 2), (place, HEIGHT - BOTTOM)))
        row = next((row for row, end in enumerate(ends) if place - width / 2 > end + 2), None)
        if row is not None:
            ends[row] = place + width / 2
            marks.append(text(place, TOP - 4 + 13 * row, night.letters, anchor="middle", style="letters"))
    return marks


def _points(quantity: str, nights: Sequence[Point], plane: _Plane) -> list[Markup]:
    """Return a shape with a title per night of a special outcome, and one path with the dots of all others."""
    dots, shapes = [], []
    for number, night in enumerate(nights):
        x = plane.x(number)
        if night.value is None:
            if night.kind == FAILED:
                shapes.append(_shape(FAILED, x, HEIGHT - BOTTOM - 9, f"{night.name}: failed"))
            continue
        y, words = plane.height(night.value), f"{night.name}: {value_text(quantity, night.value)}"
        if night.kind in (WORSE, BETTER, MOVED, ACCEPTED):
            shapes.append(_shape(night.kind, x, y, f"{words}, {night.kind}"))
        elif number == len(nights) - 1:
            shapes.append(_shape("last", x, y, words))
        else:
            dots.append(f"M{at(x)} {at(y)}h0")
    drawn = [Markup('<path class="dots" d="{}"/>').format("".join(dots))] if dots else []
    return drawn + shapes


def _shape(kind: str, x: float, y: float, title: str) -> Markup:
    return shape(x, y, _SHAPES[kind], f"shape {kind}", title)
