"""Query and gallery as callers give them: feature sets, or paths of what holds them."""

from __future__ import annotations

import os
from typing import TypeAlias

from reid_dist.errors import InputError
from reid_dist.stores.featureset import FeatureSet
from reid_dist.stores.importers.ingest import open_features
from reid_dist.stores.importers.labels_alone import open_labels
from reid_dist.stores.importers.names import Role
from reid_dist.stores.labelled import LabelledSet

__all__ = ["FeatureSource", "LabelSource", "as_feature_set", "as_labelled_set"]

FeatureSource: TypeAlias = FeatureSet | str | os.PathLike[str]
"""A feature set, or path or URI of a store, or of any file that `ingest` reads."""

LabelSource: TypeAlias = LabelledSet | str | os.PathLike[str]
"""Labels of one side, or path or URI of a store, or of any file that holds them."""


def as_feature_set(source: FeatureSource, role: Role | None = None) -> FeatureSet:
    """Open a path; return a feature set as it is.

    Parameters
    ----------
    source
        What the caller gave.
    role
        Which side, where a file holds both; None for a set that is no side.

    Raises
    ------
    StoreNotFoundError, StoreError, InputError
        As reading does; an InputError also for what is neither.
    """
    if isinstance(source, str | os.PathLike):
        return open_features(source, role=role)
    if not isinstance(source, FeatureSet):
        raise InputError(
            f"{role or 'features'} must be a FeatureSet or a path, found {type(source).__name__}; use FeatureSet.open "
            "or .from_arrays"
        )
    return source


def as_labelled_set(source: LabelSource, role: Role) -> LabelledSet:
    """Open the labels at a path; return labels as they are.

    Raises
    ------
    StoreNotFoundError, StoreError, InputError
        As reading does; an InputError also for what is neither.
    """
    if isinstance(source, str | os.PathLike):
        return open_labels(source, role)
    if not isinstance(source, LabelledSet):
        raise InputError(
            f"{role} must be labels, found {type(source).__name__}; use LabelledRows, a FeatureSet or a path"
        )
    return source
