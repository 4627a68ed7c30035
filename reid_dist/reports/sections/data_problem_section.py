"""Section of likely errors of the data: what to look at before the numbers are believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reid_dist.core.formatting import counted, integer
from reid_dist.reports.data_problems import EXPECTED
from reid_dist.reports.ranked_pictures import Pictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Row, Table
from reid_dist.reports.words import distance

# Labels of the two items of a pair, and the entries that have them.
_ENTRIES = {"pid": "pids", "camera": "camids", "file": "paths"}
_EVIDENCE = (
    "Evidence is the distance from the median score in robust standard deviations; without wrong labels, normally "
    f"distributed scores would exceed the limit {EXPECTED:g} times."
)


def data_problems(report: ReportData) -> list[Table]:
    """Return the tables of the section; none where nothing was found."""
    problems = report.data_problems
    return [] if problems is None else list(_tables(problems, report.pictures or Pictures()))


def _tables(problems: Mapping[str, Any], pictures: Pictures) -> Iterator[Table]:
    # Those of reports of earlier versions have no evidence.
    identities, suspects = (
        [each for each in problems[name] if "evidence" in each] for name in ("identities", "suspects")
    )
    if identities:
        yield _table(
            "doubtful identity pair",
            problems["n_identities"],
            [*_item_columns(identities, "", ""), Column("evidence")],
            [[*_items(each, pictures), f"{each['evidence']:.1f}"] for each in identities],
            "The queries of each identity are closer to items of the other one than is usual between identities: "
            f"perhaps one identity with two labels. {_EVIDENCE}",
        )
    if suspects:
        yield _table(
            "doubtful label",
            problems["n_suspects"],
            [
                Column("doubtful", Kind.TEXT),
                *_item_columns(suspects),
                *map(Column, ("distance", "own distance", "evidence")),
            ],
            [
                [
                    each["side"],
                    *_items(each, pictures),
                    distance(each["distance"]),
                    distance(each["own"]),
                    f"{each['evidence']:.1f}",
                ]
                for each in suspects
            ],
            "A row that is far from its own identity (own distance: the median of its relevant pairs), and near a row "
            f"of another identity, shown next to it: perhaps a wrong label, or a look-alike. {_EVIDENCE}",
        )
    if problems["duplicates"]:
        yield _table(
            "duplicate",
            problems["n_duplicates"],
            [*_item_columns(problems["duplicates"]), Column("distance"), Column("relevant", Kind.TEXT)],
            [
                [*_items(each, pictures), distance(each["distance"]), "yes" if each["relevant"] else "no"]
                for each in problems["duplicates"]
            ],
            "A query and a kept gallery item with equal features, or nearly so: perhaps one picture in both sets. A "
            "relevant duplicate makes its query easy; any other duplicate suggests a wrong label.",
        )
    if problems["cameras"]:
        yield Table(
            title="Shifts of cameras",
            columns=[Column("camera", Kind.NAME), *map(Column, ("identities", "shift"))],
            rows=[
                (str(each["camid"]), integer(each["n_identities"]), f"{100 * each['shift']:.0f}%")
                for each in problems["cameras"]
            ],
            notes=[
                Note(
                    "How far this camera shifts features, relative to their spread within a camera, from a sample of "
                    "the gallery. A shift is not a data error; the expansion camera_norm removes it."
                )
            ],
        )


def _table(noun: str, n: int, columns: Sequence[Column], rows: Sequence[Row], words: str) -> Table:
    title = counted(n, noun)
    if n > len(rows):
        title += f", the first {integer(len(rows))}"
    return Table(title=title, columns=columns, rows=rows, notes=[Note(words)])


def _item_columns(pairs: Sequence[Mapping[str, Any]], *sides: str) -> list[Column]:
    """Columns of the labels of both items of each pair."""
    names = ["row", *(name for name, entry in _ENTRIES.items() if entry in pairs[0])]
    kinds = {"file": Kind.FILE}
    return [
        Column(f"{side} {name}".strip(), kinds.get(name, Kind.NUMBER))
        for side in sides or ("query", "gallery")
        for name in names
    ]


def _items(pair: Mapping[str, Any], pictures: Pictures) -> list[Cell]:
    """Row, labels and file of both items of a pair, of two queries or one of each side; the file with its picture."""
    items = [(side, pair[side]) for side in ("query", "gallery") if side in pair]
    cells = []
    for at, (side, row) in enumerate(items or [("query", row) for row in pair["queries"]]):
        cells.append(Cell(str(row)))
        for name, entry in _ENTRIES.items():
            if entry in pair:
                image = pictures.thumbnail(side, row) if name == "file" else None
                cells.append(Cell(str(pair[entry][at]), image=image))
    return cells
