"""The report of an evaluation on several splits, and its files."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import SavedDocument
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.plain import plain
from reid_dist.reports.splits import render_splits
from reid_dist.reports.summary import Summary, make_frame
from reid_dist.reports.words import metric_value

SCHEMA: Final = 1
"""The version of ``splits.json``."""

DOCUMENT: Final = "splits.json"
PAGE: Final = "splits.html"

_SAVED: Final = SavedDocument(DOCUMENT, SCHEMA, "report of splits")


@dataclass(frozen=True, kw_only=True, eq=False)
class SplitReport:
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
        draw; ``n_groups``: identities, or pairs of identity and camera, that it draws from; ``n_short``: those that
        have fewer rows than are drawn; ``n_junk_rows``: gallery rows of pid -1, which stay out.
    digests
        ``query``, ``gallery``: content digests of the sets of every split; ``result``: their result digests.
    draw
        How the galleries were drawn, with every parameter.
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
    run
        As in a `reid_dist.reports.Report`.
    notes
        Notes for readers of the numbers.

    Raises
    ------
    InputError
        If the three mappings of values do not belong together.
    """

    metrics: dict[str, float]
    spread: dict[str, float]
    per_split: dict[str, NDArray[np.float64]]
    counts: dict[str, Any]
    digests: dict[str, list[str]]
    draw: dict[str, Any]
    protocol: dict[str, Any]
    distance: dict[str, Any]
    inputs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    definitions: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    timing: dict[str, float] = field(default_factory=dict)
    run: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        per_split = {name: np.asarray(values, np.float64).view() for name, values in self.per_split.items()}
        if not list(self.metrics) == list(self.spread) == list(per_split):
            raise InputError("metrics, spread and per_split of a split report must name the same metrics")
        if len({values.shape for values in per_split.values()}) > 1:
            raise InputError("every metric of a split report must have one value per split")
        for values in per_split.values():
            values.flags.writeable = False
        object.__setattr__(self, "per_split", per_split)

    @property
    def n_splits(self) -> int:
        """Number of splits."""
        return len(self.digests["result"])

    @property
    def heading(self) -> Heading:
        """As that of a `reid_dist.reports.Report`."""
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

    def __repr__(self) -> str:
        return self._summary().to_text()

    def _repr_html_(self) -> str:
        """Return the table that a notebook shows."""
        return self._summary().to_html()

    def _summary(self) -> Summary:
        rows = [
            (name, *(metric_value(name, value) for value in (mean, self.spread[name], *_ends(self.per_split[name]))))
            for name, mean in self.metrics.items()
        ]
        facts = {
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

    def describe(self) -> dict[str, Any]:
        """Return the content of ``splits.json``, in plain Python values; None for values that are not finite."""
        document = {
            "schema": SCHEMA,
            "metrics": self.metrics,
            "spread": self.spread,
            "per_split": self.per_split,
            "counts": self.counts,
            "digests": self.digests,
            "draw": self.draw,
            "protocol": self.protocol,
            "distance": self.distance,
            "inputs": self.inputs,
            "options": self.options,
            "definitions": self.definitions,
            "environment": self.environment,
            "timing": self.timing,
            "run": self.run,
            "notes": self.notes,
            "result_digest": self.result_digest,
        }
        return _SAVED.sealed({name: plain(value) for name, value in document.items()})

    def to_json(self) -> str:
        """Return :meth:`describe` as indented ASCII JSON; every float reads back to the same bits."""
        return _SAVED.text(self.describe())

    def to_html(self) -> str:
        """Return one offline page; the same report gives the same bytes."""
        return render_splits(self.describe())

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> SplitReport:
        """Read what :meth:`save` wrote, and verify it.

        Raises
        ------
        StoreNotFoundError
            If there is no report of splits.
        DamagedStoreError
            If it cannot be decoded, or anything but the timing is not what was written.
        StoreError
            If it cannot be read, is of another schema, or of an earlier version.
        """
        document = _SAVED.read(directory)
        where = f"splits in {os.fspath(directory)}"
        try:
            held = {each.name: document[each.name] for each in fields(cls)}
            for name in ("metrics", "spread"):
                held[name] = {metric: _number(value) for metric, value in held[name].items()}
            held["per_split"] = {
                metric: [_number(each) for each in values] for metric, values in held["per_split"].items()
            }
            report = cls(**held)
            found, written = report.result_digest, document["result_digest"]
        except (InputError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise DamagedStoreError(f"{where} are not as they were written: {error!r}") from error
        if found != written:
            raise DamagedStoreError(
                f"{where} have other numbers than were written: digest {found[:16]}, written {str(written)[:16]}"
            )
        return report

    def save(self, directory: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write ``splits.json`` and ``splits.html``; return the directory.

        Both are first written under other names.  A directory that has a ``splits.json`` is whole.

        Parameters
        ----------
        directory
            A local directory, missing or empty.
        overwrite
            Replace an older report; files of other names are not touched.

        Raises
        ------
        InputError
            If it is a URI.
        StoreExistsError
            If it holds anything.
        StoreError
            If it cannot be written.
        """
        # "replace": a path that is not UTF-8 may be on the page; it is shown there, never read back.
        page = self.to_html().encode("utf-8", "replace")
        return _SAVED.save(directory, self.describe(), {PAGE: lambda file: file.write(page)}, overwrite=overwrite)


def _number(value: float | None) -> float:
    """A value of the document, in which null is what was not finite."""
    return math.nan if value is None else float(value)


def _ends(values: NDArray[np.float64]) -> tuple[float, float]:
    """The lowest and the highest of some values."""
    return float(values.min()), float(values.max())
