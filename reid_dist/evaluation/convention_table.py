"""The table of conventions: its rows, and the rows nearest to target numbers."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import counted, integer
from reid_dist.core.summary import Summary
from reid_dist.errors import InputError
from reid_dist.evaluation.convention_settings import Code, Setting
from reid_dist.metrics.metric import RANKS, SINGLE_SHOT, Metric, parse_metric
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import JsonResult, plain
from reid_dist.reports.words import metric_value

ALLOWED: Final = (RANKS, SINGLE_SHOT)
"""What the metrics of the table are computed from."""

CUT: Final = 100
"""Rank of the cut average precisions of the table, as of Google Landmarks v2."""

_NUMBER: Final = re.compile(r"(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+) ?(?P<percent>%?)")


@dataclass(frozen=True, slots=True)
class Target:
    """A printed number, and the names of the metrics that a paper may call `metric`.

    `number` has its digits, and `scale` is 100 for percent, 1 for a share of one.
    """

    metric: str
    number: str
    scale: int
    metrics: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.metric}={self.number}{'%' if self.scale == 100 else ''}"

    @property
    def digits(self) -> int:
        """Digits after the point."""
        return len(self.number.partition(".")[2])

    @property
    def value(self) -> Fraction:
        """The number as a share of one, exact."""
        return Fraction(self.number) / self.scale

    @property
    def half(self) -> Fraction:
        """Half a unit of the last digit, as a share of one, exact."""
        return Fraction(1, 2 * 10**self.digits * self.scale)

    def matches(self, value: float) -> bool:
        """Whether a value, rounded to the printed digits, is the number; at a tie, rounded either way."""
        return abs(Fraction(value) - self.value) <= self.half


def parse_targets(given: str | Sequence[str] | None) -> tuple[Target, ...]:
    """Read targets such as ``mAP=74.7``, ``rank-1=88.1%`` or ``mAP=0.747``.

    A number above 1, or with a percent sign, is in percent; any other is a share of one.
    """
    texts = [] if given is None else [given] if isinstance(given, str) else list(given)
    targets = tuple(_parse(text) for text in texts)
    names = [target.metric for target in targets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"there are two targets for {twice}; a run has one value of it")
    return targets


def _parse(text: object) -> Target:
    if not isinstance(text, str):
        raise InputError(f"a target is a text such as 'mAP=74.7', with the digits that are printed, found {text!r}")
    # The name may hold an equals sign of its own, as TAR@FAR=1e-3 does.
    name, equals, written = (part.strip() for part in text.rpartition("="))
    match = _NUMBER.fullmatch(written)
    if not equals or match is None:
        raise InputError(f"a target is METRIC=NUMBER, such as mAP=74.7 or CMC@1=0.881, found {text!r}")
    metric = parse_metric(name)
    if metric.family.needs not in ALLOWED:
        raise InputError(
            f"target {text!r}: {metric.name} is no function of the ranks of single queries, and the table holds "
            "these alone; use a metric such as mAP, mINP or CMC@1"
        )
    number = match["number"]
    scale = 100 if match["percent"] or Fraction(number) > 1 else 1
    if Fraction(number) > scale:
        raise InputError(f"target {text!r}: a number in percent is at most 100, found {written}")
    return Target(metric.name, number, scale, tuple(each.name for each in meanings(metric)))


def meanings(metric: Metric) -> list[Metric]:
    """Metrics that papers call by one name: average precisions, average precisions cut at k, CMC at k."""
    k = metric.parameter
    names = {
        "mAP": ("mAP", "mAP_trapezoid", "mAP_R", f"mAP@{CUT}", f"mAP_found@{CUT}", f"mAP_min@{CUT}"),
        "mAP@k": (f"mAP@{k}", f"mAP_found@{k}", f"mAP_min@{k}"),
        "CMC@k": (f"CMC@{k}", f"CMC_allshots@{k}", f"CMC_single_shot@{k}"),
    }
    return [parse_metric(name) for name in names.get(metric.family.name, (metric.name,))]


def default_names() -> list[str]:
    """Metrics of the table."""
    asked = ("mAP", "mINP", "CMC@1", "CMC@5", "CMC@10")
    found = [each for name in asked for each in meanings(parse_metric(name))]
    # The CMC of one kind together.
    kinds = list(dict.fromkeys(each.family.stem for each in found))
    return [each.name for each in sorted(found, key=lambda each: kinds.index(each.family.stem))]


SCHEMA: Final = 1
"""The version of tables as JSON."""

# Rows of the summary.
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class Row:
    """One metric under one convention.

    Attributes
    ----------
    value
        As ``evaluate(query, gallery, protocol=row.protocol, distance=row.distance, metrics=[row.metric])`` gives it.
    metric, distance
        Names.
    setting
        The protocol, and what it is composed of.
    same_as
        Names of other settings that give the same ranks of these sets, under every distance of the table.
    codes
        Published code that computes this, or one of those in `same_as`.
    n_query, n_valid
        Queries, and those with a relevant item.
    """

    value: float
    metric: str
    distance: str
    setting: Setting
    same_as: tuple[str, ...]
    codes: tuple[Code, ...]
    n_query: int
    n_valid: int

    @property
    def protocol(self) -> Protocol:
        """The protocol that reproduces the value."""
        return self.setting.protocol

    def describe(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {
            "value": self.value,
            "metric": self.metric,
            "distance": self.distance,
            "protocol": self.setting.describe(),
            "invalid_query": self.protocol.invalid_query,
            "same_as": list(self.same_as),
            "computed_by": [code.name for code in self.codes],
            "n_query": self.n_query,
            "n_valid": self.n_valid,
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    """A convention for all targets together: numbers of rows and differences (value - target), one for each target.

    `matches` is whether each value, rounded to the printed digits, is its target.
    """

    rows: tuple[int, ...]
    differences: tuple[float, ...]
    matches: bool


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Conventions(JsonResult):
    """The same features under many conventions.

    Attributes
    ----------
    rows
        By distance, then by setting, then by metric.
    targets
        The numbers to be reproduced.
    candidates
        Conventions from the nearest to the farthest: by the largest absolute difference over the targets.  Empty
        without targets.
    inputs
        The sets: uri, shape, dtype, content digest.
    notes
        Conventions that are left out, and those that make no difference here.
    """

    rows: tuple[Row, ...]
    targets: tuple[Target, ...]
    candidates: tuple[Candidate, ...]
    inputs: dict[str, Any]
    notes: tuple[Finding, ...]

    @property
    def result_digest(self) -> str:
        """SHA-256 over the values as exact bytes, with their conventions, 64 hexadecimal digits."""
        names = (json.dumps([row.distance, row.setting.name, row.metric]) for row in self.rows)
        return arrays_digest(
            {"conventions": {name: np.asarray(row.value) for name, row in zip(names, self.rows, strict=True)}}
        )

    @property
    def matches(self) -> tuple[Candidate, ...]:
        """Candidates that give every target to its printed digits."""
        return tuple(each for each in self.candidates if each.matches)

    def summary(self) -> Summary:
        """Return the table of the first rows, those nearest to the targets if there are any."""
        order = list(dict.fromkeys(place for each in self.candidates for place in each.rows))
        rows = [self.rows[place] for place in order or range(len(self.rows))]
        shown = [(row.metric, metric_value(row.metric, row.value), row.setting.name, row.distance) for row in rows]
        facts = {"rows": f"the first {_SHOWN} of {integer(len(shown))}"} if len(shown) > _SHOWN else {}
        title = f"Conventions: {counted(len(self.rows), 'value')}"
        if self.targets:
            title += f", {counted(len(self.matches), 'match')} of {', '.join(map(str, self.targets))}"
        return Summary(title, ("metric", "value", "setting", "distance"), shown[:_SHOWN], facts, self.notes)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain Python values; what is not a finite number is None."""
        codes = {code.name: code for row in self.rows for code in row.codes}
        content: dict[str, Any] = plain(
            {
                "schema": SCHEMA,
                "rows": [row.describe() for row in self.rows],
                "targets": [
                    {
                        "metric": target.metric,
                        "number": target.number,
                        "in_percent": target.scale == 100,
                        "value": float(target.value),
                        "half_unit": float(target.half),
                        "metrics": target.metrics,
                    }
                    for target in self.targets
                ],
                "candidates": [
                    {"rows": each.rows, "differences": each.differences, "matches": each.matches}
                    for each in self.candidates
                ],
                "codes": {name: {"source": code.source, "remark": code.remark} for name, code in codes.items()},
                "inputs": self.inputs,
                "notes": self.notes,
                "result_digest": self.result_digest,
            }
        )
        return content


