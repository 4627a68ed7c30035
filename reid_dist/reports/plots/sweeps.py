"""A metric against a parameter: one line for each setting of the other parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from reid_dist.core.specs import value_text
from reid_dist.reports.plots.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    dot,
    frame,
    metric_ticks,
    nothing,
    padded,
    polygon,
    polyline,
    round_ticks,
    rule,
    text,
    x_axis,
    y_axis,
)
from reid_dist.reports.words import metric_value

_MOST_DOTS = 80
_LETTER = 6.6  # width of a letter of the font of line names
_LABEL_STEP = 16.0
_MOST_WIDTH = 200.0
_DASHES = ("none", "7 4", "2 3", "10 3 2 3", "14 4", "4 2", "1 5", "8 2 1 2")


@dataclass(frozen=True)
class SweepLine:
    """Places on the horizontal axis, ascending, and values, None for no value; the name tells lines apart."""

    name: str
    points: Sequence[tuple[float, float | None]]

    @property
    def known(self) -> list[tuple[float, float]]:
        """Points that have a value."""
        return [(place, value) for place, value in self.points if value is not None]


def sweep_plot(
    metric: str,
    parameter: str,
    lines: Sequence[SweepLine],
    ticks: Sequence[tuple[float, str]] | None,
    best: tuple[float, float] | None,
) -> Markup:
    """Draw a metric against a parameter, one dashed and named line per setting of the other parameters.

    `ticks` labels the horizontal axis, by default with round numbers; `best` is the best point of all lines, which is
    marked.
    """
    values = [value for line in lines for _, value in line.known]
    if not values:
        return nothing(f"{metric}: no query is valid")
    width = max((_LETTER * len(line.name) for line in lines if line.name), default=0.0)
    places = [place for line in lines for place, _ in line.points]
    x = _x_axis(parameter, min(places), max(places), min(width + 20 if width else 0.0, _MOST_WIDTH), ticks)
    ends = padded(min(values), max(values), spread=0.12, level=0.002)
    y = y_axis(metric, *ends, metric_ticks(metric, *ends))
    body: list[Markup] = []
    n_dots = sum(len(line.known) for line in lines)
    for number, line in enumerate(lines):
        body.append(
            polyline(((x(at_x), y(value)) for at_x, value in line.known), "line a", _DASHES[number % len(_DASHES)])
        )
        if n_dots <= _MOST_DOTS:
            body += [
                dot(
                    x(place),
                    y(value),
                    f"{_setting(line.name, parameter, place, ticks)}: {metric_value(metric, value)}",
                )
                for place, value in line.known
            ]
    body += _names(lines, x, y)
    label = f"{metric} against {parameter}"
    if best is not None:
        body += _best_mark(metric, x(best[0]), y(best[1]), best[1])
        label += f": best {metric_value(metric, best[1])} at {_setting('', parameter, best[0], ticks)}"
    return frame(label, x, y, body)


def _setting(name: str, parameter: str, place: float, ticks: Sequence[tuple[float, str]] | None) -> str:
    words = value_text(place) if ticks is None else dict(ticks).get(place, value_text(place))
    return f"{parameter} {words}" + (f", {name}" if name else "")


def _x_axis(parameter: str, low: float, high: float, width: float, ticks: Sequence[tuple[float, str]] | None) -> Axis:
    if low == high:  # one value alone is a dot in the middle of an axis around it
        low, high = low - 1, high + 1
    if ticks is None:
        ticks = [(tick, f"{tick:g}") for tick in round_ticks(low, high)]
    return x_axis(parameter, low, high, ticks, start=LEFT + 10, stop=WIDTH - RIGHT - max(width, 4.0))


def _names(lines: Sequence[SweepLine], x: Axis, y: Axis) -> list[Markup]:
    """Write the name of each line beside its end, apart from one another."""
    ends = sorted((y(line.known[-1][1]), line.known[-1][0], line.name) for line in lines if line.name and line.known)
    # Heights of the names: as near to the ends as their order and the space between them allow.
    heights: list[float] = []
    for end, _, _ in ends:
        heights.append(max(end, heights[-1] + _LABEL_STEP) if heights else end)
    # Names that were pushed below the frame are moved up together.
    overflow = max(0.0, heights[-1] - (HEIGHT - BOTTOM)) if heights else 0.0
    written: list[Markup] = []
    for (end, place, name), height in zip(ends, heights, strict=True):
        beside, middle = x(place), max(height - overflow, TOP - 12)
        if abs(middle - end) > 3:  # a thin line leads to a name at another height
            written.append(rule("lead", (beside + 5, end), (beside + 15, middle)))
        written.append(text(beside + 18, middle + 4.5, name, style="series"))
    return written


def _best_mark(metric: str, x: float, y: float, value: float) -> list[Markup]:
    """A diamond around the best point, and its value."""
    corners = ((x, y - 9), (x + 9, y), (x, y + 9), (x - 9, y))
    words = metric_value(metric, value)
    anchor = "start" if x < LEFT + 40 else "end" if x > WIDTH - RIGHT - 40 else "middle"
    return [
        polygon(corners, "best"),
        text(x, y - 13, words, anchor=anchor, style="value"),
    ]
