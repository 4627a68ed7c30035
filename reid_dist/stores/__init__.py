"""Feature stores: the handle through which features are read, the Zarr layout, and the readers of other formats."""

from reid_dist.stores.checking import CheckReport, check_store
from reid_dist.stores.distance_block import DistanceBlock
from reid_dist.stores.featureset import FeatureSet
from reid_dist.stores.fused import fuse
from reid_dist.stores.importers import FORMATS, ArrayNames, ingest, open_features
from reid_dist.stores.importers.ingest import FeatureSource, LabelSource, as_feature_set, as_labelled_set, open_labels
from reid_dist.stores.importers.names import Role
from reid_dist.stores.labelled import LabelledRows, LabelledSet
from reid_dist.stores.workspace import Stage, Workspace
from reid_dist.stores.writer import FeatureWriter

__all__ = [
    "FORMATS",
    "ArrayNames",
    "CheckReport",
    "DistanceBlock",
    "FeatureSet",
    "FeatureSource",
    "FeatureWriter",
    "LabelSource",
    "LabelledRows",
    "LabelledSet",
    "Role",
    "Stage",
    "Workspace",
    "as_feature_set",
    "as_labelled_set",
    "check_store",
    "fuse",
    "ingest",
    "open_features",
    "open_labels",
]
