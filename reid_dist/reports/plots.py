"""Line charts and histograms as inline SVG that takes its colours from the page.

Written by hand rather than drawn by a plotting library: a chart here is some twenty elements whose colours are
CSS classes, so that one picture is right on a light and on a dark screen, its labels are text in the font of the
page, a value shows up under the pointer without any script, and the bytes depend on nothing but the numbers.

All coordinates are in units of a view box of 440 by 290, which the page scales to the width that it has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.reports.words import integer, percent, share

__all__ = ["cmc_axis_start", "cmc_plot", "histogram", "precision_recall_plot"]

_WIDTH, _HEIGHT = 440, 290
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 16, 30, 46
_MOST_POINTS = 400  # more than there are pixels
_BINS = 20


@dataclass(frozen=True, kw_only=True)
class _Axis:
    """A linear scale from values to coordinates.

    Attributes
    ----------
    low, high
        The values at the two ends.
    start, stop
        The coordinates of the two ends.
    """

    low: float
    high: float
    start: float
    stop: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.stop - self.start)


def _x_axis(low: float, high: float) -> _Axis:
    return _Axis(low=low, high=high, start=_LEFT, stop=_WIDTH - _RIGHT)


def _y_axis(low: float, high: float) -> _Axis:
    return _Axis(low=low, high=high, start=_HEIGHT - _BOTTOM, stop=_TOP)


def cmc_axis_start(curve: NDArray[np.float64]) -> float:
    """Return where the vertical axis of a CMC starts: 0, or a round share below a curve that is high throughout.

    Parameters
    ----------
    curve
        (max_rank,) float64, shares in 0 … 1.
    """
    lowest = float(np.min(curve, initial=1.0, where=np.isfinite(curve)))
    return 0.0 if lowest < 0.4 else min(0.9, math.floor(lowest * 10 - 0.5) / 10)


def cmc_plot(name: str, curve: NDArray[np.float64]) -> Markup:
    """Draw a cumulative match characteristic.

    Parameters
    ----------
    name
        The family, as it stands in the report.
    curve
        (max_rank,) float64, shares in 0 … 1; NaN throughout where no query is valid.
    """
    if not np.isfinite(curve).any():
        return _nothing(f"{name}: no query is valid")
    last = len(curve)
    # One rank alone is a dot in the middle of an axis around it.
    x = _x_axis(1, last) if last > 1 else _x_axis(0, 2)
    low = cmc_axis_start(curve)
    y = _y_axis(low, 1.0)
    ranks = np.unique(np.linspace(1, last, min(last, _MOST_POINTS)).round().astype(np.int64))
    labelled = [rank for rank in (1, 10, last) if rank <= last and (rank in (1, last) or last >= 25)]
    marks = [_mark(x, y, rank, float(curve[rank - 1]), f"rank {rank}", low) for rank in sorted(set(labelled))]
    label = f"{name} curve: {percent(float(curve[0]))} at rank 1, {percent(float(curve[-1]))} at rank {last}"
    return _frame(
        label,
        x=x,
        y=y,
        x_ticks=_rank_ticks(last),
        y_ticks=[(tick, f"{100 * tick:.0f} %") for tick in _ticks(low, 1.0)],
        x_label="rank",
        y_label=name,
        body=[_line(x, y, ranks, curve[ranks - 1], "a"), *marks],
    )


def precision_recall_plot(precision: NDArray[np.float64]) -> Markup:
    """Draw the mean interpolated precision at evenly spaced recall levels from 0 to 1.

    Parameters
    ----------
    precision
        (levels,) float64, shares in 0 … 1; NaN throughout where no query is valid.
    """
    if len(precision) < 2 or not np.isfinite(precision).any():
        return _nothing("precision and recall: no query is valid")
    recall = np.linspace(0, 1, len(precision))
    x, y = _x_axis(0, 1), _y_axis(0, 1)
    tenths = [(tick, f"{100 * tick:.0f} %") for tick in _ticks(0, 1)]
    hover = [
        Markup('<circle class="touch" cx="{}" cy="{}" r="9"><title>{}</title></circle>').format(
            _at(x(level)), _at(y(value)), f"precision {percent(value)} at recall {100 * level:.0f} %"
        )
        for level, value in zip(recall[::10].tolist(), precision[::10].tolist(), strict=True)
        if math.isfinite(value)
    ]
    return _frame(
        f"Mean interpolated precision: {percent(float(precision[0]))} at recall 0, "
        f"{percent(float(precision[-1]))} at recall 100 %",
        x=x,
        y=y,
        x_ticks=tenths,
        y_ticks=tenths,
        x_label="recall",
        y_label="precision",
        body=[_area(x, y, recall, precision), _line(x, y, recall, precision, "a"), *hover],
    )


def histogram(name: str, values: NDArray[np.float64], *, series: str) -> Markup:
    """Draw how many queries have which value, in 20 bins from 0 to 1, and their mean.

    Parameters
    ----------
    name
        What the values are.
    values
        (n_query,) float64 in 0 … 1; NaN, for an invalid query, is left out.
    series
        The colour, ``"a"`` or ``"b"``.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return _nothing(f"{name}: no query is valid")
    counts, edges = np.histogram(np.clip(finite, 0, 1), bins=_BINS, range=(0, 1))
    top = int(counts.max())
    ticks = [tick for tick in _ticks(0, top) if tick == int(tick)]
    x, y = _x_axis(0, 1), _y_axis(0, max(top * 1.04, ticks[-1]))
    bars = [
        Markup('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
            series,
            _at(x(left) + 1),
            _at(y(count)),
            _at(x(right) - x(left) - 2),
            _at(y(0) - y(count)),
            f"{name} {100 * left:.0f} to {100 * right:.0f} %: {integer(count)} queries, {share(count, len(finite))}",
        )
        for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if count
    ]
    mean = float(finite.mean())
    side, gap = ("end", -5) if mean > 0.5 else ("start", 5)
    rule = Markup(
        '<line class="mean" x1="{x}" x2="{x}" y1="{bottom}" y2="{top}"/>'
        '<text class="value" x="{label}" y="{over}" text-anchor="{side}">{words}</text>'
    ).format(
        x=_at(x(mean)),
        bottom=_at(y(0)),
        top=_at(_TOP - 12),
        label=_at(x(mean) + gap),
        over=_at(_TOP - 10),
        side=side,
        words=f"mean {percent(mean)}",
    )
    return _frame(
        f"Histogram of {name} over {integer(len(finite))} queries, mean {percent(mean)}",
        x=x,
        y=y,
        x_ticks=[(tick, f"{100 * tick:.0f} %") for tick in _ticks(0, 1)],
        y_ticks=[(tick, integer(tick)) for tick in ticks],
        x_label=name,
        y_label="queries",
        body=[*bars, rule],
    )


