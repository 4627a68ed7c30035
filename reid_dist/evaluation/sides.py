"""Query and gallery of a job as texts: two sources, and further models that are fused with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from reid_dist.errors import InputError
from reid_dist.stores import FeatureSet, FeatureSource, as_feature_set, fuse, open_features
from reid_dist.stores.locations import canonical_uri
from reid_dist.stores.repeated_items import Repeated

RowsProgress = Callable[[int, int, str], None]
"""Called with rows done, rows in all, and what is read."""

Model = tuple[FeatureSource, FeatureSource, float | None]
"""Query and gallery of a further model, and its weight; None for one that is swept."""

OpenedModel = tuple[FeatureSet, FeatureSet, float | None]


@dataclass(frozen=True)
class Sides:
    """Sources of both sides; `fuse` are further models as texts that `parse_model` reads.

    `exclude` and `drop_duplicates` say which rows are left out, `left_out` where they are listed; see
    `reid_dist.stores.importers.exclusion`.
    """

    query: str
    gallery: str
    fuse: Sequence[str] = ()
    exclude: Sequence[str] = ()
    drop_duplicates: Repeated | None = None
    left_out: str | None = None

    @property
    def spec(self) -> dict[str, Any]:
        """Entries of a spec on rows that are left out; none where all are kept."""
        lists = {"exclude": [canonical_uri(each) for each in self.exclude]} if self.exclude else {}
        return lists | ({} if self.drop_duplicates is None else {"drop_duplicates": self.drop_duplicates})

    def open(self, progress: RowsProgress | None = None) -> tuple[FeatureSet, FeatureSet]:
        """Open both sides, fused with the further models, without the rows that are left out."""
        return self.kept(*self._fused(progress))

    def kept(self, near: FeatureSet, far: FeatureSet) -> tuple[FeatureSet, FeatureSet]:
        """Views of two opened sides without the rows that are left out."""
        if not self.spec and self.left_out is None:
            return near, far
        # Few runs leave rows out.
        from reid_dist.stores.importers.exclusion import Exclusion, leave_out

        return leave_out(near, far, Exclusion(self.exclude, self.drop_duplicates, self.left_out))

    def _fused(self, progress: RowsProgress | None) -> tuple[FeatureSet, FeatureSet]:
        models = [parse_model(text) for text in self.fuse]
        for text, (_, _, weight) in zip(self.fuse, models, strict=True):
            if weight is None:
                raise InputError(f"fuse {text!r} has no weight; write STORE:WEIGHT, such as {text}:0.4")
        # Rows that are not finite may be among those that are left out, which `kept` checks.
        finite = not self.exclude or bool(models)
        near, far = (
            open_features(place, role=role, progress=progress, finite=finite)
            for place, role in ((self.query, "query"), (self.gallery, "gallery"))
        )
        return fused_sides(near, far, models)


def parse_model(text: str) -> Model:
    """Read ``STORE:WEIGHT`` or ``QUERY,GALLERY:WEIGHT``; STORE holds both sides; without a weight it is None.

    A colon belongs to the place unless a number follows it.
    """
    place, colon, number = text.rpartition(":")
    try:
        weight: float | None = float(number) if colon else None
    except ValueError:
        weight = None
    place = text if weight is None else place
    query, comma, gallery = place.partition(",")
    if not query or (comma and not gallery) or "," in gallery:
        raise InputError(f"fuse takes STORE:WEIGHT or QUERY,GALLERY:WEIGHT, found {text!r}")
    return query, gallery if comma else query, weight


def open_models(models: Sequence[Model]) -> list[OpenedModel]:
    """Open both sets of every model."""
    return [
        (as_feature_set(query, "query"), as_feature_set(gallery, "gallery"), weight)
        for query, gallery, weight in models
    ]


def fused_sides(
    query: FeatureSet, gallery: FeatureSet, models: Sequence[Model], weight: float = 0.0
) -> tuple[FeatureSet, FeatureSet]:
    """Fuse both sides with further models; one without a weight gets `weight`."""
    if not models:
        return query, gallery
    opened = open_models(models)
    for near, far, _ in opened:
        if near.dim != far.dim:
            raise InputError(
                f"query features of the fused model {near.uri} have {near.dim} dimensions, gallery features {far.dim}; "
                "both must come from one model"
            )
    weights = [weight if own is None else own for _, _, own in opened]
    near = fuse(query, [(model[0], own) for model, own in zip(opened, weights, strict=True)], role="query")
    far = fuse(gallery, [(model[1], own) for model, own in zip(opened, weights, strict=True)], role="gallery")
    return near, far
