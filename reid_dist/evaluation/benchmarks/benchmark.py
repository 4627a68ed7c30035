"""What a benchmark is: all that a published number depends on, beside the features, and what it makes of options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding, info, warning
from reid_dist.core.formatting import counted, first_few, have
from reid_dist.core.registry import Registry
from reid_dist.errors import InputError, refuse
from reid_dist.evaluation.draws import Draw
from reid_dist.evaluation.options import requests
from reid_dist.relevance.protocols import JUNK_PID, Protocol
from reid_dist.stores import LabelledSet


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


OF_DRAW: Final = ("repeats", "per_identity", "per_camera", "rest_as_queries", "of_queries")
"""Options of drawn galleries."""

_MOST_CAMERAS: Final = 6


def with_benchmark(name: str, given: Mapping[str, Any]) -> tuple[Benchmark, dict[str, Any]]:
    """Benchmark of a name, and the options that were given with those that it prescribes.

    `given` are options of `evaluate_splits` by name; None and False count as not given.  `InputError` for one that
    contradicts the benchmark: a number under its name must be of its rules.
    """
    benchmark = BENCHMARKS.get(name)
    prescribed = _prescribed(benchmark)
    if _is_given(given.get("rows")):
        # The list takes the place of the draws, and the number of splits is its own.
        prescribed = {option: value for option, value in prescribed.items() if option not in (*OF_DRAW[2:], "repeats")}
    elif benchmark.draw is None and (idle := [option for option in OF_DRAW if _is_given(given.get(option))]):
        raise InputError(
            f"benchmark {name!r} evaluates the whole gallery, and {', '.join(idle)} {have(idle)} no effect; evaluate "
            "without the benchmark, or give the rows of each split (rows, --rows FILE)"
        )
    refuse(
        [
            f"benchmark {name!r} prescribes {option} {_shown(wanted)!r}, and {_shown(value)!r} was given; leave out "
            f"{option}, or evaluate without the benchmark"
            for option, wanted in prescribed.items()
            if _is_given(value := given.get(option)) and not _agrees(value, wanted)
        ],
        many=f"benchmark {name!r}",
    )
    if benchmark.thresholded and not requests(given.get("metrics")):
        names = [f"{family}@T=x" for family in benchmark.thresholded]
        raise InputError(
            f"benchmark {name!r} reports {' and '.join(names)}: a query counts as known if its nearest row is nearer "
            "than x, which is chosen on other data; name them with a number (--metric, metrics)"
        )
    resolved = {key: value for key, value in given.items() if key not in prescribed}
    metrics = {"metrics": benchmark.metrics} if benchmark.metrics and not requests(given.get("metrics")) else {}
    return benchmark, {**resolved, **prescribed, **metrics}


def refuse_other_codes(other_codes: bool, benchmark: str | None) -> None:
    """Refuse other codes without a benchmark."""
    if other_codes and benchmark is None:
        raise InputError("other_codes runs other implementations of a benchmark; give benchmark (--benchmark NAME)")


def _is_given(value: Any) -> bool:
    """Whether a value of an option was given; 0 is one, though it requests nothing."""
    return value is not None and value is not False


def _prescribed(benchmark: Benchmark) -> dict[str, Any]:
    prescribed: dict[str, Any] = {"protocol": benchmark.protocol, "collapse": benchmark.protocol.collapse}
    if benchmark.draw is not None:
        prescribed |= {option: getattr(benchmark.draw, option) for option in OF_DRAW}
    return prescribed


def _agrees(value: Any, wanted: Any) -> bool:
    return bool(value == (wanted.name if isinstance(wanted, Protocol) and isinstance(value, str) else wanted))


def _shown(value: Any) -> Any:
    return value.name if isinstance(value, Protocol) else value


def draw_of(options: Mapping[str, Any], seed: int) -> Draw:
    """Draw of the options of a run; those that request nothing have the default of `Draw`."""
    given = {option: options[option] for option in OF_DRAW if options.get(option) is not None}
    return replace(Draw(**given), seed=seed)


# ---- labels ----------------------------------------------------------------------------------------------------------


def refuse_unfit_labels(benchmark: Benchmark, query: LabelledSet, gallery: LabelledSet) -> None:
    """Refuse sets without the labels of a benchmark, or with cameras that its data set does not have."""
    sides = {"query": query, "gallery": gallery}
    for label in _needed(benchmark.protocol):
        both = label not in benchmark.protocol.grouping_columns or label in benchmark.protocol.label_columns
        wanted = sides if both else {"gallery": gallery}
        missing = [side for side, each in wanted.items() if not _has(each, label)]
        if missing:
            raise InputError(
                f"benchmark {benchmark.name!r} needs the label {label!r}, and {' and '.join(missing)} {have(missing)} "
                f"none; {_advice(benchmark)}"
            )
    if benchmark.cameras is None:
        return
    for side, each in sides.items():
        if each.camid_names is not None:
            found = f"the texts {first_few([*map(repr, each.camid_names)], _MOST_CAMERAS)}"
        else:
            others = np.setdiff1d(np.empty(0) if each.camids is None else each.camids, benchmark.cameras)
            found = first_few([str(int(camera)) for camera in others], _MOST_CAMERAS)
        if found:
            known = ", ".join(map(str, benchmark.cameras))
            raise InputError(
                f"benchmark {benchmark.name!r} tells the cameras {known} apart, and the {side} set has {found}; "
                f"{_advice(benchmark)}"
            )


def _needed(protocol: Protocol) -> Iterator[str]:
    if protocol.needs_camids:
        yield "camid"
    yield from dict.fromkeys([*protocol.label_columns, *protocol.grouping_columns])


def _has(features: LabelledSet, label: str) -> bool:
    return features.camids is not None if label == "camid" else label in features.columns


def _advice(benchmark: Benchmark) -> str:
    if not benchmark.layout:
        return "give them as arrays of the source (see `reid-dist ingest --help`)"
    return (
        f"`reid-dist ingest FEATURES --names NAMES.txt --layout {benchmark.layout} --output DIR` reads the labels from "
        f"the names and lists of the data set ({benchmark.layout!r} in `reid-dist list layouts`)"
    )


def benchmark_notes(benchmark: Benchmark, gallery: LabelledSet) -> list[Finding]:
    """Remarks on what a number under the benchmark's name stands for."""
    notes = []
    found, expected = len(np.setdiff1d(gallery.pids, [JUNK_PID])), benchmark.identities
    if expected not in (None, found):
        notes.append(warning("other_gallery", benchmark=benchmark.name, n_identities=found, expected=expected))
    if benchmark.runs:
        notes.append(info("published_means", benchmark=benchmark.name, runs=benchmark.runs))
    return notes
