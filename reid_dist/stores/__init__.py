"""Feature stores: the handle through which features are read, the Zarr layout, and the readers of other formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.stores.checking import CheckReport, check_store
    from reid_dist.stores.distance_block import DistanceBlock, DistanceSource, as_distance_block
    from reid_dist.stores.featureset import FeatureSet
    from reid_dist.stores.fused import fuse
    from reid_dist.stores.importers.appending import append
    from reid_dist.stores.importers.ingestion import ingest
    from reid_dist.stores.importers.names import ArrayNames
    from reid_dist.stores.importers.source import FORMATS
    from reid_dist.stores.labels import LabelledRows, LabelledSet, Role
    from reid_dist.stores.opening import (
        FeatureSource,
        LabelSource,
        as_feature_set,
        as_labelled_set,
        open_features,
        open_labels,
    )
    from reid_dist.stores.workspace import Stage, Workspace
    from reid_dist.stores.writer import FeatureWriter

__all__ = [
    "FORMATS",
    "ArrayNames",
    "CheckReport",
    "DistanceBlock",
    "DistanceSource",
    "FeatureSet",
    "FeatureSource",
    "FeatureWriter",
    "LabelSource",
    "LabelledRows",
    "LabelledSet",
    "Role",
    "Stage",
    "Workspace",
    "append",
    "as_distance_block",
    "as_feature_set",
    "as_labelled_set",
    "check_store",
    "fuse",
    "ingest",
    "open_features",
    "open_labels",
]

_NAMES = {
    "checking": ("CheckReport", "check_store"),
    "distance_block": ("DistanceBlock", "DistanceSource", "as_distance_block"),
    "featureset": ("FeatureSet",),
    "fused": ("fuse",),
    "importers.appending": ("append",),
    "importers.ingestion": ("ingest",),
    "importers.names": ("ArrayNames",),
    "importers.source": ("FORMATS",),
    "labels": ("LabelledRows", "LabelledSet", "Role"),
    "opening": (
        *("FeatureSource", "LabelSource"),
        *("as_feature_set", "as_labelled_set", "open_features", "open_labels"),
    ),
    "workspace": ("Stage", "Workspace"),
    "writer": ("FeatureWriter",),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
