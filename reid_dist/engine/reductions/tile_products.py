"""Tiles of a block pair: products of some queries and some gallery rows, in the precision that a reduction asks for.

A tile is computed when a reduction first reads it, once for all reductions, in memory that is reused from tile to tile.
Precisions differ in cost and in how far their values may be from canonical distances.  Each query of a block pair has a
first one, chosen from a sample of the gallery rows; a reduction that finds too many pairs undecided in a tile reads it
again in the next one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, even_rows
from reid_dist.engine.distances import Distance, Screen, Values
from reid_dist.engine.distances.devices import TorchDevice
from reid_dist.engine.distances.integers import LARGEST_DIM, IntegerProduct
from reid_dist.engine.distances.quantised import product_for
from reid_dist.engine.plan import TileShape
from reid_dist.engine.policy import UNFORCED, Policy
from reid_dist.engine.reductions.backends import Backend, Pairs
from reid_dist.engine.reductions.base import FeatureBlock, HiddenColumns, pair_rows
from reid_dist.engine.reductions.costs import (
    ON_DEVICE,
    ON_DEVICE_WITHOUT_INTEGERS,
    REDUCED_ON_DEVICE,
    TABLE,
    Costs,
    Need,
    Precision,
)
from reid_dist.engine.reductions.products import FloatProducts, IntegerProducts
from reid_dist.engine.screened_pairs import note_screened
from reid_dist.kernels.canonical import GIVEN

if TYPE_CHECKING:
    from reid_dist.engine.reductions.device_tiles import UploadedRows

Int64 = NDArray[np.int64]

_SAMPLED_ROWS = 32


class BlockPair:
    """Products of a block of queries and a gallery block, tile by tile.

    Attributes
    ----------
    query, gallery
        The two blocks.
    rows
        Both as kernels take them.
    query_rows, gallery_rows
        Queries and gallery rows of a tile.
    policy
        What decides the products.
    device
        Where they are computed; None for this process.
    """

    def __init__(
        self,
        query: FeatureBlock,
        gallery: FeatureBlock,
        distance: Distance,
        tile: TileShape,
        policy: Policy = UNFORCED,
        needs: Collection[Need] = (),
    ) -> None:
        self.query, self.gallery, self.distance, self.policy = query, gallery, distance, policy
        self.device = self._device_for(needs)
        if self.device is not None:
            is_reduced = REDUCED_ON_DEVICE.issuperset(needs)
            tile = TileShape(*self.device.tile(is_reduced=is_reduced))
        self.rows = pair_rows(distance, query, gallery)
        # The last tile of a block would be short otherwise, and short products are slow.
        self.query_rows, self.gallery_rows = even_rows(len(query), tile.query), even_rows(len(gallery), tile.gallery)
        self._screens: dict[type, Screen] = {}
        self._backends: dict[Precision, Backend] = {}
        self._uploaded: UploadedRows | None = None
        if self.device is not None:
            # Few runs need the modules of devices.
            from reid_dist.engine.reductions.device_tiles import UploadedRows

            self._uploaded = UploadedRows(self.device, query, gallery)

    @cached_property
    def integers(self) -> IntegerProduct | None:
        """Integer products of the pair; None where float32 is preferred.  InputError where forced ones are missing."""
        if self.device is not None:
            return None
        # Graph distances that are added to plain ones are added in float32.
        return None if self.rows.rescoring.active and self._is_mixed else product_for(self.screen(), self.policy)

    @property
    def _is_mixed(self) -> bool:
        return self.rows.rescoring.mixed or self.rows.rescoring.weight == 0.0

    def _device_for(self, needs: Collection[Need]) -> TorchDevice | None:
        """Device of the policy for a pair that is read for some needs."""
        known = self.query.reranked
        if not needs or self.distance.kind == GIVEN or (known is not None and (known.mixed or known.weight == 0.0)):
            return None
        return self.policy.device(len(self.query) * len(self.gallery) * self.gallery.features.shape[1])

    @cached_property
    def has_integers(self) -> bool:
        """Whether products of integers are used, in this process or on the device; InputError as of `integers`."""
        if self.device is None:
            return self.integers is not None
        dim = self.gallery.features.shape[1]
        return dim <= LARGEST_DIM and self.policy.uses_integers_of(self.device, dim)

    @cached_property
    def costs(self) -> Costs:
        """Costs of products where they are computed."""
        table = TABLE
        if self.device is not None:
            table = ON_DEVICE if self.has_integers else ON_DEVICE_WITHOUT_INTEGERS
        # Under a re-ranked distance, some pairs have a known one.
        return Costs(table, self.gallery.features.shape[1], self.rows.rescoring.active)

    def screen(self, precision: Precision = Precision.PLAIN) -> Screen:
        """Screen of a precision: that of all but the widest is the one of float32, up to `Tile.extra`."""
        dtype = np.float64 if precision is Precision.WIDE else np.float32
        if dtype not in self._screens:
            self._screens[dtype] = self.distance.screen_pairs(self.rows, dtype)
        return self._screens[dtype]

    @cached_property
    def sampled_rows(self) -> Int64:
        """Some gallery rows of the block, by which the precision of products is chosen."""
        return np.unique(np.linspace(0, len(self.gallery) - 1, _SAMPLED_ROWS).astype(np.int64))

    def sample(self, columns: Int64) -> Values:
        """Screening values of all queries and some columns in float32, shape (n_query, n)."""
        screen, n_query = self.screen(), len(self.query)
        values, room = np.empty((n_query, len(columns)), screen.dtype), (len(columns), self.gallery.features.shape[1])
        rows, bias = screen.gallery_tile(columns, np.empty(room, screen.dtype))
        screen.multiply(np.arange(n_query), rows, values)
        return values - bias

    def backend(self, precision: Precision) -> Backend:
        """What computes the pairs in a precision."""
        if precision not in self._backends:
            size = self.query_rows * self.gallery_rows
            if self.device is not None and self._uploaded is not None:
                from reid_dist.engine.reductions.device_integers import DeviceIntegers
                from reid_dist.engine.reductions.device_products import DeviceProducts

                kind = DeviceIntegers if precision is Precision.INTEGERS else DeviceProducts
                self._backends[precision] = kind(self.screen(precision), self.rows, self.device, self._uploaded)
            elif precision is Precision.INTEGERS:
                if self.integers is None:
                    raise AssertionError("products of integers are not available")
                self._backends[precision] = IntegerProducts(self.screen(), self.integers, size)
            else:
                self._backends[precision] = FloatProducts(self.screen(precision), size)
        return self._backends[precision]


@dataclass(eq=False)
class TileView:
    """Queries of a block pair that share tiles, and the columns of one of these, which is read in any precision."""

    pair: BlockPair
    # Ascending places in the block, shape (n,), int64.
    queries: Int64
    # First precision of these queries; it becomes the next one where too many pairs are left undecided.
    precision: Precision
    # Places of gallery rows in their block.
    columns: RowRange = field(init=False)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.queries) * len(self.columns)

    def read(self, precision: Precision, need: Need, hidden: HiddenColumns | None = None) -> tuple[Backend, Pairs]:
        """What computes the pairs in a precision, and those to compute for a need, which are counted for the report."""
        name = self.pair.costs.columns[precision].name
        if not self.pair.screen().exact:
            device = self.pair.device
            note_screened(need, name if device is None else f"{name} on {device.name}", self.size)
        return self.pair.backend(precision), Pairs(self.queries, self.columns, hidden)

    def first(self, need: Need) -> Precision:
        """The first precision in which a need is served."""
        return self.pair.costs.serving(self.precision, need)

    def wider(self, precision: Precision, need: Need) -> Precision | None:
        """The next precision that serves a need; None behind the last."""
        return None if self.pair.screen().exact else self.pair.costs.following(precision, need)

    def given_up(self, precision: Precision) -> float:
        """Share of pairs inside bands at which the next precision is preferred."""
        return self.pair.costs.columns[precision].given_up

    def leave(self, precision: Precision, need: Need) -> None:
        """Read further tiles of these queries in the next precision that serves a need."""
        if self.precision is precision:
            self.precision = self.wider(precision, need) or precision
