"""Distributions of distances, rates against the threshold, and the probability of a match against the distance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.core.formatting import integer, rate
from reid_dist.reports.plots.frame import (
    BOTTOM,
    HEIGHT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    band,
    frame,
    nothing,
    polygon,
    polyline,
    round_ticks,
    rule,
    share_ticks,
    text,
    touch,
    x_axis,
    y_axis,
)

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

_STYLES = "abc"
# Width of a letter of the legend.
_LETTER = 7.2


def histogram_plot(
    title: str,
    edges: Float64,
    counts: Mapping[str, Int64],
    ends: Mapping[str, Float64],
    unit: str,
    marks: Sequence[tuple[str, float]] = (),
) -> Markup:
    """Draw how each kind is spread over bins of distances, as shares of its number; kinds without any are left out.

    Bins go from each of `edges`, (n,), to the next; the last one is open, and is drawn as wide as the others.  `counts`
    are (n,) by kind, of things named `unit`.  `ends` are the intervals of the shares, (n, 2) by kind, NaN for none.
    `marks` are names and distances of thresholds.
    """
    kinds = {name: values for name, values in counts.items() if values.sum()}
    if not kinds or len(edges) < 2:
        return nothing(f"{title}: all are at one distance")
    filled = np.flatnonzero(sum(kinds.values()))
    first, last = int(filled[0]), int(filled[-1])
    stops = np.append(edges[1:], 2.0 * edges[-1] - edges[-2])
    x = _distance_axis(float(edges[first]), float(stops[last]))
    shares = {name: values / values.sum() for name, values in kinds.items()}
    top = max(float(np.nanmax([*values, *ends[name][:, 1]])) for name, values in shares.items())
    y = y_axis(f"share of {unit}", 0.0, top * 1.05, share_ticks(0.0, top))
    body = [*_marks(x, marks)]
    for position, (series, (name, values)) in enumerate(zip(_STYLES, shares.items(), strict=False), 1):
        corners = [(float(edges[first]), 0.0)]
        for place in range(first, last + 1):
            corners += [(float(edges[place]), float(values[place])), (float(stops[place]), float(values[place]))]
        corners.append((float(stops[last]), 0.0))
        points = [(x(a), y(b)) for a, b in corners]
        body += [polygon(points, f"area {series}"), polyline(points, f"line {series}")]
        # Intervals of several kinds stand side by side in a bin.
        across = (edges + (stops - edges) * position / (len(shares) + 1)).tolist()
        body += [
            rule(f"ends {series}", (x(across[place]), y(low)), (x(across[place]), y(high)))
            for place, (low, high) in enumerate(ends[name].tolist())
            if high > low
        ]
        body += [
            touch(
                x((float(edges[place]) + float(stops[place])) / 2),
                y(float(values[place])),
                f"{name}, {_span(edges, place)}: {integer(int(kinds[name][place]))}, {rate(float(values[place]))}",
            )
            for place in range(first, last + 1)
            if values[place]
        ]
    return frame(f"{title}: {', '.join(kinds)}", x, y, [*body, *_legend(list(kinds))])


def rates_plot(title: str, edges: Float64, rates: Mapping[str, Float64], ends: Mapping[str, Float64]) -> Markup:
    """Draw shares against the threshold, (n,) by name at the thresholds `edges`, ascending; NaN leaves a gap.

    `ends` are their intervals, (n, 2) by name, NaN for none.
    """
    if len(edges) < 2:
        return nothing(f"{title}: all distances are equal")
    x, y = _distance_axis(float(edges[0]), float(edges[-1])), y_axis("share", 0.0, 1.0, share_ticks(0.0, 1.0))
    body = []
    known = {name: values for name, values in rates.items() if np.isfinite(values).any()}
    for series, name in zip(_STYLES, known, strict=False):
        body += band(x, y, edges, ends[name], series)
    for series, values in zip(_STYLES, known.values(), strict=False):
        places = [(a, b) for a, b in zip(edges.tolist(), values.tolist(), strict=True) if math.isfinite(b)]
        body.append(polyline([(x(a), y(b)) for a, b in places], f"line {series}"))
    for name, values in known.items():
        body += [
            touch(x(a), y(b), f"{name} {rate(b)} at threshold {a:.6g}")
            for a, b in zip(edges.tolist(), values.tolist(), strict=True)
            if math.isfinite(b)
        ]
    return frame(f"{title}: {', '.join(known)}", x, y, [*body, *_legend(list(known))])


def probability_plot(
    title: str, starts: Float64, end: float, probabilities: Mapping[str, Float64], ends: Mapping[str, Float64]
) -> Markup:
    """Draw the probability of a match in steps of distance that begin at `starts`, (n,); the last one is open.

    `probabilities` are (n,) by prior; `ends` are their intervals, (n, 2) by prior, NaN for none.
    """
    stops = np.append(starts[1:], max(end, float(starts[-1])))
    if not stops[-1] > starts[0]:
        return nothing(f"{title}: all distances are equal")
    x, y = _distance_axis(float(starts[0]), float(stops[-1])), y_axis("probability", 0.0, 1.0, share_ticks(0.0, 1.0))
    body = []
    both = np.column_stack([starts, stops]).ravel()
    for series, name in zip(_STYLES, probabilities, strict=False):
        body += band(x, y, both, np.repeat(ends[name], 2, axis=0), series)
    for series, (name, values) in zip(_STYLES, probabilities.items(), strict=False):
        corners = []
        for place, value in enumerate(values.tolist()):
            corners += [(x(float(starts[place])), y(value)), (x(float(stops[place])), y(value))]
        body.append(polyline(corners, f"line {series}"))
        body += [
            touch(
                x((float(starts[place]) + float(stops[place])) / 2),
                y(value),
                f"{name}: {rate(value)} from distance {starts[place]:.6g}",
            )
            for place, value in enumerate(values.tolist())
        ]
    legend = _legend(list(probabilities)) if len(probabilities) > 1 else []
    return frame(f"{title}: {', '.join(probabilities)}", x, y, [*body, *legend])


def _distance_axis(low: float, high: float) -> Axis:
    ticks = [(tick, f"{tick:g}") for tick in round_ticks(low, high) if low <= tick <= high]
    return x_axis("distance", low, high, ticks)


def _span(edges: Float64, place: int) -> str:
    start = f"{edges[place]:.6g}"
    return f"{start} to {edges[place + 1]:.6g}" if place + 1 < len(edges) else f"from {start} on"


def _marks(x: Axis, marks: Sequence[tuple[str, float]]) -> list[Markup]:
    return [
        rule("mean", (x(distance), TOP), (x(distance), HEIGHT - BOTTOM), f"{name}: {distance:.6g}")
        for name, distance in marks
        if x.low <= distance <= x.high
    ]


def _legend(names: Sequence[str]) -> list[Markup]:
    """Names of the lines with a piece of each, in one line above the frame, at its right end."""
    parts: list[Markup] = []
    stop = float(WIDTH - RIGHT)
    for series, name in reversed([*zip(_STYLES, names, strict=False)]):
        start = stop - _LETTER * len(name)
        parts += [
            polyline([(start - 24, 10), (start - 6, 10)], f"line {series}"),
            text(start, 14, name, style="series"),
        ]
        stop = start - 36
    return parts
