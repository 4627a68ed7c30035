"""Points of a sweep that are done, written down one by one: one that was stopped goes on with those that are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reid_dist._version import __version__
from reid_dist.core.fingerprint import fingerprint
from reid_dist.evaluation.sweeps.grid import Point
from reid_dist.reports import Report
from reid_dist.reports.caution import n_identities
from reid_dist.reports.documents import plain
from reid_dist.stores import Workspace
from reid_dist.stores.workspace import read_record, write_record

__all__ = ["FinishedPoint", "FinishedPoints"]

_KIND = "points"


@dataclass(frozen=True)
class FinishedPoint:
    """What a sweep keeps of the evaluation of one point.

    Attributes
    ----------
    row
        Its row in the report of the sweep.
    conventions
        What is the same at every point: protocol, distance, options, counts, definitions.
    notes
        Of the evaluation.
    """

    row: dict[str, Any]
    conventions: dict[str, Any]
    notes: list[str]

    @classmethod
    def of(cls, point: Point, report: Report, names: Sequence[str]) -> FinishedPoint:
        """Keep what matters of a report.

        Parameters
        ----------
        point
            The point.
        report
            Its evaluation.
        names
            Of the metrics.
        """
        row = {
            "parameters": point.values,
            "metrics": {name: report.metrics[name] for name in names},
            "name": point.name,
            "digest": report.result_digest,
            "seconds": report.timing["total"],
        }
        conventions = {
            "protocol": plain(report.protocol),
            "distance": plain(report.distance),
            "options": plain({name: report.options[name] for name in ("max_rank", "seed")}),
            "counts": {**plain(report.counts), "n_identities": n_identities(report)},
            "definitions": {name: text for name, text in report.definitions.items() if name in names},
        }
        return cls(row, conventions, list(report.notes))


class FinishedPoints:
    """What is done of a sweep.

    Parameters
    ----------
    workspace
        Where it is written.
    identity
        Everything that the answers depend on, but for the points.
    warn
        Called with one line for each point that is evaluated again because what was written of it is damaged.
    """

    def __init__(self, workspace: Workspace, identity: Mapping[str, Any], warn: Callable[[str], None]) -> None:
        self._workspace = workspace
        self._warn = warn
        self._stage = workspace.stage(_KIND, [__version__, identity], {})

    def find(self, point: Point) -> FinishedPoint | None:
        """Return a point that is done, or None.

        One that was written and is damaged, or is another point, is reported and counts as not done.
        """
        found = read_record(self._stage, _part(point), self._warn)
        return None if found is None else FinishedPoint(**found)

    def keep(self, point: Point, finished: FinishedPoint) -> None:
        """Write a point down."""
        write_record(self._stage, _part(point), asdict(finished))

    def remove(self) -> None:
        """Remove what was written."""
        self._workspace.remove(self._stage)


def _part(point: Point) -> str:
    return f"point-{fingerprint(point.name)[:20]}"
