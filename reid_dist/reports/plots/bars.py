"""How many queries have which value."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, integer, percent, share
from reid_dist.reports.plots.frame import (
    TOP,
    LinearAxis,
    at,
    frame,
    nothing,
    round_ticks,
    rule,
    share_ticks,
    text,
    x_ends,
    y_ends,
)

_BINS = 20


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
        return nothing(f"{name}: no query is valid")
    counts, edges = np.histogram(np.clip(finite, 0, 1), bins=_BINS, range=(0, 1))
    top = int(counts.max())
    ticks = [tick for tick in round_ticks(0, top) if tick == int(tick)]
    x = LinearAxis(low=0, high=1, **x_ends())
    y = LinearAxis(low=0, high=max(top * 1.04, ticks[-1]), **y_ends())
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
        f"Histogram of {name} over {counted(len(finite), 'query')}, mean {percent(mean)}",
        x=x,
        y=y,
        x_ticks=share_ticks(0, 1),
        y_ticks=[(tick, integer(tick)) for tick in ticks],
        x_label=name,
        y_label="queries",
        body=[*bars, *mark],
    )
