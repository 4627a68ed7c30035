"""What a benchmark is: a value that names everything that a published number depends on, beside the features."""

from __future__ import annotations

from dataclasses import dataclass

from reid_dist.core.formatting import counted
from reid_dist.core.registry import Registry
from reid_dist.evaluation.draws import Draw
from reid_dist.relevance.protocols import Protocol


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A published evaluation.

    Attributes
    ----------
    name, summary, source
        As in every registry; the source names the published code by repository and file, or a paper.
    protocol
        Relevant and junk items, cameras that count, groups in the ranking.
    layout
        The layout of names and lists that brings the labels; empty where any labels serve.
    metrics
        Metrics that are reported; empty for those of the protocol.
    thresholded
        Metrics that are reported at a distance of the user's choice, in place of `metrics`.
    draw
        How galleries are drawn, and how often; None for the whole gallery.
    runs
        What a published number is a mean over, beside the splits of one run: models, or training sets.
    cameras
        Numbers of the cameras of the data set, where the protocol tells them apart; None for any.
    identities
        Identities in the gallery of the published test set; None where they do not tell variants apart.
    other_of
        The benchmark of which this is the evaluation by another code, or in another form, on the same sets; empty for
        none.
    """

    name: str
    summary: str
    source: str
    protocol: Protocol
    layout: str = ""
    metrics: tuple[str, ...] = ()
    thresholded: tuple[str, ...] = ()
    draw: Draw | None = None
    runs: str = ""
    cameras: tuple[int, ...] | None = None
    identities: int | None = None
    other_of: str = ""

    def describe(self) -> dict[str, str]:
        """Return its description for reports."""
        described = {"name": self.name, "summary": self.summary, "source": self.source, "gallery": self.gallery}
        return described | ({"runs": self.runs} if self.runs else {})

    @property
    def others(self) -> list[Benchmark]:
        """Benchmarks of the same sets by other codes or in other forms."""
        first = self.other_of or self.name
        return [each for each in BENCHMARKS if first in (each.name, each.other_of) and each is not self]

    @property
    def gallery(self) -> str:
        """How galleries are drawn, in words."""
        if self.draw is None:
            return "all rows"
        of = "identity under each camera" if self.draw.per_camera else "identity"
        rest = "; the others are the queries" if self.draw.rest_as_queries else ""
        rest = " of the queries, against the whole gallery" if self.draw.of_queries else rest
        return f"{counted(self.draw.repeats, 'draw')} of {counted(self.draw.per_identity, 'row')} of each {of}{rest}"


BENCHMARKS: Registry[Benchmark] = Registry("benchmark")
