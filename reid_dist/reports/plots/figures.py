"""Charts as figures of matplotlib, for papers (extra ``plot``).

The user's style sheet decides on fonts, colours and lines; what it leaves at the defaults of matplotlib is set for
papers: the colours of the pages, eight points, 300 pixels an inch, fonts that PDF files embed as a whole.
"""

from __future__ import annotations

import io
import math
from typing import Any, Final

import numpy as np

from reid_dist.core.formatting import first_few
from reid_dist.core.optional_packages import import_extra
from reid_dist.errors import InputError
from reid_dist.reports.plots.chart import (
    COLOURS,
    DASHES,
    Axis,
    Band,
    Bars,
    Chart,
    Dots,
    Line,
    Rule,
    Steps,
    style_of,
)

FORMATS: Final = ("pdf", "svg", "png")
"""Suffixes of the files of figures."""

ONE_COLUMN, TWO_COLUMNS = 3.25, 6.875
"""Widths in inches of a column, and of a page of two columns, as conferences on computer vision have them."""

_ASPECT: Final = 0.72
# Widths of a letter, and of the piece of line beside a name, as parts of the font size.
_LETTER, _SAMPLE = 0.55, 4.0
_LEGEND_ROW: Final = 1.5
_LEAST, _MOST = 0.5, 100  # inches or points
_EXTRA: Final = "plot"
_PURPOSE: Final = "a figure"
_FOR_PAPERS: Final = {
    "font.size": 8.0,
    "lines.linewidth": 1.25,
    "savefig.dpi": 300,
    "pdf.fonttype": 42,
    # Equal figures are equal files.
    "svg.hashsalt": "reid-dist",
}
_MARKERS: Final = {
    "dot": "o",
    "ring": "o",
    "best": "D",
    "diamond": "D",
    "up": "^",
    "down": "v",
    "square": "s",
    "cross": "x",
}
# Dates would make equal figures different files.
_METADATA: Final[dict[str, dict[str, None]]] = {"pdf": {"CreationDate": None}, "svg": {"Date": None}, "png": {}}


def plot_chart(chart: Chart, ax: Any = None) -> tuple[Any, Any]:
    """Draw a chart into axes of matplotlib, by default those of a new figure, and return figure and axes.

    What the axes hold already stays, and series go on after it.  InputError for a chart without values, or where
    matplotlib is not installed.
    """
    if not chart.layers:
        raise InputError(chart.words)
    if ax is None:
        _, ax = import_extra("matplotlib.pyplot", _EXTRA, _PURPOSE).subplots(layout="constrained")
    is_new, drawn = not ax.has_data(), len(ax.get_legend_handles_labels()[0])
    cycle = _own_colours()
    for layer in chart.layers:
        if isinstance(layer, Rule):
            _rule(ax, chart, layer)
            continue
        colour, dashes = style_of(layer.series + drawn)
        _layer(ax, layer, cycle[colour % len(cycle)], (0, DASHES[dashes]) if DASHES[dashes] else "-")
    _set_axis(ax, "x", chart.x, is_new=is_new)
    _set_axis(ax, "y", chart.y, is_new=is_new)
    ax.grid(visible=True, alpha=0.5)
    ax.set_axisbelow(True)
    handles, labels = ax.get_legend_handles_labels()
    if len(labels) > 1:
        ax.legend(handles, labels)
    return ax.get_figure(), ax


def figure_file(
    chart: Chart,
    form: str,
    *,
    width: float = ONE_COLUMN,
    height: float | None = None,
    font_size: float | None = None,
    style: str | None = None,
) -> bytes:
    """Return the file of a figure in one of `FORMATS`.

    Parameters
    ----------
    chart
        What is drawn.
    form
        ``pdf``, ``svg`` or ``png``.
    width, height
        In inches; the height is 0.72 of the width by default, and more for the legend.
    font_size
        In points, by default that of the style sheet, and 8 where it says nothing.
    style
        Name or file of a style sheet, which is followed after matplotlib's own configuration.

    Raises
    ------
    InputError
        For a chart without values, a size that no figure has, an unknown style sheet, or where matplotlib is not
        installed.
    """
    for what, value in (("width", width), ("height", height), ("font size", font_size)):
        if value is not None and not _LEAST <= value <= _MOST:
            raise InputError(f"the {what} of a figure must lie between {_LEAST} and {_MOST}, found {value:g}")
    matplotlib = import_extra("matplotlib", _EXTRA, _PURPOSE)
    styles = import_extra("matplotlib.style", _EXTRA, _PURPOSE)
    figures = import_extra("matplotlib.figure", _EXTRA, _PURPOSE)
    with matplotlib.rc_context():
        try:
            styles.use([] if style is None else style)
        except (OSError, ValueError) as error:
            known = first_few([name for name in styles.available if not name.startswith("_")], 5)
            raise InputError(f"no style sheet {style!r}: give a file, or a name such as {known}") from error
        settings = {key: value for key, value in _FOR_PAPERS.items() if _is_default(key)}
        matplotlib.rcParams.update(settings if font_size is None else settings | {"font.size": font_size})
        size = matplotlib.rcParams["font.size"] / 72
        names = [name for name, _ in chart.legend]
        columns = max(1, int(width / (size * (_LETTER * max(map(len, names), default=0) + _SAMPLE))))
        rows = math.ceil(len(names) / columns) if len(names) > 1 else 0
        tall = _ASPECT * width + _LEGEND_ROW * rows * size if height is None else height
        figure = figures.Figure(figsize=(width, tall), layout="constrained")
        _, axes = plot_chart(chart, figure.subplots())
        if (legend := axes.get_legend()) is not None:
            # Above the axes, where it hides nothing.
            legend.remove()
            figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=columns, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format=form, metadata=_METADATA[form])
    return file.getvalue()


