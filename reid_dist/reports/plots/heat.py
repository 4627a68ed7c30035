"""A number for every pair of a query camera and a gallery camera, as a grid of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from reid_dist.core.formatting import integer, percent, shortened
from reid_dist.reports.plots.chart_svg import WIDTH, at, nothing, svg, text
from reid_dist.reports.tabular.csv_text import csv_table

_LEFT, _TOP, _EDGE = 58, 48, 6
_ROW = 30
_NARROWEST = 40  # of a cell: "100.0" in the font of the page
_STRONGEST = 0.45  # of the colour: the number on it stays readable in both schemes
_LETTER = 7.0  # width of a letter in the font of the page, if it is no narrow one
_MOST_LETTERS = 14  # of a camera's name; the whole name is in the tooltip of a cell
_BESIDE = 20  # of a name to the left of its row


@dataclass(frozen=True, kw_only=True)
class HeatMap:
    """A metric by camera pair; None is a cell without a valid query.

    The view box is 440 wide for up to nine columns of short names, and grows beyond that.
    """

    metric: str
    query_camids: Sequence[int | str]
    gallery_camids: Sequence[int | str]
    values: Sequence[Sequence[float | None]]
    n_valid: Sequence[Sequence[int]]

    @property
    def title(self) -> str:
        """What is drawn against what; empty for nothing."""
        return f"{self.metric} by camera pair" if self._known else ""

    @property
    def is_wide(self) -> bool:
        """Whether the drawing needs the width of the page, for the number of its columns or for their names."""
        return self._full > WIDTH + 1e-9

    @property
    def _known(self) -> list[float]:
        return [value for row in self.values for value in row if value is not None]

    @property
    def _left(self) -> float:
        return max(_LEFT, _BESIDE + _LETTER * _longest(self.query_camids))

    @property
    def _width(self) -> float:
        """Of a column: wide enough for its name."""
        narrowest = max(_NARROWEST, _LETTER * (_longest(self.gallery_camids) + 1))
        return max(narrowest, (WIDTH - self._left - _EDGE) / len(self.gallery_camids))

    @property
    def _full(self) -> float:
        return self._left + len(self.gallery_camids) * self._width + _EDGE

    def to_csv(self) -> str:
        """Return a line for each pair: cameras, value, and number of valid queries."""
        rows = [
            [query, gallery, value, n]
            for query, values, counts in zip(self.query_camids, self.values, self.n_valid, strict=True)
            for gallery, value, n in zip(self.gallery_camids, values, counts, strict=True)
        ]
        return csv_table(("query camera", "gallery camera", self.metric, "valid queries"), rows)

    def to_svg(self) -> Markup:
        """Return the drawing, with values in percent."""
        known = self._known
        if not known:
            return nothing(f"{self.metric} by camera pair: no query is valid")
        left, width, full = self._left, self._width, self._full
        lowest, highest = min(known), max(known)
        parts = [
            text(left + len(self.gallery_camids) * width / 2, 14, "gallery camera", anchor="middle", style="name"),
            text(6, _TOP - 8, "query", style="name"),
        ]
        parts += [
            text(left + (column + 0.5) * width, _TOP - 8, _short(camid), anchor="middle")
            for column, camid in enumerate(self.gallery_camids)
        ]
        for row, camid in enumerate(self.query_camids):
            middle = _TOP + (row + 0.5) * _ROW + 4.5
            parts.append(text(left - 10, middle, _short(camid), anchor="end"))
            for column, other in enumerate(self.gallery_camids):
                value, n = self.values[row][column], self.n_valid[row][column]
                if value is None:
                    number, strength, words = "-", 0.0, "no valid query"
                else:
                    number, words = f"{100 * value:.1f}", f"{self.metric} {percent(value)}, {integer(n)} valid queries"
                    strength = _STRONGEST * ((value - lowest) / (highest - lowest) if highest > lowest else 0.5)
                style = "" if value is None else "number"
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
                        text(left + (column + 0.5) * width, middle, number, anchor="middle", style=style),
                    )
                )
        words = (
            f"{self.metric} by query camera (rows) and gallery camera (columns): {percent(lowest)} to "
            f"{percent(highest)} over {integer(len(known))} pairs"
        )
        # Wider than half a page, it is neither squeezed until nothing can be read, nor blown up to the whole width.
        widths = (round(full * 0.75), f"{round(full * 1.25)}px") if full > WIDTH else (0, "none")
        return svg(
            words,
            parts,
            width=round(full, 1),
            height=_TOP + len(self.query_camids) * _ROW + _EDGE,
            style="min-width:{}px;max-width:{}".format(*widths),
        )


def _short(camid: int | str) -> str:
    return shortened(str(camid), _MOST_LETTERS)


def _longest(camids: Sequence[int | str]) -> int:
    return max((len(_short(camid)) for camid in camids), default=0)
