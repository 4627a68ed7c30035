"""Breakdowns of a report: the metrics by camera, identity or label, by pair of cameras, and by size of the gallery.

Key columns name the rows of a table; the two key columns of camera pairs name rows and columns of a matrix.  Every
count and every metric has a value in each place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, NamedTuple

from reid_dist.errors import InputError
from reid_dist.reports.documents import restored_number
from reid_dist.reports.entry_checks import described, require_counts, require_numbers, require_ordered_pair

MEAN_OF_GROUPS: Final = "mean_of_groups"
"""Entry of a breakdown by groups of queries: the mean over the groups, by metric."""

INTERVALS: Final = "intervals"
"""Entry of a breakdown: the interval in the place of every value, by metric."""

N_IDENTITIES: Final = "n_identities"
"""Column of a breakdown by groups of queries with intervals: identities that these are drawn from."""

CAMERA_PAIR: Final = "camera_pair"
GALLERY_SIZE: Final = "gallery_size"

_ORDERS: Final = ("stored", "random")

Known = tuple[float | None, Sequence[float | None] | None]
"""A value and its interval, None where there is none."""


class _Kind(NamedTuple):
    """Key columns, columns of counts, and entries that are no columns."""

    keys: tuple[str, ...]
    counts: tuple[str, ...] = ("n_query", "n_valid")
    facts: tuple[str, ...] = ()


_KINDS: Final = {
    "camera": _Kind(("camid",)),
    "identity": _Kind(("pid",)),
    CAMERA_PAIR: _Kind(("query_camid", "gallery_camid"), ("n_valid",)),
    GALLERY_SIZE: _Kind(("n_rows",), (), ("order", "seed")),
}
_LABEL: Final = _Kind(("value",))


@dataclass(frozen=True)
class Breakdown:
    """A table of a report by its name; that of a label column is the name of the column."""

    name: str
    table: Mapping[str, Any]

    @property
    def kind(self) -> _Kind:
        """What the columns of the table are."""
        return _KINDS.get(self.name, _LABEL)

    @property
    def key(self) -> str:
        """The first key column."""
        return self.kind.keys[0]

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        """The keys of every place, of pairs row by row."""
        return [*product(*(self.table[key] for key in self.kind.keys))]

    @property
    def counts(self) -> list[str]:
        """The columns of counts."""
        return [name for name in (*self.kind.counts, N_IDENTITIES) if name in self.table]

    @property
    def metrics(self) -> list[str]:
        """The columns of metrics."""
        others = (*self.kind.keys, *self.counts, *self.kind.facts, MEAN_OF_GROUPS, INTERVALS)
        return [name for name in self.table if name not in others]

    def entries(self, name: str, values: object = None) -> list[Any]:
        """Return the entries of a column, or of given values in its places; InputError if they are not one for each."""
        shape = [len(self.table[key]) for key in self.kind.keys]
        try:
            return [*_flat(self.table[name] if values is None else values, shape)]
        except ValueError:
            size, each = " x ".join(map(str, shape)), " and ".join(self.kind.keys)
            raise InputError(
                f"breakdown {self.name!r}: {name!r} must hold {size} values, one for each {each}"
            ) from None

    def cells(self, metric: str) -> list[Known]:
        """Return the values of a metric with their intervals."""
        values, ends = self.entries(metric), self.table.get(INTERVALS, {}).get(metric)
        return [*zip(values, [None] * len(values) if ends is None else self.entries(metric, ends), strict=True)]

    def columns(self) -> dict[str, list[Any]]:
        """Return all columns of a flat table, NaN for what is not known."""
        keys = zip(*self.keys, strict=True) if self.keys else [()] * len(self.kind.keys)
        columns: dict[str, list[Any]] = {name: [*values] for name, values in zip(self.kind.keys, keys, strict=True)}
        columns |= {name: self.entries(name) for name in self.counts}
        for metric in self.metrics:
            cells = self.cells(metric)
            columns[metric] = [restored_number(value) for value, _ in cells]
            if INTERVALS in self.table:
                for place, end in enumerate(("low", "high")):
                    ends = (None if each is None else each[place] for _, each in cells)
                    columns[f"{metric}_{end}"] = [*map(restored_number, ends)]
        return columns


def _flat(values: object, shape: Sequence[int]) -> Iterator[Any]:
    if not shape:
        yield values
    elif isinstance(values, list) and len(values) == shape[0]:
        for each in values:
            yield from _flat(each, shape[1:])
    else:
        raise ValueError


def checked_breakdowns(breakdowns: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return breakdowns by name as plain values; InputError for a table of another shape."""
    return {str(name): _checked(str(name), table) for name, table in breakdowns.items()}


def _checked(name: str, given: object) -> dict[str, Any]:
    what, kind = f"breakdown {name!r}", _KINDS.get(name, _LABEL)
    table = described(what, given, (*kind.facts, *kind.keys, *kind.counts))
    for key in kind.keys:
        if not isinstance(table[key], list):
            raise InputError(f"{what}: {key!r} must be a list, found {type(table[key]).__name__}")
    found = Breakdown(name, table)
    for column in found.counts:
        require_counts(what, [(column, count) for count in found.entries(column)])
    for metric in found.metrics:
        require_numbers(what, metric, found.entries(metric))
    means = described(f"{MEAN_OF_GROUPS} of {what}", table.get(MEAN_OF_GROUPS, {}), ())
    intervals = described(f"{INTERVALS} of {what}", table.get(INTERVALS, {}), ())
    for metric in (*means, *intervals):
        if metric not in found.metrics:
            raise InputError(f"{what} has a mean or an interval of {metric!r}, which is none of its metrics")
    require_numbers(what, MEAN_OF_GROUPS, [*means.values()])
    for metric, ends in intervals.items():
        for pair in found.entries(metric, ends):
            if pair != [None, None]:
                require_ordered_pair(f"interval of {what}", metric, pair)
    if name == GALLERY_SIZE:
        if table["order"] not in _ORDERS:
            raise InputError(f"{what}: order must be one of {', '.join(_ORDERS)}, found {table['order']!r}")
        require_counts(what, [("n_rows", count) for count in table["n_rows"]])
        if table["n_rows"] != sorted(set(table["n_rows"])):
            raise InputError(f"{what}: n_rows must ascend, found {table['n_rows'][:12]}")
    return table