def _is_default(setting: str) -> bool:
    matplotlib = import_extra("matplotlib", _EXTRA, _PURPOSE)
    return bool(matplotlib.rcParams[setting] == matplotlib.rcParamsDefault[setting])


def _own_colours() -> list[str]:
    """Colours of the user's style sheet, or those of the pages where it leaves them to matplotlib."""
    if _is_default("axes.prop_cycle"):
        return [colour.light for colour in COLOURS]
    cycle = import_extra("matplotlib", _EXTRA, _PURPOSE).rcParams["axes.prop_cycle"].by_key()
    return list(cycle.get("color", ["black"]))


def _layer(ax: Any, layer: Line | Steps | Bars | Band | Dots, colour: str, dashes: Any) -> None:
    look = {"color": colour, "label": _label(layer.name)}
    match layer:
        case Line():
            marker = "o" if layer.dotted else ""
            ax.plot(layer.x, layer.y, linestyle=dashes, marker=marker, markersize=3, **look)
            if layer.filled:
                ax.fill_between(layer.x, layer.y, color=colour, alpha=0.12, linewidth=0)
        case Steps():
            ax.stairs(layer.y, layer.edges, baseline=None, linestyle=dashes, **look)
            if layer.filled:
                ax.stairs(layer.y, layer.edges, fill=True, color=colour, alpha=0.12)
        case Bars():
            ax.bar(layer.edges[:-1], layer.y, width=np.diff(layer.edges), align="edge", edgecolor="white", **look)
        case Band() if layer.upright:
            ax.vlines(layer.x, layer.low, layer.high, color=colour, alpha=0.4)
        case Band():
            ax.fill_between(*layer.corners, color=colour, alpha=0.2, linewidth=0)
        case Dots():
            filled = "none" if layer.shape == "best" else "full"
            ax.plot(
                layer.x,
                layer.y,
                linestyle="",
                marker=_MARKERS[layer.shape],
                fillstyle=filled,
                markersize=4,
                color=colour,
            )


def _rule(ax: Any, chart: Chart, rule: Rule) -> None:
    look: dict[str, Any] = {"color": "gray", "linestyle": "--", "linewidth": 0.8}
    if rule.at is not None:
        ax.axvline(rule.at, **look)
    else:
        ends = [max(chart.x.low, chart.y.low), min(chart.x.high, chart.y.high)]
        ax.plot(ends, ends, **look)


def _label(name: str) -> str:
    """A text that matplotlib shows as it is: no formula, and not hidden for its underscore."""
    text = name.replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text


def _set_axis(ax: Any, side: str, axis: Axis, *, is_new: bool) -> None:
    """Name, scale, ends and ticks; those of what the axes hold already stay."""
    shown, low, high, ticks = getattr(ax, f"{side}axis"), axis.low, axis.high, dict(axis.ticks)
    if not is_new:
        before = getattr(ax, f"get_{side}lim")()
        low, high = min(low, *before), max(high, *before)
        labels = (label.get_text() for label in shown.get_ticklabels())
        ticks = dict(zip(shown.get_ticklocs(), labels, strict=False)) | ticks
    getattr(ax, f"set_{side}scale")("log" if axis.logarithmic else "linear")
    getattr(ax, f"set_{side}lim")(low, high)
    getattr(ax, f"set_{side}label")(axis.name)
    shown.set_ticks([*ticks], labels=[*ticks.values()])
    shown.set_ticks([], minor=True)
