"""A metric against the number of gallery rows that have entered."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from reid_dist.core.formatting import compact, integer, percent
from reid_dist.reports.plots.frame import (
    Axis,
    LinearAxis,
    LogAxis,
    dot,
    frame,
    log_ticks,
    nothing,
    polyline,
    round_ticks,
    share_ticks,
    thinned,
    value_label,
    x_ends,
    y_ends,
)

_MOST_DOTS = 60


def distractor_scale(n_rows: Sequence[int]) -> str:
    """Return which horizontal axis suits these sizes: ``logarithmic`` where they span a factor of ten or more."""
    return "logarithmic" if n_rows and 0 < 10 * min(n_rows) <= max(n_rows) else "linear"


def distractor_plot(name: str, n_rows: Sequence[int], values: Sequence[float | None]) -> Markup:
    """Draw a distractor curve.

    Parameters
    ----------
    name
        The metric.
    n_rows
        Gallery rows that have entered, ascending.
    values
        The metric at each of them, shares in 0 … 1; None where it has no value, which leaves a gap.
    """
    known = [(size, value) for size, value in zip(n_rows, values, strict=True) if value is not None]
    if not known:
        return nothing(f"{name}: no query is valid")
    x = _x_axis(n_rows)
    lowest, highest = min(value for _, value in known), max(value for _, value in known)
    # A curve that falls from 83 to 79 % would be a level line between 0 and 100 %.
    low, high = max(0.0, math.floor(lowest * 20 - 0.5) / 20), min(1.0, math.ceil(highest * 20 + 0.5) / 20)
    y = LinearAxis(low=low, high=high, **y_ends())
    kept = [known[position] for position in thinned(len(known)).tolist()]
    shown = kept if len(kept) <= _MOST_DOTS else [kept[0], kept[-1]]
    dots = [dot(x(size), y(value), f"{integer(size)} rows: {name} {percent(value)}") for size, value in shown]
    ends = [kept[0], kept[-1]] if len(kept) > 1 else kept
    xs, ys = np.array([size for size, _ in kept]), np.array([value for _, value in kept])
    labels = [value_label(x, y, xs, ys, place, percent(place[1])) for place in ends]
    return frame(
        f"{name} against gallery rows: " + ", ".join(f"{percent(value)} at {integer(size)}" for size, value in ends),
        x=x,
        y=y,
        x_ticks=_x_ticks(x),
        y_ticks=share_ticks(low, high),
        x_label="gallery rows",
        y_label=name,
        body=[*_pieces(x, y, n_rows, values), *dots, *labels],
    )


def _x_axis(n_rows: Sequence[int]) -> Axis:
    first, last = n_rows[0], n_rows[-1]
    if first == last:  # one size alone is a dot in the middle of an axis around it
        return LinearAxis(low=0, high=max(2 * last, 1), **x_ends())
    if distractor_scale(n_rows) == "logarithmic":
        return LogAxis(low=first, high=last, **x_ends())
    return LinearAxis(low=0 if 2 * first < last else first, high=last, **x_ends())


def _x_ticks(x: Axis) -> list[tuple[float, str]]:
    """Return ticks whose labels stay clear of one another and of the frame."""
    found = log_ticks(x.low, x.high) if isinstance(x, LogAxis) else round_ticks(x.low, x.high)
    return [(tick, compact(tick)) for tick in found if tick == int(tick)]


def _pieces(x: Axis, y: Axis, n_rows: Sequence[int], values: Sequence[float | None]) -> list[Markup]:
    """Return one line for every unbroken run of values."""
    runs: list[list[tuple[int, float]]] = [[]]
    for size, value in zip(n_rows, values, strict=True):
        if value is None:
            runs.append([])
        else:
            runs[-1].append((size, value))
    return [
        polyline(((x(size), y(value)) for size, value in (run[kept] for kept in thinned(len(run)).tolist())), "line a")
        for run in runs
        if run
    ]
