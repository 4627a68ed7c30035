"""Numbers to be reproduced, and the metrics that a name in a paper may mean."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from reid_dist.errors import InputError
from reid_dist.metrics.definitions import RANKS, SINGLE_SHOT, Metric, parse_metric

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
