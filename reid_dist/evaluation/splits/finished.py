"""Splits that are done, written down one by one: a run that was stopped goes on with those that are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from reid_dist._version import __version__
from reid_dist.core.fingerprint import fingerprint
from reid_dist.evaluation.options import Options
from reid_dist.evaluation.splits.draw import Draw
from reid_dist.metrics.definitions import parse_metrics
from reid_dist.relevance.protocols import PROTOCOLS
from reid_dist.reports import Report
from reid_dist.reports.documents import plain
from reid_dist.stores import FeatureSet, Workspace
from reid_dist.stores.workspace import read_record, write_record

__all__ = ["FinishedSplit", "FinishedSplits", "identity_of"]

_KIND = "splits"


def identity_of(query: FeatureSet, gallery: FeatureSet, draw: Draw, options: Mapping[str, Any]) -> str:
    """Identify everything that the answers depend on.

    Parameters
    ----------
    query, gallery
        The whole sets.
    draw
        How rows are drawn.
    options
        What `evaluate` is asked.

    Raises
    ------
    InputError, UnknownNameError
        If there is no such option or protocol.
    """
    asked = Options.of({**{name: value for name, value in options.items() if name != "distance"}, "chunk_rows": None})
    rules = PROTOCOLS.get(asked.protocol) if isinstance(asked.protocol, str) else asked.protocol
    metrics = None if asked.metrics is None else [metric.name for metric in parse_metrics(asked.metrics)]
    sides = [query.content_digest, gallery.content_digest]
    rest = replace(asked, protocol=rules.name, metrics=metrics)
    return fingerprint(__version__, sides, draw, rules, options.get("distance", "cosine"), rest)


@dataclass(frozen=True)
class FinishedSplit:
    """What is kept of the evaluation of one split.

    Attributes
    ----------
    metrics
        Value by name.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``.
    digests
        ``query``, ``gallery``, ``result``: of its sets, and of its result.
    conventions
        What is the same in every split: protocol, distance, definitions.
    notes
        Of the evaluation.
    """

    metrics: dict[str, float]
    counts: dict[str, int]
    digests: dict[str, str]
    conventions: dict[str, Any]
    notes: list[str]

    @classmethod
    def of(cls, report: Report, *, leave_out: Sequence[str] = ()) -> FinishedSplit:
        """Keep what matters of a report.

        Parameters
        ----------
        report
            The evaluation of one split.
        leave_out
            Notes of it that are not kept.
        """
        return cls(
            metrics=dict(report.metrics),
            counts={name: int(report.counts[name]) for name in ("n_query", "n_valid", "n_gallery")},
            digests={
                **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
                "result": report.result_digest,
            },
            conventions={name: plain(getattr(report, name)) for name in ("protocol", "distance", "definitions")},
            notes=[note for note in report.notes if note not in leave_out],
        )


class FinishedSplits:
    """What is done of a run over splits.

    Parameters
    ----------
    workspace
        Where it is written.
    identity
        See `identity_of`.
    warn
        Called with one line for each split that is evaluated again because what was written of it is damaged.
    """

    def __init__(self, workspace: Workspace, identity: str, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._stage = workspace.stage(_KIND, identity, {})

    def find(self, split: int) -> FinishedSplit | None:
        """Return a split that is done, or None.

        One that was written and is damaged, or is another split, is reported and counts as not done.
        """
        found = read_record(self._stage, _part(split), self._warn)
        return None if found is None else FinishedSplit(**found)

    def keep(self, split: int, finished: FinishedSplit) -> None:
        """Write a split down."""
        write_record(self._stage, _part(split), asdict(finished))


def _part(split: int) -> str:
    return f"split-{split:05d}"
