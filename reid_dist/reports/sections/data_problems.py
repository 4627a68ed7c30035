"""Section of likely errors of the data: what to look at before the numbers are believed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reid_dist.core.formatting import counted, integer, share
from reid_dist.reports.report_data import ReportData


def data_problems(report: ReportData) -> list[dict[str, Any]]:
    """Return the tables of the section, each with title, heads, rows and words; none where nothing was found."""
    problems = report.data_problems
    return [] if problems is None else list(_tables(problems))


def _tables(problems: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if problems["identities"]:
        yield _table(
            "doubtful identity pair",
            problems["n_identities"],
            ("pid", "pid", "suspect queries"),
            [(*each["pids"], integer(each["n_queries"])) for each in problems["identities"]],
            "Pairs of identities, of each of which half of the queries or more have an item of the other one that is "
            "suspect as below: perhaps one identity with two labels.",
        )
    if problems["suspects"]:
        yield _table(
            "suspect pair",
            problems["n_suspects"],
            (*_heads(problems["suspects"]), "distance", "of the median"),
            [(*_labels(each), f"{each['distance']:.4g}", _ratio(each)) for each in problems["suspects"]],
            "A query and a kept gallery item of another identity, nearer than half of the genuine pairs of the query's "
            "identity and half of those of the item's: perhaps a wrong label, or a look-alike.",
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
        yield {
            "title": "Shifts of cameras",
            "heads": ("camera", "identities", "shift"),
            "rows": [
                (str(each["camid"]), integer(each["n_identities"]), f"{100 * each['shift']:.0f} %")
                for each in problems["cameras"]
            ],
            "words": "Mean difference of the features of an identity in this camera from those in other cameras, of "
            "the spread of its features within a camera, from a sample of the gallery. The expansion camera_norm "
            "removes such shifts.",
        }


def _table(noun: str, n: int, heads: Sequence[str], rows: Sequence[Sequence[Any]], words: str) -> dict[str, Any]:
    title = counted(n, noun)
    if n > len(rows):
        title += f", the first {integer(len(rows))}"
    return {"title": title, "heads": heads, "rows": [[str(cell) for cell in row] for row in rows], "words": words}


def _heads(pairs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    cameras = ("query camera", "gallery camera") if "camids" in pairs[0] else ()
    return ("query row", "gallery row", "query pid", "gallery pid", *cameras)


def _labels(pair: Mapping[str, Any]) -> tuple[Any, ...]:
    return (pair["query"], pair["gallery"], *pair["pids"], *pair.get("camids", ()))


def _ratio(pair: Mapping[str, Any]) -> str:
    return share(pair["distance"], pair["median"]) if pair["median"] > 0 else "-"
