"""Curves over ranks, over recall and over gallery rows, and histograms of values per query."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.core.formatting import compact, counted, integer, percent, share
from reid_dist.reports.plots.frame import (
    TOP,
    Axis,
    area,
    at,
    dot,
    frame,
    line,
    log_ticks,
    nothing,
    polyline,
    round_ticks,
    rule,
    runs,
    share_ticks,
    text,
    thinned,
    touch,
    value_label,
    x_axis,
    y_axis,
)

_BINS = 20
_MOST_DOTS = 60


def cmc_axis_start(curve: NDArray[np.float64]) -> float:
    """Return where the vertical axis of a CMC starts: 0, or a round share below a curve that is high throughout."""
    lowest = float(np.min(curve, initial=1.0, where=np.isfinite(curve)))
    return 0.0 if lowest < 0.4 else min(0.9, math.floor(lowest * 10 - 0.5) / 10)


def cmc_plot(name: str, curve: NDArray[np.float64]) -> Markup:
    """Draw a cumulative match characteristic, or another share by rank (mean precision or recall at k).

    The curve has shape (max_rank,); it is NaN throughout where no query is valid.
    """
    if not np.isfinite(curve).any():
        return nothing(f"{name}: no query is valid")
    last = len(curve)
    # One rank alone is a dot in the middle of an axis around it.
    x = x_axis("rank", *((1, last) if last > 1 else (0, 2)), _rank_ticks(last))
    low = cmc_axis_start(curve)
    y = y_axis(name, low, 1.0, share_ticks(low, 1.0))
    ranks = thinned(last) + 1
    labelled = [rank for rank in (1, 10, last) if rank <= last and (rank in (1, last) or last >= 25)]
    marks = []
    for rank in sorted(set(labelled)):
        value = float(curve[rank - 1])
        marks.append(dot(x(rank), y(value), f"rank {rank}: {percent(value)}"))
        marks.append(value_label(x, y, ranks, curve[ranks - 1], (rank, value), percent(value)))
    label = f"{name} curve: {percent(float(curve[0]))} at rank 1, {percent(float(curve[-1]))} at rank {last}"
    return frame(label, x, y, [line(x, y, ranks, curve[ranks - 1], "a"), *marks])


def _rank_ticks(last: int) -> list[tuple[float, str]]:
    """Return rank 1 and round ranks up to ``last``; rank 0 does not exist."""
    if last <= 10:
        return [(rank, str(rank)) for rank in range(1, last + 1)]
    return [(1, "1"), *((tick, integer(tick)) for tick in round_ticks(0, last) if tick >= last / 20)]


def precision_recall_plot(precision: NDArray[np.float64]) -> Markup:
    """Draw the mean interpolated precision at evenly spaced recall levels from 0 to 1, shape (levels,)."""
    if len(precision) < 2 or not np.isfinite(precision).any():
        return nothing("precision and recall: no query is valid")
    recall = np.linspace(0, 1, len(precision))
    x, y = x_axis("recall", 0, 1, share_ticks(0, 1)), y_axis("precision", 0, 1, share_ticks(0, 1))
    hover = [
        touch(x(level), y(value), f"precision {percent(value)} at recall {100 * level:.0f} %")
        for level, value in zip(recall[::10].tolist(), precision[::10].tolist(), strict=True)
        if math.isfinite(value)
    ]
    label = (
        f"Mean interpolated precision: {percent(float(precision[0]))} at recall 0, "
        f"{percent(float(precision[-1]))} at recall 100 %"
    )
    return frame(label, x, y, [area(x, y, recall, precision), line(x, y, recall, precision, "a"), *hover])


def histogram(name: str, values: NDArray[np.float64], *, series: str) -> Markup:
    """Draw how many queries have which value, in 20 bins from 0 to 1, and their mean.

    Values have shape (n_query,); NaN, for an invalid query, is left out.  `series` is the colour, ``"a"`` or ``"b"``.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return nothing(f"{name}: no query is valid")
    counts, edges = np.histogram(np.clip(finite, 0, 1), bins=_BINS, range=(0, 1))
    top = int(counts.max())
    ticks = [tick for tick in round_ticks(0, top) if tick == int(tick)]
    x = x_axis(name, 0, 1, share_ticks(0, 1))
    y = y_axis("queries", 0, max(top * 1.04, ticks[-1]), [(tick, integer(tick)) for tick in ticks])
    bars = [
        Markup('<rect class="bar {}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>').format(
            series,
            at(x(left) + 1),
            at(y(count)),
            at(x(right) - x(left) - 2),
            at(y(0) - y(count)),
            f"{name} {100 * left:.0f} to {100 * right:.0f} %: {counted(count, 'query')}, {share(count, len(finite))}",
        )
        for count, left, right in zip(counts.tolist(), edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        if count
    ]
    mean = float(finite.mean())
    side, gap = ("end", -5) if mean > 0.5 else ("start", 5)
    mark = [
        rule("mean", (x(mean), y(0)), (x(mean), TOP - 12)),
        text(x(mean) + gap, TOP - 10, f"mean {percent(mean)}", anchor=side, style="value"),
    ]
    return frame(
        f"Histogram of {name} over {counted(len(finite), 'query')}, mean {percent(mean)}", x, y, [*bars, *mark]
    )


def distractor_scale(n_rows: Sequence[int]) -> str:
    """Return which horizontal axis suits these sizes: ``logarithmic`` where they span a factor of ten or more."""
    return "logarithmic" if n_rows and 0 < 10 * min(n_rows) <= max(n_rows) else "linear"


def distractor_plot(name: str, n_rows: Sequence[int], values: Sequence[float | None]) -> Markup:
    """Draw a metric, in 0 … 1, against the gallery rows that have entered, ascending; None leaves a gap."""
    known = [(size, value) for size, value in zip(n_rows, values, strict=True) if value is not None]
    if not known:
        return nothing(f"{name}: no query is valid")
    x = _size_axis(n_rows)
    lowest, highest = min(value for _, value in known), max(value for _, value in known)
    # A curve that falls from 83 to 79 % would be a level line between 0 and 100 %.
    low, high = max(0.0, math.floor(lowest * 20 - 0.5) / 20), min(1.0, math.ceil(highest * 20 + 0.5) / 20)
    y = y_axis(name, low, high, share_ticks(low, high))
    pieces = []
    for run in runs(values):
        places = [(n_rows[run[kept]], values[run[kept]] or 0.0) for kept in thinned(len(run)).tolist()]
        pieces.append(polyline([(x(size), y(value)) for size, value in places], "line a"))
    kept = [known[position] for position in thinned(len(known)).tolist()]
    shown = kept if len(kept) <= _MOST_DOTS else [kept[0], kept[-1]]
    dots = [dot(x(size), y(value), f"{integer(size)} rows: {name} {percent(value)}") for size, value in shown]
    ends = [kept[0], kept[-1]] if len(kept) > 1 else kept
    xs, ys = np.array([size for size, _ in kept]), np.array([value for _, value in kept])
    labels = [value_label(x, y, xs, ys, place, percent(place[1])) for place in ends]
    label = f"{name} against gallery rows: " + ", ".join(f"{percent(value)} at {integer(size)}" for size, value in ends)
    return frame(label, x, y, [*pieces, *dots, *labels])


def _size_axis(n_rows: Sequence[int]) -> Axis:
    first, last = n_rows[0], n_rows[-1]
    logarithmic = False
    if first == last:  # one size alone is a dot in the middle of an axis around it
        low, high = 0, max(2 * last, 1)
    else:
        logarithmic = distractor_scale(n_rows) == "logarithmic"
        low, high = first if logarithmic or 2 * first >= last else 0, last
    ticks = log_ticks(low, high) if logarithmic else round_ticks(low, high)
    whole = [(tick, compact(tick)) for tick in ticks if tick == int(tick)]
    return x_axis("gallery rows", low, high, whole, logarithmic=logarithmic)
