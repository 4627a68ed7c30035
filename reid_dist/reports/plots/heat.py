"""A number for every pair of a query camera and a gallery camera, as a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from reid_dist.reports.plots.frame import WIDTH, at, nothing
from reid_dist.reports.words import integer, percent

__all__ = ["heat_map"]

_LEFT, _TOP, _EDGE = 58, 48, 6
_ROW = 30
_NARROWEST = 40  # of a cell: "100.0" in the font of the page
_STRONGEST = 0.45  # of the colour: the number on it stays readable in both schemes


def heat_map(
    name: str,
    query_camids: Sequence[int],
    gallery_camids: Sequence[int],
    values: Sequence[Sequence[float | None]],
    n_valid: Sequence[Sequence[int]],
) -> Markup:
    """Draw a metric by camera pair; the number stands in every cell, in percent.

    Parameters
    ----------
    name
        The metric.
    query_camids, gallery_camids
        Labels of the rows and of the columns.
    values
        One row per query camera: shares in 0 … 1, None where no query is valid.
    n_valid
        Valid queries behind each of them.

    Returns
    -------
    An SVG; its view box is 440 wide for up to nine columns and grows beyond that.
    """
    known = [value for row in values for value in row if value is not None]
    if not known:
        return nothing(f"{name} by camera pair: no query is valid")
    width = max(_NARROWEST, (WIDTH - _LEFT - _EDGE) / len(gallery_camids))
    lowest, highest = min(known), max(known)
    parts = [
        _text(_LEFT + (column + 0.5) * width, _TOP - 8, "middle", str(camid))
        for column, camid in enumerate(gallery_camids)
    ]
    for row, camid in enumerate(query_camids):
        middle = _TOP + (row + 0.5) * _ROW + 4.5
        parts.append(_text(_LEFT - 10, middle, "end", str(camid)))
        for column, other in enumerate(gallery_camids):
            value, n = values[row][column], n_valid[row][column]
            if value is None:
                number, strength, words = "-", 0.0, "no valid query"
            else:
                number, words = f"{100 * value:.1f}", f"{name} {percent(value)}, {integer(n)} valid queries"
                strength = _STRONGEST * ((value - lowest) / (highest - lowest) if highest > lowest else 0.5)
            parts.append(
                Markup(
                    '<g><title>{}</title><rect class="cell{}" x="{}" y="{}" width="{}" height="{}" '
                    'fill-opacity="{}"/>{}</g>'
                ).format(
                    f"query camera {camid}, gallery camera {other}: {words}",
                    "" if value is not None else " none",
                    at(_LEFT + column * width + 1),
                    at(_TOP + row * _ROW + 1),
                    at(width - 2),
                    at(_ROW - 2),
                    f"{strength:.2f}",
                    _text(
                        _LEFT + (column + 0.5) * width, middle, "middle", number, "value" if value is not None else ""
                    ),
                )
            )
    full = _LEFT + len(gallery_camids) * width + _EDGE
    axes = _text(_LEFT + len(gallery_camids) * width / 2, 14, "middle", "gallery camera", "name") + _text(
        6, _TOP - 8, "start", "query", "name"
    )
    words = (
        f"{name} by query camera (rows) and gallery camera (columns): {percent(lowest)} to {percent(highest)} over "
        f"{integer(len(known))} pairs"
    )
    return Markup(
        '<svg class="plot" style="min-width:{}px" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(
        round(full * 0.75) if full > WIDTH else 0,
        at(full),
        _TOP + len(query_camids) * _ROW + _EDGE,
        words,
        axes + Markup("").join(parts),
    )


def _text(x: float, y: float, anchor: str, words: str, style: str = "") -> Markup:
    return Markup('<text class="{}" x="{}" y="{}" text-anchor="{}">{}</text>').format(
        style, at(x), at(y), anchor, words
    )
