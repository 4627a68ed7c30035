"""Section of likely errors of the data: what to look at before the numbers are believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reid_dist.core.formatting import counted, integer
from reid_dist.reports.data_problems import EXPECTED
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Column, Kind, Note, Table

_TEXTS = ("doubtful", "file", "relevant")
_EVIDENCE = (
    "Evidence is the distance from the median score in units of the usual spread; without any wrong label, a normal "
    f"distribution of scores would show {EXPECTED:g} of them."
)


def data_problems(report: ReportData) -> list[Table]:
    """Return the tables of the section; none where nothing was found."""
    problems = report.data_problems
    return [] if problems is None else list(_tables(problems))


def _tables(problems: Mapping[str, Any]) -> Iterator[Table]:
    # Those of reports of earlier versions have no evidence.
    identities, suspects = (
        [each for each in problems[name] if "evidence" in each] for name in ("identities", "suspects")
    )
    if identities:
        yield _table(
            "doubtful identity pair",
            problems["n_identities"],
            ("pid", "pid", "query row", "query row", *_file_heads(identities), "evidence"),
            [
                (*each["pids"], *each["queries"], *each.get("paths", ()), f"{each['evidence']:.1f}")
                for each in identities
            ],
            "The queries of each of the two are nearer to items of the other one than those of most identities are to "
            f"any other: perhaps one identity with two labels. {_EVIDENCE}",
        )
    if suspects:
        yield _table(
            "doubtful label",
            problems["n_suspects"],
            ("doubtful", *_heads(suspects), "distance", "own distance", "evidence"),
            [
                (
                    f"{each['side']} {each[each['side']]}",
                    *_labels(each),
                    f"{each['distance']:.4g}",
                    f"{each['own']:.4g}",
                    f"{each['evidence']:.1f}",
                )
                for each in suspects
            ],
            "A row that is far from its own identity (own distance: the median of its relevant pairs), and near to a "
            f"row of another one, which is beside it: perhaps a wrong label, or a look-alike. {_EVIDENCE}",
        )
    if problems["duplicates"]:
        yield _table(
            "duplicate",
            problems["n_duplicates"],
            (*_heads(problems["duplicates"]), "distance", "relevant"),
            [
                (*_labels(each), f"{each['distance']:.4g}", "yes" if each["relevant"] else "no")
                for each in problems["duplicates"]
            ],
            "A query and a kept gallery item with equal features, or nearly so: perhaps one picture in both sets. A "
            "relevant one makes the query easy, another one has a wrong label.",
        )
    if problems["cameras"]:
        yield Table(
            title="Shifts of cameras",
            columns=[Column("camera", Kind.NAME), *map(Column, ("identities", "shift"))],
            rows=[
                (str(each["camid"]), integer(each["n_identities"]), f"{100 * each['shift']:.0f} %")
                for each in problems["cameras"]
            ],
            notes=[
                Note(
                    "How far this camera shifts features, relative to their spread within a camera, from a sample of "
                    "the gallery. The expansion camera_norm removes such shifts."
                )
            ],
        )


def _table(noun: str, n: int, heads: Sequence[str], rows: Sequence[Sequence[Any]], words: str) -> Table:
    title = counted(n, noun)
    if n > len(rows):
        title += f", the first {integer(len(rows))}"
    columns = [Column(head, Kind.TEXT if head in _TEXTS else Kind.NUMBER) for head in heads]
    return Table(title=title, columns=columns, rows=[[*map(str, row)] for row in rows], notes=[Note(words)])


def _heads(pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    cameras = ("query camera", "gallery camera") if "camids" in pairs[0] else ()
    return ("query row", "gallery row", "query pid", "gallery pid", *cameras, *_file_heads(pairs))


def _file_heads(pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    return ("file", "file") if "paths" in pairs[0] else ()


def _labels(pair: Mapping[str, Any]) -> tuple[Any, ...]:
    return (pair["query"], pair["gallery"], *pair["pids"], *pair.get("camids", ()), *pair.get("paths", ()))
