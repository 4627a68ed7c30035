"""A chart as values: two axes and layers of data, which pages, files and figures for papers draw alike.

Layers are in the units of the axes; NaN leaves a gap.  A layer of series n has its colour and dashes, and a name is in
the legend.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import percent
from reid_dist.reports.tabular.csv_text import csv_table
from reid_dist.reports.words import is_share, metric_value

Float64 = NDArray[np.float64]
Ticks: TypeAlias = Sequence[tuple[float, str]]

MOST_POINTS: Final = 400  # more than there are pixels


class Colour(NamedTuple):
    """A colour on white, and its counterpart on a dark page."""

    light: str
    dark: str


# Told apart with normal vision, protanopia and deuteranopia; in print without colours, dashes tell lines apart.
COLOURS: Final = (
    Colour("#2457c5", "#86aeff"),
    Colour("#b4540a", "#f2a65a"),
    Colour("#1b1f24", "#ffffff"),
    Colour("#3d99a8", "#2fa39a"),
    Colour("#c9407f", "#d65fc0"),
    Colour("#4a1a80", "#f4f07a"),
    Colour("#a8932a", "#b8625a"),
    Colour("#0a5f55", "#6a6af0"),
)
DASHES: Final[tuple[tuple[float, ...], ...]] = (
    (),
    (4, 2.5),
    (1, 2),
    (6, 2, 1, 2),
    (8, 2.5),
    (2.5, 2),
    (6, 2, 1, 2, 1, 2),
    (1, 4),
)
"""Lengths of strokes and gaps, in widths of the line; none for a solid one."""


def style_of(series: int) -> tuple[int, int]:
    """Return positions of the colour and the dashes of a series; 64 of them differ."""
    return series % len(COLOURS), (series + series // len(COLOURS)) % len(DASHES)


@dataclass(frozen=True, kw_only=True)
class Axis:
    """A scale from `low` to `high`, with its labelled ticks; on a logarithmic one values are positive.

    `write` gives a value as it is written beside a point.
    """

    name: str
    low: float
    high: float
    ticks: Ticks
    write: Callable[[float], str]
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return where a value is between `low`, 0, and `high`, 1."""
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def holds(self, value: float) -> bool:
        """Whether a value is between the ends."""
        return self.low <= value <= self.high


