"""Lists for which products of eight-bit integers do not pay."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from typing import ClassVar

from reid_dist.engine.distances import Distance
from reid_dist.engine.distances.integers import forced_screen
from reid_dist.engine.reductions import FeatureBlock, KeepNearest, SurroundQueries

# Elements of the rows that an item is compared with, per row of its list, with which integers pay for lists.
_ELEMENTS_PER_NEIGHBOUR = 49152


class _CrowdedLists:
    """Kinds of lists for which integers did not pay in a recent block pair: the next pairs are left to float32.

    The pairs of a job are alike, and each of them would find out for itself.  Integers are tried again after some
    pairs, as a later job may have such lists too.  This changes no result.
    """

    _LEFT_OUT: ClassVar[int] = 15

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left: dict[Hashable, int] = {}

    def are_expected(self, kind: Hashable) -> bool:
        """Whether a block pair is left to float32, without trying integers; forced integers are tried always."""
        with self._lock:
            left = self._left.get(kind, 0)
            self._left[kind] = max(0, left - 1)
        return left > 0 and forced_screen() is None

    def note(self, kind: Hashable) -> None:
        """Note that integers did not pay for lists."""
        with self._lock:
            self._left[kind] = self._LEFT_OUT


CROWDED_LISTS = _CrowdedLists()


def kind_of(distance: Distance, block: FeatureBlock, k: int) -> Hashable:
    """Kind of the lists of a job."""
    return distance.name, block.features.shape[1], k


def are_listed(reduction: KeepNearest | SurroundQueries, gallery: FeatureBlock) -> bool:
    """Whether integers pay for lists; those from which single rows are struck are left to float32."""
    if isinstance(reduction, KeepNearest) and reduction.strikes_rows:
        return False
    return pay_for_lists(gallery, 1.0, reduction.k)


def pay_for_lists(others: FeatureBlock, share: float, k: int) -> bool:
    """Whether integers pay for lists of `k` of other items, of which a share is compared per product."""
    elements = share * len(others) * others.features.shape[1]
    return elements >= _ELEMENTS_PER_NEIGHBOUR * k or forced_screen() is not None
