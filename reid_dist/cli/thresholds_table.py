"""Operating points on the console, in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from reid_dist.core.findings import before_and_below
from reid_dist.core.formatting import counted, duration
from reid_dist.reports.console import fact_table, print_parts, value_table
from reid_dist.reports.operating_points import OperatingPoints
from reid_dist.reports.sections.operating_point_section import error_rows, point_rows
from reid_dist.reports.words import RATES, call, named, resampled


def print_operating_points(found: OperatingPoints) -> None:
    """Print the table of thresholds, the errors of calibrations, and facts; plain text where that is no terminal."""
    document = found.to_dict()
    title, *others = found.heading.lines
    warnings, notes = before_and_below(found.findings)
    head = [Text(title, style="bold"), *map(Text, [*others, *warnings])]
    print_parts(*head, *_tables(document), fact_table([*_facts(found, document).items(), *notes]))


def _tables(document: dict[str, Any]) -> Iterator[Table]:
    rows = point_rows(document)
    table = value_table("point", "threshold", *RATES)
    for row in rows:
        table.add_row(row["point"], row["threshold"], *(value for _, value, _ in row["cells"]))
    yield table
    if document["confidence"] is not None:
        ends = value_table(f"{100 * document['confidence']['level']:g} %", *RATES)
        for row in rows:
            ends.add_row(row["point"], *(_short(each) for _, _, each in row["cells"]))
        yield ends
    errors = value_table("calibration of", "prior", "measure", "value")
    for of, prior, error, brier, plain in error_rows(document):
        errors.add_row(of, prior, "error", error)
        errors.add_row("", "", "Brier score", brier)
        errors.add_row("", "", "of the prior", plain)
    yield errors


def _short(interval: str) -> str:
    """An interval in the width of a column: digits beyond the second of ends below one percent are left out."""
    if interval == "-":
        return interval
    ends = interval.strip("[]").split(", ")
    return "-".join(f"{float(end):.2g}" if 0.001 <= float(end) < 1 else end for end in ends)


def _facts(found: OperatingPoints, document: dict[str, Any]) -> dict[str, str]:
    counts = document["counts"]
    return {
        **found.heading.chosen("date", "command"),
        "pairs": f"{counted(counts['n_genuine'], 'genuine pair')}, {counted(counts['n_impostor'], 'impostor pair')}",
        "queries": f"{counted(counts['n_mated'], 'mated query')}, {counted(counts['n_non_mated'], 'non-mated query')}",
        "protocol": named(found.protocol, "summary"),
        "distance": named(found.distance, "definition"),
        **{name: call(value) for name, value in (("expand", found.expand), ("rerank", found.rerank)) if value},
        "FAR, TAR": "of all pairs; FPIR, FNIR and precision of each query's top match",
        **({} if found.confidence is None else {"intervals": resampled(found.confidence)}),
        "time": duration(found.timing["total"]),
        **found.heading.chosen("version", "digest"),
    }