@dataclass(frozen=True, kw_only=True, eq=False)
class _Named:
    """A layer of data with its name in the legend and its style."""

    name: str = ""
    series: int = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Line(_Named):
    """A line through points, with the area below it if it is `filled`, and a dot at each point if it is `dotted`."""

    x: Float64
    y: Float64
    filled: bool = False
    dotted: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps(_Named):
    """A value, (n,), from each of the edges, (n + 1,), to the next, with the area below if it is `filled`."""

    edges: Float64
    y: Float64
    filled: bool = False

    @property
    def x(self) -> Float64:
        """Where each step begins."""
        return self.edges[:-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Bars(_Named):
    """A bar of a height, (n,), from each of the edges, (n + 1,), to the next; `links` are addresses, one for each."""

    edges: Float64
    y: Float64
    links: Sequence[str] = ()

    @property
    def x(self) -> Float64:
        """Where each bar begins."""
        return self.edges[:-1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Band(_Named):
    """Intervals from `low` to `high` at `x`: an area, `half` wide on either side of each, or upright lines."""

    x: Float64
    low: Float64
    high: Float64
    half: float = 0.0
    upright: bool = False

    @property
    def corners(self) -> tuple[Float64, Float64, Float64]:
        """Places, lower and upper ends of the area."""
        if not self.half:
            return self.x, self.low, self.high
        sides = np.repeat(self.x, 2) + np.tile([-self.half, self.half], len(self.x))
        return sides, np.repeat(self.low, 2), np.repeat(self.high, 2)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dots(_Named):
    """Single points of a shape, with texts under the pointer, and with their values beside them if `labelled`.

    Shapes are ``dot``, ``ring``, ``best`` (a diamond around a point), ``diamond``, ``up``, ``down``, ``square`` and
    ``cross``.
    """

    x: Float64
    y: Float64
    shape: str = "dot"
    titles: Sequence[str] = ()
    labelled: bool = False


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A dashed upright line at a value of the horizontal axis, or where both axes are equal (None).

    `text` stands above it, `name` is shown under the pointer.
    """

    at: float | None
    name: str = ""
    text: str = ""


Layer: TypeAlias = Line | Steps | Bars | Band | Dots | Rule


@dataclass(frozen=True, kw_only=True, eq=False)
class Chart:
    """Axes and layers, drawn in their order.

    The title says what is drawn against what; `words` describe the chart to those who do not see it, and are all that
    a chart without layers has.
    """

    title: str
    words: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]

    @property
    def legend(self) -> list[tuple[str, int]]:
        """Names of the layers with their series, each once."""
        named = (layer for layer in self.layers if isinstance(layer, Line | Steps | Bars) and layer.name)
        return list(dict.fromkeys((layer.name, layer.series) for layer in named))

    def to_csv(self) -> str:
        """Return a line for each point: series, place, value, and ends of its interval."""
        found: dict[tuple[str, float], dict[str, float]] = {}
        for layer in self.layers:
            if isinstance(layer, Rule):
                continue
            columns = {"low": layer.low, "high": layer.high} if isinstance(layer, Band) else {"value": layer.y}
            for column, values in columns.items():
                for place, value in zip(layer.x.tolist(), values.tolist(), strict=True):
                    row = found.setdefault((layer.name, place), {})
                    if math.isfinite(value):
                        row[column] = value
        heads = ("series", self.x.name, self.y.name, "low", "high")
        names = list(dict.fromkeys(name for name, _ in found))
        keys = sorted(found, key=lambda key: (names.index(key[0]), key[1]))
        return csv_table(heads, ([*key, *map(found[key].get, ("value", "low", "high"))] for key in keys))


def empty_chart(words: str) -> Chart:
    """Return the chart of nothing: its words say why there is none."""
    none = Axis(name="", low=0, high=1, ticks=(), write=str)
    return Chart(title="", words=words, x=none, y=none, layers=())


def runs(values: Float64) -> list[list[int]]:
    """Return the positions of every unbroken run of finite values."""
    finite = np.isfinite(values).tolist()
    known = groupby(range(len(finite)), key=finite.__getitem__)
    return [list(run) for is_known, run in known if is_known]


def thinned(n_points: int) -> NDArray[np.int64]:
    """Return the positions of at most 400 of ``n_points`` points, evenly spread, first and last among them."""
    return np.unique(np.linspace(0, n_points - 1, min(n_points, MOST_POINTS)).round().astype(np.int64))


def padded(low: float, high: float, *, spread: float, level: float) -> tuple[float, float]:
    """Return the ends of an axis around values; the margin is a share of their spread, or of their size if they agree.

    Values that agree to the last digits shown are then a level line in the middle.
    """
    margin = max(spread * (high - low), level * max(abs(low), abs(high)), 1e-9)
    return low - margin, high + margin


def round_ticks(low: float, high: float) -> list[float]:
    """Return three to six round values from ``low`` to ``high``, both in reach of a step of 1, 2 or 5."""
    rough = (high - low) / 5
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(size * magnitude for size in (1, 2, 5, 10) if size * magnitude >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(count * step, 12) for count in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Return up to ``most`` values from ``low`` to ``high``: powers of ten, and some between where those are few."""
    decades = math.log10(high / low)
    steps = (1,) if decades >= 2.5 else (1, 3) if decades >= 1.2 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [float(f"{step * 10.0**power:.12g}") for power in powers for step in steps]
    inside = [tick for tick in found if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    return inside[:: math.ceil(len(inside) / most)] if len(inside) > 1 else [low, high]


def share_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Return round shares and how they are written, in percent with as few decimals as they need."""
    return [(tick, f"{round(100 * tick, 6):g}%") for tick in round_ticks(low, high)]


def number_axis(name: str, low: float, high: float, write: Callable[[float], str] = "{:.6g}".format) -> Axis:
    """Return an axis of plain numbers."""
    ticks = [(tick, f"{tick:g}") for tick in round_ticks(low, high) if low <= tick <= high]
    return Axis(name=name, low=low, high=high, ticks=ticks, write=write)


def share_axis(name: str, low: float = 0.0, high: float = 1.0, write: Callable[[float], str] = percent) -> Axis:
    """Return an axis of shares of one, in percent."""
    return Axis(name=name, low=low, high=high, ticks=share_ticks(low, high), write=write)


def metric_axis(name: str, low: float, high: float) -> Axis:
    """Return an axis of a metric: shares in percent, other values as they are."""
    make = share_axis if is_share(name) else number_axis
    return make(name, low, high, lambda value: metric_value(name, value))


def as_values(values: Sequence[float | None]) -> Float64:
    """Return values as an array, (n,): NaN for None."""
    return np.array([math.nan if value is None else value for value in values], np.float64)
