"""Curves of verification: how many genuine pairs are lost, or accepted, where how many impostors are accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.core.formatting import rate
from reid_dist.reports.plots.frame import (
    Axis,
    dot,
    frame,
    line,
    log_ticks,
    nothing,
    rule,
    share_ticks,
    thinned,
    touch,
    value_label,
    x_axis,
    y_axis,
)

Marked = Sequence[tuple[str, float, float]]


def roc_plot(far: NDArray[np.float64], tar: NDArray[np.float64], marked: Marked = ()) -> Markup:
    """Draw the true accept rate against the false accept rate, the latter on a logarithmic axis.

    Both have shape (n_points,), `far` ascending; a point of FAR 0 has no place on the axis.  `marked` holds name, FAR
    and TAR of the points that are metrics of the report.
    """
    shown = (far > 0) & np.isfinite(tar)
    if np.unique(far[shown]).size < 2:
        return nothing("ROC: fewer than two points with a false accept rate above 0")
    x, y = _far_axis(far[shown]), y_axis("true accept rate (TAR)", 0, 1, share_ticks(0, 1))
    xs, ys = _thin(far[shown], tar[shown])
    return frame(f"ROC: {_ends(xs, ys, 'TAR')}", x, y, _drawn(x, y, xs, ys, "TAR", marked))


def det_plot(far: NDArray[np.float64], tar: NDArray[np.float64], marked: Marked = ()) -> Markup:
    """Draw the false reject rate 1 - TAR against the false accept rate, both on logarithmic axes.

    The dashed line is where both are equal; the curve crosses it at the equal error rate.  Parameters are those of
    `roc_plot`; a point without false rejects has no place on the axis.
    """
    frr = 1.0 - tar
    # Below half a part in 10^12 is what 1 - TAR leaves of a zero.
    shown = (far > 0) & (frr > 5e-13)
    if np.unique(far[shown]).size < 2:
        return nothing("DET: fewer than two points with errors of both kinds")
    x = _far_axis(far[shown])
    low, high = _decades(frr[shown])
    ticks = [(tick, rate(tick)) for tick in log_ticks(low, high)]
    y = y_axis("false reject rate (FRR)", low, high, ticks, logarithmic=True)
    xs, ys = _thin(far[shown], frr[shown])
    low, high = max(x.low, y.low), min(x.high, y.high)
    equal = rule("mean", (x(low), y(low)), (x(high), y(high)), "FAR = FRR") if low < high else Markup("")
    inside = [(name, at_far, 1.0 - at_tar) for name, at_far, at_tar in marked if 1.0 - at_tar > 5e-13]
    return frame(f"DET: {_ends(xs, ys, 'FRR')}", x, y, [equal, *_drawn(x, y, xs, ys, "FRR", inside)])


def _far_axis(values: NDArray[np.float64]) -> Axis:
    low, high = _decades(values)
    ticks = [(tick, rate(tick)) for tick in log_ticks(low, high, 5)]
    return x_axis("false accept rate (FAR)", low, high, ticks, logarithmic=True)


def _decades(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis around values: whole decades, at least one."""
    low = 10.0 ** math.floor(math.log10(float(values.min())) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(float(values.max())) - 1e-9)
    return (low if low < high else high / 10), high


def _thin(xs: NDArray[np.float64], ys: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    kept = thinned(len(xs))
    return xs[kept], ys[kept]


def _ends(xs: NDArray[np.float64], ys: NDArray[np.float64], name: str) -> str:
    ends = ((float(xs[at_]), float(ys[at_])) for at_ in (0, -1))
    return ", ".join(f"{name} {rate(b)} at FAR {rate(a)}" for a, b in ends)


def _drawn(
    x: Axis, y: Axis, xs: NDArray[np.float64], ys: NDArray[np.float64], name: str, marked: Marked
) -> list[Markup]:
    """Return the line, values under the pointer, and a dot with its value for every marked point on both axes."""
    some = np.unique(np.linspace(0, len(xs) - 1, min(len(xs), 25)).round().astype(np.int64))
    hover = [
        touch(x(a), y(b), f"{name} {rate(b)} at FAR {rate(a)}")
        for a, b in zip(xs[some].tolist(), ys[some].tolist(), strict=True)
    ]
    marks = [
        dot(x(a), y(b), f"{metric}: {rate(b)} at FAR {rate(a)}") + value_label(x, y, xs, ys, (a, b), rate(b))
        for metric, a, b in marked
        if x.low <= a <= x.high and y.low <= b <= y.high
    ]
    return [line(x, y, xs, ys, "a"), *hover, *marks]