def find_candidates(rows: Sequence[Row], targets: Sequence[Target]) -> tuple[Candidate, ...]:
    """Conventions for all targets, the nearest first; CMC at several ranks are of one kind."""
    if not targets:
        return ()
    of_run: dict[tuple[str, str], dict[str, int]] = {}
    for number, row in enumerate(rows):
        of_run.setdefault((row.distance, row.setting.name), {})[row.metric] = number
    # Meanings of a name by their number; targets of one family, such as CMC@1 and CMC@5, share it.
    families: dict[str, int] = {}
    for target in targets:
        families[_family(target)] = len(target.metrics)
    found = []
    for numbers in of_run.values():
        for chosen in itertools.product(*map(range, families.values())):
            kind = dict(zip(families, chosen, strict=True))
            names = [target.metrics[kind[_family(target)]] for target in targets]
            if any(name not in numbers for name in names):
                # The single-shot CMC is of some settings.
                continue
            places = tuple(numbers[name] for name in names)
            pairs = list(zip(places, targets, strict=True))
            found.append(
                Candidate(
                    rows=places,
                    differences=tuple(rows[place].value - float(target.value) for place, target in pairs),
                    matches=all(target.matches(rows[place].value) for place, target in pairs),
                )
            )
    # Stable: of equally near ones, the first of the table.
    return tuple(sorted(found, key=lambda each: (not each.matches, max(map(abs, each.differences)))))


def _family(target: Target) -> str:
    return parse_metric(target.metric).family.name
