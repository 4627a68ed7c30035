"""Curves over ranks and over recall."""

from __future__ import annotations

import math

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.core.formatting import integer, percent
from reid_dist.reports.plots.frame import (
    LinearAxis,
    area,
    dot,
    frame,
    line,
    nothing,
    round_ticks,
    share_ticks,
    thinned,
    touch,
    value_label,
    x_ends,
    y_ends,
)


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
    """Draw a cumulative match characteristic, or another share by rank (mean precision or recall at k).

    Parameters
    ----------
    name
        The family, as named in the report.
    curve
        (max_rank,) float64, shares in 0 … 1; NaN throughout where no query is valid.
    """
    if not np.isfinite(curve).any():
        return nothing(f"{name}: no query is valid")
    last = len(curve)
    # One rank alone is a dot in the middle of an axis around it.
    low_rank, high_rank = (1, last) if last > 1 else (0, 2)
    x = LinearAxis(low=low_rank, high=high_rank, **x_ends())
    low = cmc_axis_start(curve)
    y = LinearAxis(low=low, high=1.0, **y_ends())
    ranks = thinned(last) + 1
    labelled = [rank for rank in (1, 10, last) if rank <= last and (rank in (1, last) or last >= 25)]
    marks = []
    for rank in sorted(set(labelled)):
        value = float(curve[rank - 1])
        marks.append(dot(x(rank), y(value), f"rank {rank}: {percent(value)}"))
        marks.append(value_label(x, y, ranks, curve[ranks - 1], (rank, value), percent(value)))
    label = f"{name} curve: {percent(float(curve[0]))} at rank 1, {percent(float(curve[-1]))} at rank {last}"
    return frame(
        label,
        x=x,
        y=y,
        x_ticks=_rank_ticks(last),
        y_ticks=share_ticks(low, 1.0),
        x_label="rank",
        y_label=name,
        body=[line(x, y, ranks, curve[ranks - 1], "a"), *marks],
    )


def precision_recall_plot(precision: NDArray[np.float64]) -> Markup:
    """Draw the mean interpolated precision at evenly spaced recall levels from 0 to 1.

    Parameters
    ----------
    precision
        (levels,) float64, shares in 0 … 1; NaN throughout where no query is valid.
    """
    if len(precision) < 2 or not np.isfinite(precision).any():
        return nothing("precision and recall: no query is valid")
    recall = np.linspace(0, 1, len(precision))
    x, y = LinearAxis(low=0, high=1, **x_ends()), LinearAxis(low=0, high=1, **y_ends())
    hover = [
        touch(x(level), y(value), f"precision {percent(value)} at recall {100 * level:.0f} %")
        for level, value in zip(recall[::10].tolist(), precision[::10].tolist(), strict=True)
        if math.isfinite(value)
    ]
    return frame(
        f"Mean interpolated precision: {percent(float(precision[0]))} at recall 0, "
        f"{percent(float(precision[-1]))} at recall 100 %",
        x=x,
        y=y,
        x_ticks=share_ticks(0, 1),
        y_ticks=share_ticks(0, 1),
        x_label="recall",
        y_label="precision",
        body=[area(x, y, recall, precision), line(x, y, recall, precision, "a"), *hover],
    )


def _rank_ticks(last: int) -> list[tuple[float, str]]:
    """Return rank 1 and round ranks up to ``last``; rank 0 does not exist."""
    if last <= 10:
        return [(rank, str(rank)) for rank in range(1, last + 1)]
    return [(1, "1"), *((tick, integer(tick)) for tick in round_ticks(0, last) if tick >= last / 20)]