def _frame(
    label: str,
    *,
    x: _Axis,
    y: _Axis,
    x_ticks: Sequence[tuple[float, str]],
    y_ticks: Sequence[tuple[float, str]],
    x_label: str,
    y_label: str,
    body: Sequence[Markup],
) -> Markup:
    """Return the chart: grid and labels below, ``body`` on top."""
    parts = [
        Markup(
            '<line class="grid" x1="{}" x2="{}" y1="{}" y2="{}"/><text x="{}" y="{}" text-anchor="end">{}</text>'
        ).format(_LEFT, _WIDTH - _RIGHT, _at(y(tick)), _at(y(tick)), _LEFT - 8, _at(y(tick) + 4.5), words)
        for tick, words in y_ticks
    ]
    parts.append(
        Markup('<line class="axis" x1="{}" x2="{}" y1="{}" y2="{}"/>').format(
            _LEFT, _WIDTH - _RIGHT, _at(y.start), _at(y.start)
        )
    )
    parts += [
        Markup('<text x="{}" y="{}" text-anchor="middle">{}</text>').format(_at(x(tick)), _HEIGHT - _BOTTOM + 19, words)
        for tick, words in x_ticks
    ]
    parts.append(
        Markup('<text class="name" x="{}" y="{}" text-anchor="middle">{}</text>').format(
            _at((x.start + x.stop) / 2), _HEIGHT - 6, x_label
        )
    )
    parts.append(Markup('<text class="name" x="6" y="14">{}</text>').format(y_label))
    return Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("").join([*parts, *body])
    )


def _line(x: _Axis, y: _Axis, xs: NDArray[np.generic], ys: NDArray[np.float64], series: str) -> Markup:
    points = [(a, b) for a, b in zip(xs.tolist(), ys.tolist(), strict=True) if math.isfinite(b)]
    return Markup('<polyline class="line {}" points="{}"/>').format(
        series, " ".join(f"{_at(x(a))},{_at(y(b))}" for a, b in points)
    )


def _area(x: _Axis, y: _Axis, xs: NDArray[np.float64], ys: NDArray[np.float64]) -> Markup:
    points = [(a, b) for a, b in zip(xs.tolist(), ys.tolist(), strict=True) if math.isfinite(b)]
    corners = [(points[0][0], y.low), *points, (points[-1][0], y.low)]
    return Markup('<polygon class="area" points="{}"/>').format(
        " ".join(f"{_at(x(a))},{_at(y(b))}" for a, b in corners)
    )


def _mark(x: _Axis, y: _Axis, rank: int, value: float, words: str, low: float) -> Markup:
    """Return a dot on the curve and its value, written where a rising curve leaves room: below."""
    below = y(value) + 22
    if below > y(low) - 4:
        below = y(value) - 12
    centred = x(rank) < _WIDTH - _RIGHT - 30
    return Markup(
        '<circle class="dot" cx="{}" cy="{}" r="4"><title>{}</title></circle>'
        '<text class="value" x="{}" y="{}" text-anchor="{}">{}</text>'
    ).format(
        _at(x(rank)),
        _at(y(value)),
        f"{words}: {percent(value)}",
        _at(x(rank) + 6 if centred else x(rank)),
        _at(below),
        "start" if centred else "end",
        percent(value),
    )


def _nothing(words: str) -> Markup:
    return Markup(
        '<svg class="plot" viewBox="0 0 {} 80" role="img" aria-label="{}">'
        '<text class="name" x="{}" y="45" text-anchor="middle">{}</text></svg>'
    ).format(_WIDTH, words, _WIDTH // 2, words)


def _ticks(low: float, high: float) -> list[float]:
    """Return three to six round values from ``low`` to ``high``, both in reach of a step of 1, 2 or 5."""
    rough = (high - low) / 5
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(size * magnitude for size in (1, 2, 5, 10) if size * magnitude >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(count * step, 12) for count in range(first, last + 1)]


def _rank_ticks(last: int) -> list[tuple[float, str]]:
    """Return rank 1 and round ranks up to ``last``; rank 0 does not exist."""
    if last <= 10:
        return [(rank, str(rank)) for rank in range(1, last + 1)]
    return [(1, "1"), *((tick, integer(tick)) for tick in _ticks(0, last) if tick >= last / 20)]


def _at(coordinate: float) -> str:
    return f"{coordinate:.1f}"
