"""Charts of curves of one run or of several, and of values per query.

Curves are given by the name of their run; one alone has the name "", no legend, and some values beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from reid_dist.core.formatting import compact, counted, integer, percent, rate
from reid_dist.reports.breakdown_tables import INTERVALS
from reid_dist.reports.plots.chart import (
    Axis,
    Band,
    Bars,
    Chart,
    Dots,
    Float64,
    Layer,
    Line,
    Rule,
    empty_chart,
    log_ticks,
    round_ticks,
    share_axis,
    thinned,
)

Ends: TypeAlias = tuple[Float64, Float64, Float64]
"""Places, and the lower and upper ends of intervals there."""

Marked: TypeAlias = Sequence[tuple[str, float, float]]
"""Names of metrics, false accept rates and true accept rates."""

_NO_ENDS: Final[Ends] = (np.zeros(0), np.zeros(0), np.zeros(0))
_BINS: Final = 20
# Half a part in 10^12 is what 1 - TAR leaves of a zero.
_NO_ERRORS: Final = 5e-13
_WORDS: Final = {"P": "Precision", "R": "Recall"}


def curves_chart(title: str, x: Axis, y: Axis, layers: Sequence[Layer]) -> Chart:
    """Return a chart whose words are the ends of its lines."""
    lines = [layer for layer in layers if isinstance(layer, Line) and np.isfinite(layer.y).any()]
    texts = []
    for line in lines:
        known = np.flatnonzero(np.isfinite(line.y))[[0, -1]]
        ends = (f"{y.write(line.y[at])} at {x.name} {x.write(line.x[at])}" for at in dict.fromkeys(known.tolist()))
        texts.append(f"{line.name}: {', '.join(ends)}" if line.name else ", ".join(ends))
    return Chart(title=title, words=f"{title}: {'; '.join(texts)}", x=x, y=y, layers=layers)


def _is_alone(curves: Mapping[str, object]) -> bool:
    return [*curves] == [""]


def share_start(curves: Iterable[Float64]) -> float:
    """Return where the axis of shares starts: 0, or a round share below curves that are high throughout."""
    lowest = min((float(np.min(curve, initial=1.0, where=np.isfinite(curve))) for curve in curves), default=1.0)
    return 0.0 if lowest < 0.4 else min(0.9, math.floor(lowest * 10 - 0.5) / 10)


def rank_chart(
    name: str, curves: Mapping[str, Float64], *, ends: Mapping[str, Ends] | None = None, start: float | None = None
) -> Chart:
    """Return shares by rank, (max_rank,): a cumulative match characteristic, or mean precision or recall at k.

    A curve is NaN throughout where no query is valid.  `ends` are intervals by the name of the run: at single ranks
    for one run on a page, else at all.  `start` is where the vertical axis starts, by default `share_start`.
    """
    if not any(np.isfinite(curve).any() for curve in curves.values()):
        return empty_chart(f"{name}: no query is valid")
    last = max(map(len, curves.values()))
    words = _WORDS.get(name, name)
    # One rank alone is a dot in the middle of an axis around it.
    low, high = (1, last) if last > 1 else (0, 2)
    x = Axis(name="rank", low=low, high=high, ticks=_rank_ticks(last), write=integer)
    y = share_axis(words, share_start(curves.values()) if start is None else start)
    layers: list[Layer] = []
    for number, (run, curve) in enumerate(curves.items()):
        at, lower, upper = (ends or {}).get(run, _NO_ENDS)
        if len(at):
            upright = len(at) < len(curve)
            layers.append(Band(x=at, low=lower, high=upper, name=run, series=number, upright=upright))
    for number, (run, curve) in enumerate(curves.items()):
        ranks = thinned(len(curve)) + 1
        layers.append(Line(x=ranks.astype(np.float64), y=curve[ranks - 1], name=run, series=number))
    if _is_alone(curves):
        (curve,) = curves.values()
        shown = np.array(sorted(rank for rank in {1, 10, last} if rank in (1, last) or last >= 25), np.int64)
        layers.append(Dots(x=shown.astype(np.float64), y=curve[shown - 1], labelled=True))
    return curves_chart(f"{words} by rank", x, y, layers)


def _rank_ticks(last: int) -> list[tuple[float, str]]:
    """Return rank 1 and round ranks up to ``last``; rank 0 does not exist."""
    if last <= 10:
        return [(rank, str(rank)) for rank in range(1, last + 1)]
    return [(1, "1"), *((tick, integer(tick)) for tick in round_ticks(0, last) if tick >= last / 20)]


def precision_recall_chart(curves: Mapping[str, Float64]) -> Chart:
    """Return the mean interpolated precision at evenly spaced recall levels from 0 to 1, (levels,)."""
    layers = [
        Line(x=np.linspace(0, 1, len(curve)), y=curve, name=run, series=number, filled=_is_alone(curves))
        for number, (run, curve) in enumerate(curves.items())
        if len(curve) > 1 and np.isfinite(curve).any()
    ]
    if not layers:
        return empty_chart("precision and recall: no query is valid")
    return curves_chart("Precision by recall", share_axis("recall", write=_whole), share_axis("Precision"), layers)


def _whole(value: float) -> str:
    return f"{100 * value:.0f}%"


def roc_chart(curves: Mapping[str, tuple[Float64, Float64]], marked: Marked = ()) -> Chart:
    """Return the true accept rate against the false accept rate, the latter on a logarithmic axis.

    Both have shape (n_points,), the false accept rates first and ascending; a point of FAR 0 has no place on the axis.
    `marked` are the points that are metrics of the report.
    """
    y = share_axis("true accept rate (TAR)", write=rate)
    return _rates_chart("ROC", curves, y, {run: tar for run, (_, tar) in curves.items()}, marked)


def det_chart(curves: Mapping[str, tuple[Float64, Float64]], marked: Marked = ()) -> Chart:
    """Return the false reject rate 1 - TAR against the false accept rate, both on logarithmic axes.

    The dashed rule is where both are equal; a curve crosses it at the equal error rate.  Parameters are those of
    `roc_chart`; a point without false rejects has no place on the axis.
    """
    frr = {run: np.where(1.0 - tar > _NO_ERRORS, 1.0 - tar, np.nan) for run, (_, tar) in curves.items()}
    known = [
        rates[(far > 0) & np.isfinite(rates)] for rates, (far, _) in zip(frr.values(), curves.values(), strict=True)
    ]
    values = np.concatenate(known)  # without any, the chart is empty
    y = _decades("false reject rate (FRR)", values if len(values) else np.ones(1))
    inside = [(name, far, 1.0 - tar) for name, far, tar in marked if 1.0 - tar > _NO_ERRORS]
    return _rates_chart("DET", curves, y, frr, inside, Rule(at=None, name="FAR = FRR"))


def _rates_chart(
    title: str,
    curves: Mapping[str, tuple[Float64, Float64]],
    y: Axis,
    rates: Mapping[str, Float64],
    marked: Marked,
    *rules: Rule,
) -> Chart:
    layers: list[Layer] = [*rules]
    for number, (run, (far, _)) in enumerate(curves.items()):
        kept = np.flatnonzero((far > 0) & np.isfinite(rates[run]))
        if np.unique(far[kept]).size > 1:
            kept = kept[thinned(len(kept))]
            layers.append(Line(x=far[kept], y=rates[run][kept], name=run, series=number))
    lines = [layer for layer in layers if isinstance(layer, Line)]
    if not lines:
        return empty_chart(f"{title}: fewer than two points with errors above 0")
    x = _decades("false accept rate (FAR)", np.concatenate([each.x for each in lines]), 5)
    if marked and _is_alone(curves):
        titles = [f"{name}: {rate(b)} at FAR {rate(a)}" for name, a, b in marked]
        places = np.array([place for _, *place in marked])
        layers.append(Dots(x=places[:, 0], y=places[:, 1], titles=titles, labelled=True))
    return curves_chart(title, x, y, layers)


def _decades(name: str, values: Float64, most: int = 7) -> Axis:
    """Return a logarithmic axis around rates: whole decades, at least one."""
    low = 10.0 ** math.floor(math.log10(float(values.min())) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(float(values.max())) - 1e-9)
    low = low if low < high else high / 10
    ticks = [(tick, rate(tick)) for tick in log_ticks(low, high, most)]
    return Axis(name=name, low=low, high=high, ticks=ticks, write=rate, logarithmic=True)


def distractor_scale(n_rows: Sequence[int]) -> str:
    """Return which horizontal axis suits these sizes: ``logarithmic`` where they span a factor of ten or more."""
    return "logarithmic" if n_rows and 0 < 10 * min(n_rows) <= max(n_rows) else "linear"


def size_ends(tables: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Ends]:
    """Return the known intervals of a metric over gallery sizes, by the name of the run, from breakdowns of runs."""
    found = {}
    for run, table in tables.items():
        ends = np.array(table.get(INTERVALS, {}).get(name, ()), np.float64).reshape(-1, 2)
        known = np.isfinite(ends[:, 0])
        if known.any():
            found[run] = np.array(table["n_rows"], np.float64)[known], ends[known, 0], ends[known, 1]
    return found


def distractor_chart(
    name: str, curves: Mapping[str, tuple[Sequence[int], Float64]], ends: Mapping[str, Ends] | None = None
) -> Chart:
    """Return a metric, in 0 … 1, against the gallery rows that have entered, ascending; NaN leaves a gap.

    `ends` are intervals by the name of the run, at gallery sizes.
    """
    known = np.concatenate([values[np.isfinite(values)] for _, values in curves.values()])
    if not len(known):
        return empty_chart(f"{name}: no query is valid")
    known = np.concatenate([known, *(each for _, *of_run in (ends or {}).values() for each in of_run)])
    # A curve that falls from 83 to 79% would be a level line between 0 and 100%.
    low = max(0.0, math.floor(float(known.min()) * 20 - 0.5) / 20)
    high = min(1.0, math.ceil(float(known.max()) * 20 + 0.5) / 20)
    layers: list[Layer] = [
        Band(x=at, low=lower, high=upper, name=run, series=number)
        for number, run in enumerate(curves)
        for at, lower, upper in ([ends[run]] if ends and run in ends else [])
    ]
    for number, (run, (n_rows, values)) in enumerate(curves.items()):
        kept = thinned(len(n_rows))
        x, y = np.array(n_rows, np.float64)[kept], values[kept]
        layers.append(Line(x=x, y=y, name=run, series=number, dotted=True))
        if _is_alone(curves):
            outer = np.unique(np.flatnonzero(np.isfinite(y))[[0, -1]])
            layers.append(Dots(x=x[outer], y=y[outer], labelled=True))
    sizes = sorted({size for n_rows, _ in curves.values() for size in n_rows})
    return curves_chart(f"{name} by gallery rows", _size_axis(sizes), share_axis(name, low, high), layers)


def _size_axis(n_rows: Sequence[int]) -> Axis:
    first, last = n_rows[0], n_rows[-1]
    logarithmic = first < last and distractor_scale(n_rows) == "logarithmic"
    if first == last:  # one size alone is a dot in the middle of an axis around it
        low, high = 0, max(2 * last, 1)
    else:
        low, high = first if logarithmic or 2 * first >= last else 0, last
    ticks = log_ticks(low, high) if logarithmic else round_ticks(low, high)
    whole = [(tick, compact(tick)) for tick in ticks if tick == int(tick)]
    return Axis(name="gallery rows", low=low, high=high, ticks=whole, write=integer, logarithmic=logarithmic)


def query_histogram(name: str, values: Float64, *, series: int = 0, explorer: str = "") -> Chart:
    """Return how many queries have which value, in 20 bins from 0 to 1, and their mean.

    Values have shape (n_query,); NaN, for an invalid query, is left out.  With the address of an explorer whose filter
    is by these values, each bar leads to its queries there.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return empty_chart(f"{name}: no query is valid")
    edges = np.linspace(0, 1, _BINS + 1)
    # A share such as 3/20 belongs to the bin that it begins, whichever side of the edge its nearest float is on.
    places = np.clip(np.floor(finite * _BINS + 1e-9), 0, _BINS - 1).astype(np.int64)
    counts = np.bincount(places, minlength=_BINS)
    top = int(counts.max())
    ticks = [(tick, integer(tick)) for tick in round_ticks(0, top) if tick == int(tick)]
    high = max(top * 1.04, ticks[-1][0])
    y = Axis(name="queries", low=0, high=high, ticks=ticks, write=lambda number: counted(int(number), "query"))
    words = f"mean {percent(float(finite.mean()))}"
    layers: list[Layer] = [
        Bars(edges=edges, y=counts.astype(np.float64), series=series, links=_filters(explorer, edges)),
        Rule(at=float(finite.mean()), name=words, text=words),
    ]
    described = f"Histogram of {name} over {counted(len(finite), 'query')}, {words}"
    return Chart(title=f"Queries by {name}", words=described, x=share_axis(name, write=_whole), y=y, layers=layers)


def _filters(explorer: str, edges: Float64) -> list[str]:
    """Return addresses of the queries of each bin in an explorer, whose filter has both ends, to within 1e-6."""
    if not explorer:
        return []
    lows, highs = 100 * edges[:-1], 100 * edges[1:]
    # The upper end of a bin is in the next one.
    highs[:-1] -= 0.0002
    return [
        f"{explorer}#low={low:.6g}&high={high:.6g}" for low, high in zip(lows.tolist(), highs.tolist(), strict=True)
    ]
