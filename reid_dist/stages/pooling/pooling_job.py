"""Pooling methods, and a pooling with its options checked: what rows depend on, their labels, the store to write."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.core.registry import Registry, did_you_mean
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stages.pooling.row_groups import CamidRule, RowGroups, latest_groups, pooled_labels
from reid_dist.stores import FeatureSet, FeatureWriter
from reid_dist.stores.kept_rows import KEPT_DTYPES, Offenders, kept_dtype
from reid_dist.stores.labels import Labels
from reid_dist.stores.layout import chunk_length

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Pooling:
    """Pooling method: an elementwise reduction of rows.

    Attributes
    ----------
    name, summary, source
        Texts for lists of methods.
    start
        Initial value of every element of an accumulator.
    join
        Combines accumulators and rows, both (n, dim) float64, into accumulators, element by element.
    finish
        Converts accumulators, (n, dim) float64, and sums of weights, (n, 1) float64, into pooled rows.
    weighs
        Whether rows may have weights, by which they are multiplied; without any, each has the weight 1.
    """

    name: str
    summary: str
    source: str
    start: float
    join: Callable[[Float64, Float64], Float64]
    finish: Callable[[Float64, Float64], Float64]
    weighs: bool = False


POOLINGS: Registry[Pooling] = Registry("pooling method")

POOLINGS.register(
    Pooling(
        "mean",
        "arithmetic mean of the rows of a group",
        "Zheng et al., ECCV 2016 (MARS); multi-query of Zheng et al., ICCV 2015 (Market-1501)",
        start=0.0,
        join=lambda sums, rows: sums + rows,
        finish=lambda sums, weight: sums / weight,
        weighs=True,
    )
)
POOLINGS.register(
    Pooling(
        "max",
        "largest value of each dimension over the rows of a group",
        "Zheng et al., ECCV 2016 (MARS)",
        start=-np.inf,
        join=lambda largest, rows: np.maximum(largest, rows),
        # The maximum of +0 and -0 depends on the processor; adding zero gives +0.
        finish=lambda largest, _: largest + 0.0,
    )
)


@dataclass(frozen=True, kw_only=True)
class PoolRecipe:
    """All that pooled rows depend on; `dtype` is the name of the dtype in which they are kept.

    Rows of a group that share `media`, a label column, are pooled first; None where every row is a medium.
    """

    features: FeatureSet
    by: str
    method: str
    normalise: bool
    normalise_rows: bool
    dtype: str
    media: str | None = None

    @property
    def groups(self) -> RowGroups:
        """Groups of the rows."""
        return latest_groups(self.features, self.by)

    def weights(self, rows: Int64, first: int, end: int) -> tuple[Float64 | None, Float64]:
        """Weights of all rows of the groups from `first` to `end` (exclusive), and the sums of weights by group.

        Shape (n_rows,), None for equal weights, and shape (n_groups,).  A row weighs one over the rows of its medium.
        """
        groups = self.groups
        if self.media is None:
            return None, groups.size[first:end].astype(np.float64)
        _, medium = np.unique(self.features.columns[self.media][rows], return_inverse=True)
        n_media = int(medium.max()) + 1
        pairs, place, size = np.unique(
            (groups.of_row[rows] - first) * n_media + medium, return_inverse=True, return_counts=True
        )
        return 1.0 / size[place], np.bincount(pairs // n_media, minlength=end - first).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class PooledPlace:
    """Where the new store goes, and how it is laid out; None for the usual sizes."""

    uri: str
    chunk_rows: int | None
    overwrite: bool


@dataclass(frozen=True, kw_only=True)
class PoolJob:
    """A pooling with the labels of the pooled rows, and notes on labels that are left out."""

    recipe: PoolRecipe
    groups: RowGroups
    labels: Labels
    notes: list[str]
    camids: CamidRule
    allow_zero: bool

    @classmethod
    def of(
        cls,
        features: FeatureSet,
        *,
        by: str,
        method: str,
        normalise: bool,
        normalise_rows: bool,
        camids: CamidRule,
        allow_zero: bool,
        dtype: DTypeLike,
        media: str | None = None,
    ) -> PoolJob:
        """Check options against the labels of a set; errors are those of `reid_dist.pool`."""
        how, target = POOLINGS.get(method), kept_dtype(dtype)
        if camids not in get_args(CamidRule):
            raise UnknownNameError(did_you_mean("rule for camids", str(camids), get_args(CamidRule)))
        if normalise_rows and features.n_zero_rows and not allow_zero:
            zero = Offenders(features.n_zero_rows, features.first_zero_rows)
            raise InputError(
                f"rows of zeros cannot be scaled to length 1: found {zero}; leave them out, or let them be "
                "(allow_zero=True, --allow-zero)"
            )
        if media is not None and media not in features.columns:
            raise UnknownNameError(did_you_mean("label column of media", str(media), features.columns))
        if media is not None and not how.weighs:
            raise InputError(
                f"media are for means, in which each has the same weight; the {how.name} over all rows of a group is "
                "that over its media: leave media out"
            )
        recipe = PoolRecipe(
            features=features,
            by=by,
            method=how.name,
            normalise=normalise,
            normalise_rows=normalise_rows,
            dtype=target.name,
            media=media,
        )
        groups = recipe.groups
        labels, notes = pooled_labels(features, groups, camids)
        return cls(recipe=recipe, groups=groups, labels=labels, notes=notes, camids=camids, allow_zero=allow_zero)

    @property
    def options(self) -> dict[str, Any]:
        """Options that the new store records."""
        of = self.recipe
        return {
            "by": of.by,
            "media": of.media,
            "method": of.method,
            "normalise": of.normalise,
            "normalise_rows": of.normalise_rows,
            "camids": self.camids,
        }

    def chunk_rows(self, to: PooledPlace) -> int:
        """Rows per chunk of the new store; `InputError` for a number that is not positive."""
        row_bytes = self.recipe.features.dim * KEPT_DTYPES[self.recipe.dtype].itemsize
        return chunk_length(row_bytes, len(self.groups), to.chunk_rows)

    def spec(self, to: PooledPlace) -> dict[str, Any]:
        """All that the new store depends on, by name."""
        return {
            "source": self.recipe.features.content_digest,
            **self.options,
            "dtype": self.recipe.dtype,
            "allow_zero": self.allow_zero,
            "chunk_rows": self.chunk_rows(to),
        }

    def writer(self, to: PooledPlace) -> FeatureWriter:
        """Begin the new store."""
        of, features = self.recipe, self.recipe.features
        scaled = ", scaled to length 1" if of.normalise else ""
        rows = "rows of length 1" if of.normalise_rows else "rows"
        of_media = "" if of.media is None else f" of the means by {of.media}"
        summary = (
            f"pooled by {of.by}: {of.method}{of_media} of {features.n_rows:,} {rows} into {len(self.groups):,}{scaled}"
        )
        return FeatureWriter(
            to.uri,
            dim=features.dim,
            n_rows=len(self.groups),
            dtype=of.dtype,
            chunk_rows=to.chunk_rows,
            allow_zero=self.allow_zero,
            overwrite=to.overwrite,
            notes=[*features.notes, summary, *self.notes],
            source={
                "uri": features.uri,
                "content_digest": features.content_digest,
                "pooling": self.options,
                "spec": self.spec(to),
            },
        )
