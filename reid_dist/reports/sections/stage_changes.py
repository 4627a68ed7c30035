"""What re-ranking and expansion change: metrics without them and with them, and the interval of the difference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from reid_dist.core.formatting import upper_first
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.words import call, is_share

_UNITS: Final = {"query": "queries", "identity": "identities"}


class StageChange(NamedTuple):
    """One metric against the run without a stage: texts of its values, of their difference and of its interval."""

    metric: str
    before: str
    after: str
    change: str
    interval: str
    verdict: str


class ChangeTable(NamedTuple):
    """The changes against one run: which stages it lacks, as a title and in full, and the metrics.

    `level` is that of the intervals.
    """

    title: str
    words: str
    level: str
    rows: tuple[StageChange, ...]

    @property
    def lines(self) -> list[str]:
        """Each metric in one line."""
        return [
            f"{row.metric} {row.before} \N{RIGHTWARDS ARROW} {row.after} ({row.change}"
            + (f", {self.level} interval {row.interval})" if row.interval else ")")
            for row in self.rows
        ]


def stage_changes(report: ReportData) -> list[ChangeTable]:
    """Return one table per run without stages; none where the changes were not requested."""
    found = report.stage_changes
    return [] if found is None else list(_tables(report, found))


def _tables(report: ReportData, found: Mapping[str, Any]) -> Iterator[ChangeTable]:
    level, unit = f"{100 * found['level']:g} %", _UNITS[found["unit"]]
    for run in found["without"]:
        missing = [call(stage) for name in run["stages"] if (stage := getattr(report, name)) is not None]
        kept = report.expand if "expand" not in run["stages"] else None
        words = f"With and without {' and '.join(missing)}"
        words += f", both with {call(kept)}" if kept is not None else ""
        yield ChangeTable(
            upper_first(" and ".join({"expand": "expansion", "rerank": "re-ranking"}[each] for each in run["stages"])),
            f"{words}. The {level} interval of the change is a bootstrap over {unit}, paired by query.",
            level,
            tuple(map(_row, run["metrics"])),
        )


def _row(each: Mapping[str, Any]) -> StageChange:
    scale, digits, points = (100, ".2f", " points") if is_share(each["metric"]) else (1, ".4g", "")
    before, after, difference, low, high = (
        None if each[name] is None else scale * each[name]
        for name in ("baseline", "candidate", "difference", "low", "high")
    )
    known = low is not None and high is not None
    texts = ["undefined" if value is None else f"{value:{digits}}{' %' if points else ''}" for value in (before, after)]
    return StageChange(
        each["metric"],
        texts[0],
        texts[1],
        "" if difference is None else f"{difference:+{digits}}{points}",
        f"{low:+{digits}} to {high:+{digits}}" if known else "",
        each["verdict"] or "not tested",
    )
