"""Charts of one quantity over the nights: values with intervals or bounds, and marks of changes.

Each night has its place on the horizontal axis, with or without a value, so that charts of one job align.  Colour is
never the only sign: a shape or a letter accompanies it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from markupsafe import Markup

from reid_dist.core.formatting import counted
from reid_dist.nightly.history.history_values import Outcome, State
from reid_dist.nightly.wording import value_text
from reid_dist.reports.plots.chart import (
    Axis,
    Band,
    Chart,
    Dots,
    Float64,
    Layer,
    Line,
    Rule,
    as_values,
    empty_chart,
    metric_axis,
    padded,
)
from reid_dist.reports.plots.chart_svg import small_line

_MOST_TICKS: Final = 5
# Bounds of a time or a size that lie further beyond the values are cut.
_MOST_BEYOND: Final = 1.5
_COSTS: Final = ("seconds", "peak_bytes")
_SIZES: Final = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
_TIMES: Final = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))
# The legend of the page explains them.
_SHAPES: Final = {
    Outcome.WORSE: "down",
    Outcome.BETTER: "up",
    Outcome.MOVED: "diamond",
    Outcome.ACCEPTED: "square",
    "": "ring",
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


def trend_chart(quantity: str, title: str, nights: Sequence[Point], *, bounds: bool = False) -> Chart:
    """Return the chart of a metric, ``seconds`` or ``peak_bytes`` over the nights, oldest first.

    With `bounds`, `low` and `high` of the nights are bounds, drawn as a band, and not intervals.
    """
    known = [night.value for night in nights if night.value is not None]
    if not known:
        return empty_chart(f"{title}: no value yet")
    unit, scale = _unit(quantity, max(known))
    x = np.arange(len(nights), dtype=np.float64)
    value, low, high = (as_values([getattr(night, end) for night in nights]) for end in ("value", "low", "high"))
    y = _y_axis(quantity, f"{title}, {unit}" if unit else title, (value, low, high), scale)
    value, low, high = value / scale, low / scale, high / scale
    # Bounds are a band without gaps between nights.
    band = Band(x=x, low=low, high=high, half=0.5 if bounds else 0.0, upright=not bounds)
    layers: list[Layer] = [
        band,
        *(Rule(at=at, text=night.letters) for at, night in enumerate(nights) if night.letters),
        Line(x=x, y=value, dotted=True),
        *_dots(quantity, nights, value, y),
    ]
    return Chart(
        title=f"{title} by night", words=_description(quantity, title, nights), x=_x_axis(nights), y=y, layers=layers
    )


def _dots(quantity: str, nights: Sequence[Point], value: Float64, y: Axis) -> list[Dots]:
    """Return a shape for each night of a special outcome, and the last value."""
    last = int(np.flatnonzero(np.isfinite(value))[-1])
    found = []
    for at, night in enumerate(nights):
        if night.value is None:
            if night.kind == State.FAILED:
                place = np.array([y.low + 0.04 * (y.high - y.low)])
                found.append(Dots(x=np.array([at]), y=place, shape="cross", titles=[f"{night.name}: failed"]))
        elif at == last or _SHAPES.get(night.kind, "ring") != "ring":
            kind = night.kind if night.kind in _SHAPES else ""
            title = f"{night.name}: {value_text(quantity, night.value)}{f', {kind}' if kind else ''}"
            found.append(
                Dots(x=np.array([at]), y=value[[at]], shape=_SHAPES[kind], titles=[title], labelled=at == last)
            )
    return found


def sparkline(name: str, values: Sequence[float | None]) -> Markup:
    """Draw values over nights as a line without axes; nothing without a value."""
    known = [value for value in values if value is not None]
    if not known:
        return Markup("")
    low, high = padded(min(known), max(known), spread=0.1, level=0.004)
    words = (
        f"{name} over {counted(len(values), 'night')}: {value_text(name, known[0])} to {value_text(name, known[-1])}"
    )
    return small_line(words, as_values(values), low, high)


def _description(quantity: str, title: str, nights: Sequence[Point]) -> str:
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
    last = len(nights) - 1
    # A single night is a point in the middle.
    low, high = padded(0.0, float(last), spread=0.03, level=0.0) if last else (-1.0, 1.0)
    places = np.unique(np.linspace(0, last, min(len(nights), _MOST_TICKS)).round()).tolist()
    ticks = [(place, nights[int(place)].tick) for place in places]
    return Axis(name="night", low=low, high=high, ticks=ticks, write=lambda at: nights[round(at)].name)


def _y_axis(quantity: str, name: str, nights: tuple[Float64, Float64, Float64], scale: float) -> Axis:
    """Return an axis of the values, and of as much of their intervals or bounds as leaves the values readable."""
    value, *ends = nights
    lowest, highest = np.nanmin(value), np.nanmax(value)
    others = np.concatenate([end[np.isfinite(value) & np.isfinite(end)] for end in ends])
    if quantity in _COSTS:
        others = np.clip(others, lowest / _MOST_BEYOND, highest * _MOST_BEYOND)
    reach = np.append(others, [lowest, highest]) / scale
    low, high = padded(float(reach.min()), float(reach.max()), spread=0.14, level=0.004)
    axis = metric_axis(quantity, max(low, 0.0) if quantity in _COSTS else low, high)
    return replace(axis, name=name, write=lambda each: value_text(quantity, each * scale))
