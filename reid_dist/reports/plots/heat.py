"""A number for every pair of a query camera and a gallery camera, as a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from reid_dist.core.formatting import integer, percent, shortened
from reid_dist.reports.plots.frame import WIDTH, at, nothing, svg, text

_LEFT, _TOP, _EDGE = 58, 48, 6
_ROW = 30
_NARROWEST = 40  # of a cell: "100.0" in the font of the page
_STRONGEST = 0.45  # of the colour: the number on it stays readable in both schemes
_LETTER = 7.0  # width of a letter in the font of the page, if it is no narrow one
_MOST_LETTERS = 14  # of a camera's name; the whole name is in the tooltip of a cell
_BESIDE = 20  # of a name to the left of its row

Cameras = Sequence[int | str]


@dataclass(frozen=True)
class _Grid:
    """Positions of rows and columns: wide enough for the names of both."""

    rows: list[str]
    columns: list[str]

    @classmethod
    def of(cls, query_camids: Cameras, gallery_camids: Cameras) -> _Grid:
        sides = (query_camids, gallery_camids)
        return cls(*([shortened(str(camid), _MOST_LETTERS) for camid in camids] for camids in sides))

    @property
    def left(self) -> float:
        return max(_LEFT, _BESIDE + _LETTER * _longest(self.rows))

    @property
    def width(self) -> float:
        """Of a column."""
        narrowest = max(_NARROWEST, _LETTER * (_longest(self.columns) + 1))
        return max(narrowest, (WIDTH - self.left - _EDGE) / len(self.columns))

    @property
    def full(self) -> float:
        return self.left + len(self.columns) * self.width + _EDGE


def heat_map_is_wide(query_camids: Cameras, gallery_camids: Cameras) -> bool:
    """Whether the drawing needs the width of the page, for the number of its columns or for their names."""
    return _Grid.of(query_camids, gallery_camids).full > WIDTH + 1e-9


def heat_map(
    name: str,
    query_camids: Cameras,
    gallery_camids: Cameras,
    values: Sequence[Sequence[float | None]],
    n_valid: Sequence[Sequence[int]],
) -> Markup:
    """Draw a metric by camera pair, in percent; None is a cell without a valid query.

    The view box is 440 wide for up to nine columns of short names, and grows beyond that.
    """
    known = [value for row in values for value in row if value is not None]
    if not known:
        return nothing(f"{name} by camera pair: no query is valid")
    grid = _Grid.of(query_camids, gallery_camids)
    left, width, full = grid.left, grid.width, grid.full
    lowest, highest = min(known), max(known)
    parts = [
        text(left + (column + 0.5) * width, _TOP - 8, words, anchor="middle")
        for column, words in enumerate(grid.columns)
    ]
    for row, camid in enumerate(query_camids):
        middle = _TOP + (row + 0.5) * _ROW + 4.5
        parts.append(text(left - 10, middle, grid.rows[row], anchor="end"))
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
                    at(left + column * width + 1),
                    at(_TOP + row * _ROW + 1),
                    at(width - 2),
                    at(_ROW - 2),
                    f"{strength:.2f}",
                    text(
                        left + (column + 0.5) * width,
                        middle,
                        number,
                        anchor="middle",
                        style="" if value is None else "value",
                    ),
                )
            )
    axes = text(left + len(gallery_camids) * width / 2, 14, "gallery camera", anchor="middle", style="name") + text(
        6, _TOP - 8, "query", style="name"
    )
    words = (
        f"{name} by query camera (rows) and gallery camera (columns): {percent(lowest)} to {percent(highest)} over "
        f"{integer(len(known))} pairs"
    )
    # Wider than half a page, it is neither squeezed until nothing can be read, nor blown up to the whole width.
    widths = (round(full * 0.75), f"{round(full * 1.25)}px") if full > WIDTH else (0, "none")
    return svg(
        words,
        [axes, *parts],
        width=round(full, 1),
        height=_TOP + len(query_camids) * _ROW + _EDGE,
        style="min-width:{}px;max-width:{}".format(*widths),
    )


def _longest(names: Sequence[str]) -> int:
    return max(map(len, names), default=0)
