"""Report of an evaluation on several splits, and its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError
from reid_dist.metrics.definitions import ByMetric
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import DocumentReport, restored_number
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.splits import render_splits
from reid_dist.reports.summary import Summary, make_frame
from reid_dist.reports.words import metric_value, published

DOCUMENT: Final = "splits.json"
PAGE: Final = "splits.html"

# Fields with one value by metric.
_MEANS: Final = ("metrics", "spread")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SplitReport(DocumentReport):
    """Metrics of several splits.  Mappings keep their order, which is the order in which they are printed.

    Attributes
    ----------
    metrics
        Mean over the splits by name of metric; NaN where a split has no value.
    spread
        Sample standard deviation over the splits (ddof 1) by name; NaN for a single split.
    per_split
        Value of every split by name, (n_splits,) float64.
    counts
        ``n_query``, ``n_valid``, ``n_gallery``: a list with one entry per split.  ``n_identity``: identities of the
        draw, or of listed galleries; of a draw also ``n_groups``: identities, or pairs of identity and camera, that it
        draws from; ``n_short``: those that have fewer rows than are drawn; ``n_junk_rows``: gallery rows of pid -1,
        which stay out.
    digests
        ``query``, ``gallery``: content digests of the sets of every split; ``result``: their result digests.
    draw
        How the galleries were drawn, with every parameter, or where their rows were listed.
    benchmark
        The benchmark with its source; None for none.
    protocol, distance
        The conventions, with every parameter.
    inputs
        The whole sets: uri, shape, dtype, content digest.
    options
        ``max_rank``.
    definitions
        The convention in words by name of metric.
    environment, timing
        As in a `reid_dist.reports.Report`.
    run, spec
        As in a `reid_dist.reports.Report`.
    notes
        Remarks on the validity of the numbers.

    Raises
    ------
    InputError
        If the three mappings of values do not belong together.
    """

    what = "report of splits"
    another = "other splits"
    document = DOCUMENT
    page = PAGE

    metrics: dict[str, float]
    spread: dict[str, float]
    per_split: dict[str, NDArray[np.float64]]
    counts: dict[str, Any]
    digests: dict[str, list[str]]
    draw: dict[str, Any]
    protocol: dict[str, Any]
    distance: dict[str, Any]
    inputs: dict[str, Any]
    benchmark: dict[str, str] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        per_split = {name: np.asarray(values, np.float64).view() for name, values in self.per_split.items()}
        if not list(self.metrics) == list(self.spread) == list(per_split):
            raise InputError("metrics, spread and per_split of a split report must name the same metrics")
        if len({values.shape for values in per_split.values()}) > 1:
            raise InputError("every metric of a split report must have one value per split")
        for values in per_split.values():
            values.flags.writeable = False
        by_metric: tuple[tuple[str, dict[str, Any]], ...] = (
            ("metrics", self.metrics),
            ("spread", self.spread),
            ("per_split", per_split),
        )
        for field_name, found in by_metric:
            object.__setattr__(self, field_name, ByMetric(found))

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.digests["result"])

    @property
    def heading(self) -> Heading:
        """Name of the run (without one, its stages), date, version, digest and command."""
        return make_heading(self.run, [self.protocol, self.distance], self.environment, self.result_digest)

    @cached_property
    def result_digest(self) -> str:
        """SHA-256 over means, spreads and the values of every split as exact bytes, 64 hexadecimal digits."""
        return arrays_digest(
            {
                "metrics": {name: np.asarray(value, np.float64) for name, value in self.metrics.items()},
                "spread": {name: np.asarray(value, np.float64) for name, value in self.spread.items()},
                "per_split": self.per_split,
            }
        )

    def summary(self) -> Summary:
        """Return the table of all metrics."""
        rows = [
            (name, *(metric_value(name, value) for value in (mean, self.spread[name], *_ends(self.per_split[name]))))
            for name, mean in self.metrics.items()
        ]
        facts = {
            **({} if self.benchmark is None else {"benchmark": published(self.benchmark)}),
            "splits": f"{self.n_splits}; spread is the sample standard deviation over them",
            "digest": self.result_digest[:16],
        }
        title = f"SplitReport: {self.protocol['name']}, {self.distance['name']}"
        return Summary(title, ("metric", "mean", "spread", "lowest", "highest"), rows, facts, self.notes)

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` with one row per split and one column per metric.

        Raises
        ------
        InputError
            If pandas is not installed (``pip install 'reid-dist[pandas]'``).
        """
        return make_frame(self.per_split, index="split")

    def to_html(self) -> str:
        """Return one offline page without scripts; the same report gives the same bytes."""
        return render_splits(self.to_dict())

    @classmethod
    def restored(cls, entries: dict[str, Any], read: Callable[[str], bytes], where: str) -> dict[str, Any]:
        """Values of the fields by name."""
        means = {name: {metric: restored_number(value) for metric, value in entries[name].items()} for name in _MEANS}
        values = {metric: [restored_number(each) for each in values] for metric, values in entries["per_split"].items()}
        return {**entries, **means, "per_split": values}


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """The lowest and the highest of some values."""
    return float(values.min()), float(values.max())
