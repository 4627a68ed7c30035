"""The table of needs and backends: which precision of products serves which need, and at what cost.

Costs are nanoseconds of one thread of a Zen 5 with products of BLAS and ONNX Runtime; their ratios alone matter, and
are alike on processors with instructions for products of integers.  They are constants, so that a block pair takes the
same path on every machine that has these products.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.policy import Policy

S = TypeVar("S", float, NDArray[np.float64])


class Precision(IntEnum):
    """Precision of products, from the cheapest to the one that decides most pairs."""

    # Queries whose pairs are not read.
    NOTHING = 0
    INTEGERS = 1
    PLAIN = 2
    WIDE = 3


class Need(StrEnum):
    """What pairs are read for, as the report says it."""

    RANKS = "ranks"
    GROUPS = "groups"
    SINGLE_SHOT = "single-shot"
    LISTS = "lists"
    NEIGHBOURS = "neighbours"
    HISTOGRAM = "histogram"
    VERIFICATION = "verification"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table: a backend by its precision."""

    # As the report says it.
    name: str
    # What it serves; and of this, what it serves where some pairs of known distance are not among its products.
    needs: frozenset[Need]
    needs_beside_known: frozenset[Need]
    # Of a pair of a tile, and of a pair that is looked at singly: a constant, and a number per element of the rows.
    per_pair: tuple[float, float]
    per_open: tuple[float, float]
    # Share of pairs inside bands at which a computed tile is left to the next precision.
    given_up: float = 0.2
    # Listing an entry, as well.
    per_entry: float = 0.0

    def serves(self, need: Need, *, known: bool) -> bool:
        """Whether it serves a need; `known` are pairs of known distance among those that are read."""
        return need in (self.needs_beside_known if known else self.needs)


_DECIDED: Final = frozenset({Need.RANKS, Need.GROUPS, Need.SINGLE_SHOT, Need.VERIFICATION})
_EVERY: Final = frozenset(Need)
_NOT_BINNED: Final = _EVERY - {Need.HISTOGRAM}

Table = Mapping[Precision, Column]

TABLE: Final[Table] = {
    Precision.INTEGERS: Column("int8", _NOT_BINNED, _DECIDED, (0.6, 0.005), (40.0, 0.065), 0.15, per_entry=30.0),
    Precision.PLAIN: Column("float32", _EVERY, _EVERY, (1.0, 0.02), (40.0, 0.17)),
    Precision.WIDE: Column("float64", _DECIDED, _DECIDED, (2.0, 0.04), (40.0, 0.17)),
}
"""Columns from the cheapest to the one that decides most pairs; a need is served by the next one that serves it."""

_IN_EIGHT_BITS: Final = frozenset({Need.RANKS, Need.LISTS, Need.NEIGHBOURS})

ON_DEVICE: Final[Table] = {
    Precision.INTEGERS: Column(
        "int8", _IN_EIGHT_BITS, frozenset({Need.RANKS}), (0.008, 3e-6), (0.5, 0.01), given_up=4e-3
    ),
    Precision.PLAIN: Column("float32", _EVERY, _EVERY, (0.006, 4e-5), (5.0, 0.02), given_up=4e-3),
    Precision.WIDE: Column("float64", _DECIDED, _DECIDED, (0.012, 8e-5), (5.0, 0.02)),
}
"""The same for products on a device, which some eight threads of the CPU share that decide open pairs."""

REDUCED_ON_DEVICE: Final = _IN_EIGHT_BITS | {Need.HISTOGRAM, Need.VERIFICATION}
"""Needs for which values do not leave a device."""

ON_DEVICE_WITHOUT_INTEGERS: Final[Table] = {
    precision: column for precision, column in ON_DEVICE.items() if precision is not Precision.INTEGERS
}
"""The same for a device on which products of integers do not pay."""

# Elements of the rows that an item is compared with, per row of its list, with which integers pay for lists.
_ELEMENTS_PER_NEIGHBOUR = 49152
# Share of what integers save that lists may spend, and entries of lists without bounds that are spent in any case.
_SPENT, _MOST_BEGUN, _LEAST_ENTRIES = 0.5, 12, 1 << 14


def _at(cost: tuple[float, float], dim: int) -> float:
    return cost[0] + cost[1] * dim


@dataclass(frozen=True, slots=True)
class Costs:
    """What products of rows of `dim` elements serve and cost; `known` says whether some pairs have known distances."""

    columns: Table
    dim: int
    known: bool = False

    def of(self, precision: Precision, share: S) -> S:
        """Cost of a pair where a share of the pairs is left open."""
        column = self.columns[precision]
        return _at(column.per_pair, self.dim) + _at(column.per_open, self.dim) * share

    def cheapest(
        self, kinds: Sequence[Precision], share_open: Callable[[Precision], NDArray[np.float64]]
    ) -> NDArray[np.uint8]:
        """Precision of least cost of each query, shape (n,).

        `share_open` gives the share of the pairs of each query that a precision leaves open, shape (n,).  It is not
        called for one that could be the cheapest of no query.
        """
        first, *others = kinds
        least = self.of(first, share_open(first))
        found = np.full(len(least), first, np.uint8)
        for kind in others:
            if (self.of(kind, 0.0) < least).any():
                cost = self.of(kind, share_open(kind))
                found[cost < least] = kind
                least = np.minimum(least, cost)
        return found

    def _serving(self, need: Need) -> list[Precision]:
        return [each for each in self.columns if self.columns[each].serves(need, known=self.known)]

    def following(self, precision: Precision, need: Need) -> Precision | None:
        """The next precision that serves a need; None behind all."""
        return next((each for each in self._serving(need) if each > precision), None)

    def serving(self, precision: Precision, need: Need) -> Precision:
        """The precision if it serves a need, or else the next one that does; the widest that does, behind the last."""
        served = self._serving(need)
        return next((each for each in served if each >= precision), served[-1])


def pay_for_lists(n_others: float, dim: int, k: int, policy: Policy) -> bool:
    """Whether integers pay for lists of `k` of so many other items, or are forced."""
    return n_others * dim >= _ELEMENTS_PER_NEIGHBOUR * k or policy.forced == "int8"


class ListWork:
    """Whether integers still pay for lists: they do unless too many values are refined, or are forced.

    `n_begun` is the number of entries of the lists that begin without bounds.
    """

    def __init__(self, costs: Costs, n_begun: int, policy: Policy) -> None:
        self._is_forced = policy.forced == "int8"
        whole = costs.columns.get(Precision.INTEGERS, TABLE[Precision.INTEGERS])
        self._saved = _SPENT * (costs.of(Precision.PLAIN, 0.0) - _at(whole.per_pair, costs.dim))
        self._entry = _at(whole.per_open, costs.dim) + whole.per_entry
        self._left = self._entry * (_LEAST_ENTRIES + _MOST_BEGUN * n_begun)

    def exceeds(self, precision: Precision, n_refined: int, n_pairs: int) -> bool:
        """Add values that were refined, and pairs that were compared; whether the next precision is faster."""
        if precision is not Precision.INTEGERS:
            return False
        self._left += self._saved * n_pairs - self._entry * n_refined
        return self._left < 0 and not self._is_forced
