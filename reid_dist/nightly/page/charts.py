"""A quantity over the nights: values with intervals or learnt bounds, and marks where something changed.

Every night has its place on the horizontal axis, whether the job was done in it or not, so that charts of one job
stand above one another.  What a colour says, a shape or a letter says too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from markupsafe import Markup

from reid_dist.nightly.history.values import BETTER, FAILED, WORSE
from reid_dist.nightly.page.standing import ACCEPTED, MOVED
from reid_dist.nightly.page.wording import is_share, value_text
from reid_dist.reports.plots.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    LinearAxis,
    at,
    frame,
    nothing,
    round_ticks,
    value_label,
    y_ends,
)

__all__ = ["Night", "trend_chart"]

_MOST_TICKS = 5
_LETTER = 9.0
# Bounds of a time or a size reach that many times beyond the values; what is farther away is cut.
_MOST_BEYOND = 1.5
_SIZES = ((30, "GiB"), (20, "MiB"), (10, "KiB"), (0, "B"))
_TIMES = ((3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Night:
    """One night of one quantity of one job.

    Attributes
    ----------
    name
        As it is told under the pointer: number of the run and day.
    tick
        As it is written below the axis.
    value
        None where the job was not done, or the quantity is undefined.
    low, high
        Interval of the value, or bounds beyond which it would have been better or worse.
    kind
        A standing that is drawn in a shape of its own; others are dots.
    letters
        Of the kinds of what changed since the night before.
    """

    name: str
    tick: str
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = ""
    letters: str = ""


def trend_chart(quantity: str, title: str, nights: Sequence[Night], *, bounds: bool = False) -> Markup:
    """Draw a quantity over the nights.

    Parameters
    ----------
    quantity
        Name of a metric, ``seconds`` or ``peak_bytes``: says how values are written.
    title
        What stands above the axis.
    nights
        In their order.
    bounds
        Whether `low` and `high` of the nights are learnt bounds, drawn as a band, and not intervals of values.
    """
    known = [night.value for night in nights if night.value is not None]
    if not known:
        return nothing(f"{title}: no value yet")
    unit, scale = _unit(quantity, max(known))
    x, y = _x_axis(len(nights)), _y_axis(quantity, nights, scale)
    body = [_band(nights, x, y, scale) if bounds else _whiskers(nights, x, y, scale)]
    body += _marks(nights, x)
    body += [*_lines(nights, x, y, scale), *_points(quantity, nights, x, y, scale)]
    last = max(number for number, night in enumerate(nights) if night.value is not None)
    values = np.array([np.nan if night.value is None else night.value / scale for night in nights])
    body.append(
        value_label(
            x,
            y,
            np.arange(len(nights), dtype=np.float64),
            values,
            (float(last), float(values[last])),
            value_text(quantity, nights[last].value),
        )
    )
    return frame(
        _said(quantity, title, nights),
        x=x,
        y=y,
        x_ticks=_x_ticks(nights),
        y_ticks=[(tick, _tick_words(quantity, tick)) for tick in round_ticks(y.low, y.high)],
        x_label="night",
        y_label=f"{title}, {unit}" if unit else title,
        body=body,
    )


def _said(quantity: str, title: str, nights: Sequence[Night]) -> str:
    known = [(night.name, night.value) for night in nights if night.value is not None]
    (first, start), (last, end) = known[0], known[-1]
    text = f"{title} over {len(nights):,} nights: {value_text(quantity, start)} in {first}"
    if len(known) > 1:
        text += f", {value_text(quantity, end)} in {last}"
    marked = [f"{night.name} ({', '.join(night.letters)})" for night in nights if night.letters]
    return text + (f"; changes before {', '.join(marked[-8:])}" if marked else "")


def _unit(quantity: str, largest: float) -> tuple[str, float]:
    """Unit in which a time or a size is drawn, and its value in the unit of the history."""
    if quantity == "seconds":
        return next(((name, one) for one, name in _TIMES if largest >= 2 * one), ("ms", 0.001))
    if quantity == "peak_bytes":
        return next(((name, 2.0**power) for power, name in _SIZES if largest >= 2**power), ("B", 1.0))
    return "", 1.0


def _x_axis(n_nights: int) -> LinearAxis:
    # One night alone is a point in the middle.
    low, high = (-1.0, 1.0) if n_nights == 1 else (0.0, n_nights - 1.0)
    return LinearAxis(low=low, high=high, start=LEFT + 12, stop=WIDTH - RIGHT - 8)


def _y_axis(quantity: str, nights: Sequence[Night], scale: float) -> LinearAxis:
    low, high = _ends(quantity, [night for night in nights if night.value is not None])
    low, high = low / scale, high / scale
    # Values that agree to the last digits shown are a level line in the middle.
    margin = max(0.14 * (high - low), 0.004 * max(abs(low), abs(high)), 1e-9)
    low, high = low - margin, high + margin
    if quantity in ("seconds", "peak_bytes"):
        low = max(low, 0.0)
    return LinearAxis(low=low, high=high, **y_ends())


def _ends(quantity: str, nights: Sequence[Night]) -> tuple[float, float]:
    """The range of the values, and as much of their intervals or bounds as leaves the values readable."""
    values = [night.value for night in nights if night.value is not None]
    low, high = min(values), max(values)
    others = [end for night in nights for end in (night.low, night.high) if end is not None]
    if quantity in ("seconds", "peak_bytes"):
        others = [min(max(end, low / _MOST_BEYOND), high * _MOST_BEYOND) for end in others]
    return min([low, *others]), max([high, *others])


def _x_ticks(nights: Sequence[Night]) -> list[tuple[float, str]]:
    count = min(len(nights), _MOST_TICKS)
    places = np.unique(np.linspace(0, len(nights) - 1, count).round()).tolist()
    return [(place, nights[int(place)].tick) for place in places]


def _tick_words(quantity: str, tick: float) -> str:
    share = quantity not in ("seconds", "peak_bytes") and is_share(quantity)
    return f"{round(100 * tick, 6):g} %" if share else f"{tick:g}"


def _runs(nights: Sequence[Night], has: Sequence[bool]) -> list[list[int]]:
    """Stretches of nights next to one another that have something."""
    return [
        [number for number, _ in stretch]
        for there, stretch in groupby(enumerate(has[: len(nights)]), key=lambda pair: pair[1])
        if there
    ]


def _lines(nights: Sequence[Night], x: LinearAxis, y: LinearAxis, scale: float) -> list[Markup]:
    """Lines through nights next to one another; a night without a value is a gap."""
    lines = []
    for stretch in _runs(nights, [night.value is not None for night in nights]):
        points = " ".join(f"{at(x(number))},{at(y((nights[number].value or 0.0) / scale))}" for number in stretch)
        lines.append(Markup('<polyline class="line a thin" points="{}"/>').format(points))
    return lines


def _whiskers(nights: Sequence[Night], x: LinearAxis, y: LinearAxis, scale: float) -> Markup:
    strokes = [
        f"M{at(x(number))} {at(y(night.low / scale))}V{at(y(night.high / scale))}"
        for number, night in enumerate(nights)
        if night.low is not None and night.high is not None
    ]
    return Markup('<path class="whisker" d="{}"/>').format("".join(strokes)) if strokes else Markup()


def _band(nights: Sequence[Night], x: LinearAxis, y: LinearAxis, scale: float) -> Markup:
    """Bounds as one band for each stretch of nights that has them; half a night wide where one stands alone."""
    bands = []
    half = (x(1.0) - x(0.0)) / 2 if len(nights) > 1 else 20.0
    for stretch in _runs(nights, [night.low is not None and night.high is not None for night in nights]):
        upper, lower = [], []
        for number in stretch:
            # The axis ends at the first and the last night, and so does the band.
            sides = [max(x(number) - half, LEFT + 2), min(x(number) + half, WIDTH - RIGHT)]
            high, low = (
                y(min(max((end or 0.0) / scale, y.low), y.high)) for end in (nights[number].high, nights[number].low)
            )
            upper += [f"{at(side)},{at(high)}" for side in sides]
            lower += [f"{at(side)},{at(low)}" for side in sides]
        bands.append(Markup('<polygon class="bounds" points="{}"/>').format(" ".join([*upper, *reversed(lower)])))
    return Markup("").join(bands)


def _marks(nights: Sequence[Night], x: LinearAxis) -> list[Markup]:
    """A dashed line before a night in which something changed, with its letters where there is room for them."""
    marks, ends = [], [0.0, 0.0]
    for number, night in enumerate(nights):
        if not night.letters:
            continue
        place, width = x(number), _LETTER * len(night.letters)
        marks.append(
            Markup('<line class="moved" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
                at(place), at(place), TOP + 2, HEIGHT - BOTTOM
            )
        )
        row = next((row for row, end in enumerate(ends) if place - width / 2 > end + 2), None)
        if row is not None:
            ends[row] = place + width / 2
            marks.append(
                Markup('<text class="letters" x="{}" y="{}" text-anchor="middle">{}</text>').format(
                    at(place), TOP - 4 + 13 * row, night.letters
                )
            )
    return marks


def _points(quantity: str, nights: Sequence[Night], x: LinearAxis, y: LinearAxis, scale: float) -> list[Markup]:
    """Nights that are news in a shape of their own, with a title; all others as dots of one path."""
    dots, shapes = [], []
    for number, night in enumerate(nights):
        place = x(number)
        if night.value is None:
            if night.kind == FAILED:
                shapes.append(_shape(FAILED, place, HEIGHT - BOTTOM - 9, f"{night.name}: failed"))
            continue
        height = y(night.value / scale)
        if night.kind in (WORSE, BETTER, MOVED, ACCEPTED):
            words = f"{night.name}: {value_text(quantity, night.value)}, {night.kind}"
            shapes.append(_shape(night.kind, place, height, words))
        elif number == len(nights) - 1:
            shapes.append(_shape("last", place, height, f"{night.name}: {value_text(quantity, night.value)}"))
        else:
            dots.append(f"M{at(place)} {at(height)}h0")
    drawn = [Markup('<path class="dots" d="{}"/>').format("".join(dots))] if dots else []
    return drawn + shapes


def _shape(kind: str, x: float, y: float, title: str) -> Markup:
    """A down triangle is worse, an up triangle better, a diamond an alarm, a cross failed; see the legend."""
    if kind == FAILED:
        steps = "m-5 -5l10 10m0 -10l-10 10"
    elif kind == WORSE:
        steps = "m-7 -5h14l-7 12z"
    elif kind == BETTER:
        steps = "m-7 5h14l-7 -12z"
    elif kind == MOVED:
        steps = "m0 -9l9 9l-9 9l-9 -9z"
    elif kind == ACCEPTED:
        steps = "m-5 -5h10v10h-10z"
    else:
        steps = "m-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0z"
    return Markup('<path class="shape {}" d="M{} {}{}"><title>{}</title></path>').format(
        kind, at(x), at(y), steps, title
    )
