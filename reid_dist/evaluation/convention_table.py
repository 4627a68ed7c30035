"""The table of conventions: its rows, and the rows nearest to target numbers."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import counted, integer
from reid_dist.errors import InputError
from reid_dist.evaluation.convention_settings import Code, Setting
from reid_dist.evaluation.convention_stages import Stages
from reid_dist.metrics.metric import RANKS, SINGLE_SHOT, Metric, parse_metric
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports.digest import arrays_digest
from reid_dist.reports.documents import Result, plain
from reid_dist.reports.tabular.table import (
    Cell,
    Column,
    Kind,
    Note,
    Table,
    bare_cell,
    metric_cell,
    metric_column,
    notes_of,
)

ALLOWED: Final = (RANKS, SINGLE_SHOT)
"""What the metrics of the table are computed from."""

CUT: Final = 100
"""Rank of the cut average precisions of the table, as of Google Landmarks v2."""

# Distance of a mean from a tie that its rounding to doubles explains.
_TIE: Final = Fraction(1, 2**50)

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
        # A tie such as 68.25% has no exact double: the mean may be one on either side, and so may 100 times it.
        return abs(Fraction(value) - self.value) <= self.half + _TIE

    def cell(self, value: float, sign: str = "") -> Cell:
        """A value, or a difference with its sign, in the unit of the target, with one digit more."""
        return Cell(f"{self.scale * value:{sign}.{self.digits + 1}f}", value)


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
            "only such metrics; use a metric such as mAP, mINP or CMC@1"
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

# Rows of the table of the nearest conventions, and of that of an interpreter.
_NEAREST: Final = 12
_SHOWN: Final = 20
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Row:
    """One metric under one convention.

    Attributes
    ----------
    value
        As ``evaluate(query, gallery, protocol=row.protocol, distance=row.distance, metrics=[row.metric],
        **row.stages.options)`` gives it.
    metric, distance
        Names.
    stages
        Expansion and re-ranking; neither for the features as they are.
    setting
        The protocol, and what it is composed of.
    same_as
        Names of other settings that give the same ranks of these sets, in every pass of the table.
    codes
        Published code that computes this, or one of those in `same_as`.
    n_query, n_valid
        Queries, and those with a relevant item.
    """

    value: float
    metric: str
    distance: str
    stages: Stages
    setting: Setting
    same_as: tuple[str, ...]
    codes: tuple[Code, ...]
    n_query: int
    n_valid: int

    @property
    def protocol(self) -> Protocol:
        """The protocol that reproduces the value."""
        return self.setting.protocol

    @property
    def run(self) -> tuple[str, str, str]:
        """Distance, stages and setting by name: those of one evaluation, which gives every metric."""
        return self.distance, self.stages.name, self.setting.name

    def describe(self) -> dict[str, Any]:
        """Return the row as plain values."""
        return {
            "value": self.value,
            "metric": self.metric,
            "distance": self.distance,
            **self.stages.options,
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
class Conventions(Result):
    """Values of the same features under many conventions.

    Attributes
    ----------
    rows
        Ordered by distance, setting and metric.  Rows of the plain features come first, then rows with each expansion
        and re-ranking tried.
    targets
        The numbers to reproduce.
    candidates
        Conventions sorted by their largest absolute difference from a target, nearest first.  Empty without targets.
    inputs
        The sets: uri, shape, dtype, content digest.
    notes
        Which conventions are left out, and which make no difference here.
    """

    rows: tuple[Row, ...]
    targets: tuple[Target, ...]
    candidates: tuple[Candidate, ...]
    inputs: dict[str, Any]
    notes: tuple[Finding, ...]

    @property
    def result_digest(self) -> str:
        """SHA-256 over the values as exact bytes, with their conventions, 64 hexadecimal digits."""
        names = (
            json.dumps([row.distance, row.setting.name, row.metric, *row.stages.options.items()]) for row in self.rows
        )
        return arrays_digest(
            {"conventions": {name: np.asarray(row.value) for name, row in zip(names, self.rows, strict=True)}}
        )

    @property
    def matches(self) -> tuple[Candidate, ...]:
        """Candidates that agree with every target to the printed digits."""
        return tuple(each for each in self.candidates if each.matches)

    def summary(self) -> Table:
        """Return a table of the first values; with targets, of the nearest ones."""
        (table,) = self.records()
        shown = [at for at, column in enumerate(table.columns) if not column.is_detail]
        more = [] if len(table.rows) <= _SHOWN else [Note(f"the first {_SHOWN} of {integer(len(table.rows))}", "rows")]
        return replace(
            table,
            title=f"Conventions: {counted(len(self.rows), 'value')}",
            columns=[table.columns[at] for at in shown],
            rows=[[row[at] for at in shown] for row in table.rows[:_SHOWN]],
            notes=more,
        )

    def tables(self) -> Sequence[Table]:
        """Return one table per distance, with the conventions nearest to the targets, or all without targets."""
        if self.targets:
            return [self._nearest()]
        *others, last = [self._values(*run) for run in dict.fromkeys((row.distance, row.stages) for row in self.rows)]
        return [*others, replace(last, notes=[*self._settings(), *self._also(self.rows), *self._facts()])]

    def records(self) -> Sequence[Table]:
        """Return all values in one long table; with targets, the nearest conventions come first."""
        places = dict.fromkeys(place for each in self.candidates for place in each.rows) or range(len(self.rows))
        also = ["also"] if any(row.stages.name for row in self.rows) else []
        return [
            Table(
                columns=[
                    Column("value", Kind.RESULT),
                    *(Column(head, Kind.TEXT) for head in ("metric", "setting", "distance", *also)),
                    *(Column(head, is_detail=True) for head in ("n_query", "n_valid")),
                    *(Column(head, Kind.TEXT, is_detail=True) for head in ("protocol", "computed_by")),
                ],
                rows=[
                    [
                        metric_cell(row.metric, row.value),
                        *(row.metric, row.setting.name, row.distance, *((row.stages.name,) if also else ())),
                        *(Cell(str(count), count) for count in (row.n_query, row.n_valid)),
                        *(json.dumps(row.setting.describe()), "; ".join(code.name for code in row.codes)),
                    ]
                    for row in (self.rows[place] for place in places)
                ],
            )
        ]

    def _values(self, distance: str, stages: Stages) -> Table:
        """Settings in rows, metrics in columns."""
        rows = [row for row in self.rows if (row.distance, row.stages) == (distance, stages)]
        values: dict[str, dict[str, float]] = {}
        for row in rows:
            values.setdefault(row.setting.name, {})[row.metric] = row.value
        metrics = list(dict.fromkeys(row.metric for row in rows))
        return Table(
            title=f"Distance {_under(distance, stages)}",
            columns=[Column("setting", Kind.NAME), *map(metric_column, metrics)],
            rows=[
                [name, *(bare_cell(metric, each.get(metric, math.nan)) for metric in metrics)]
                for name, each in values.items()
            ],
        )

    def _settings(self) -> Iterator[Note]:
        """How each setting is reproduced, others with the same ranks, and code that computes it."""
        by_name: dict[str, list[Row]] = {}
        for row in self.rows:
            by_name.setdefault(row.setting.name, []).append(row)
        for rows in by_name.values():
            first = rows[0]
            computed: dict[str, dict[str, None]] = {}
            for row in rows:
                for code in row.codes:
                    computed.setdefault(code.name, {})[row.metric.partition("@")[0]] = None
            invalid = f"{integer(first.n_valid)} of {integer(first.n_query)} valid"
            parts = [
                first.setting.command,
                *([] if first.n_valid == first.n_query else [invalid]),
                *([f"same ranks: {', '.join(first.same_as)}"] if first.same_as else []),
                *(f"{code}: {', '.join(stems)}" for code, stems in computed.items()),
            ]
            yield Note("; ".join(parts), "setting", True)
        yield from _in_a_job_file(rows[0].setting for rows in by_name.values())

    def _facts(self) -> list[Note]:
        inputs = ((side, self.inputs[side]) for side in ("query", "gallery"))
        sides = {side: f"{found['uri']}, {counted(found['shape'][0], 'row')}" for side, found in inputs}
        return notes_of({**sides, "digest": self.result_digest[:_DIGEST_DIGITS]}, self.notes)

    def _nearest(self) -> Table:
        """The nearest conventions, one row each; metrics of equal values share one."""
        shown = self._alike()[:_NEAREST]
        rows = []
        for group in shown:
            near = group[0]
            numbers = [
                cell
                for target, place, difference in zip(self.targets, near.rows, near.differences, strict=True)
                for cell in (target.cell(self.rows[place].value), target.cell(difference, sign="+"))
            ]
            rows.append(["=" if near.matches else "", *numbers, self._convention(group)])
        return Table(
            title=self._answer(),
            columns=[
                Column("", Kind.TEXT),
                *(column for each in self.targets for column in (Column(each.metric, Kind.RESULT), Column("off by"))),
                Column("convention", Kind.PROSE),
            ],
            rows=rows,
            notes=[
                *self._meanings(),
                *self._not_shown(shown),
                *self._composed(shown),
                *self._also(self.rows[group[0].rows[0]] for group in shown),
                *self._facts(),
            ],
        )

    def _alike(self) -> list[list[Candidate]]:
        """Candidates of equal values under one setting and distance, together."""
        groups: dict[tuple[object, ...], list[Candidate]] = {}
        for each in self.candidates:
            row = self.rows[each.rows[0]]
            groups.setdefault((*row.run, each.differences), []).append(each)
        return list(groups.values())

    def _convention(self, group: Sequence[Candidate]) -> str:
        each = [[self.rows[place] for place in candidate.rows] for candidate in group]
        metrics = ", ".join(dict.fromkeys(row.metric for rows in each for row in rows))
        # Code that computes every target so.
        codes = [code.name for rows in each for code in rows[0].codes if all(code in row.codes for row in rows)]
        first = each[0][0]
        by = f" ({', '.join(dict.fromkeys(codes))})" if codes else ""
        return f"{metrics}; {first.setting.name}; {_under(first.distance, first.stages)}{by}"

    def _meanings(self) -> Iterator[Note]:
        """What the targets may mean."""
        known = {row.metric for row in self.rows}
        for target in self.targets:
            meant = ", ".join(name for name in target.metrics if name in known)
            unit = "%" if target.scale == 100 else ""
            half = f"{float(target.scale * target.half):g}"
            yield Note(f"{target.metric} {target.number}{unit}, plus or minus {half}: {meant}", "target", True)
        if self.matches:
            yield Note("gives every target to its printed digits", "=", True)

    def _answer(self) -> str:
        """How many conventions give the targets."""
        targets = ", ".join(f"{each.metric} {each.number}" for each in self.targets)
        n_matches = len(self.matches)
        together = "all targets" if len(self.targets) > 1 else "the target"
        found = f"{integer(n_matches)} of" if n_matches else "none of"
        give = "give" if n_matches > 1 else "gives"
        conventions = counted(len(self.candidates), "convention")
        return f"{targets}: {found} {conventions} {give} {together} to the printed digits"

    def _not_shown(self, shown: Sequence[Sequence[Candidate]]) -> Iterator[Note]:
        """How many conventions are farther, and where they are."""
        n_more = len(self.candidates) - sum(map(len, shown))
        if n_more:
            yield Note(
                f"{counted(n_more, 'farther convention')} not shown; see all with --format csv or --output FILE.csv, "
                "in Python in .candidates",
                "rows",
                True,
            )

    def _composed(self, shown: Sequence[Sequence[Candidate]]) -> Iterator[Note]:
        """How composed settings are reproduced."""
        settings = {each.name: each for each in (self.rows[group[0].rows[0]].setting for group in shown)}
        for setting in settings.values():
            if setting.parts:
                yield Note(setting.command, "setting")
        yield from _in_a_job_file(settings.values())

    def _also(self, rows: Iterable[Row]) -> Iterator[Note]:
        """How what is also tried is reproduced."""
        for stages in dict.fromkeys(row.stages for row in rows):
            if stages.given:
                yield Note(f"{stages.given}: {stages.command}", "also", True)

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain Python values; numbers that are not finite become None."""
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


def _in_a_job_file(settings: Iterable[Setting]) -> Iterator[Note]:
    """Where the entries of composed settings are written; no option names these protocols."""
    if any(setting.parts for setting in settings):
        yield Note(
            "--protocol does not take a setting that is shown as protocol: {…}; write this entry into a YAML file, "
            "beside query and gallery, and run reid-dist run FILE",
            "setting",
        )


def find_candidates(rows: Sequence[Row], targets: Sequence[Target]) -> tuple[Candidate, ...]:
    """Conventions for all targets, the nearest first; CMC at several ranks are of one kind."""
    if not targets:
        return ()
    of_run: dict[tuple[str, str, str], dict[str, int]] = {}
    for number, row in enumerate(rows):
        of_run.setdefault(row.run, {})[row.metric] = number
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


def _under(distance: str, stages: Stages) -> str:
    """Distance, and what is done before and after it."""
    return f"{distance} with {stages.given}" if stages.given else distance
