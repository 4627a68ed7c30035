"""What reports of several evaluations under one set of conventions have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from reid_dist.core.findings import Finding
from reid_dist.reports.documents import DocumentReport
from reid_dist.reports.heading import Heading, make_heading


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SeriesReport(DocumentReport):
    """Base class of reports on several evaluations.  Mappings keep their order, which is the printed order.

    Attributes
    ----------
    protocol, distance, options
        The conventions, with every parameter.
    counts
        See the subclass.
    inputs
        Both whole sets: uri, shape, dtype, content digest.
    definitions
        The convention in words by name of metric.
    environment, timing, run, spec
        As in a `reid_dist.reports.Report`.
    notes
        Remarks on the validity of the numbers.
    """

    protocol: dict[str, Any]
    distance: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, Any]
    inputs: dict[str, Any]
    definitions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[Finding] = field(default_factory=list)

    @property
    def stages(self) -> Sequence[Mapping[str, Any]]:
        """The stages that name a run without a name."""
        return [self.protocol, self.distance]

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        return make_heading(self.run, self.stages, self.environment, self.result_digest)

    def _entries(self) -> dict[str, Any]:
        """Entries of the document: those of a kind of report first."""
        common = {each.name for each in fields(SeriesReport)}
        entries = super()._entries()
        return {name: value for name, value in entries.items() if name not in common} | entries
