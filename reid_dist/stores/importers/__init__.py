"""Readers of file formats, one file each, and what is made of them; importing this package fills the registry."""

from reid_dist.stores.importers import (  # noqa: F401 - each registers its formats
    hdf5_files,
    matlab,
    numpy_files,
    parquet,
    safetensors_files,
    text_files,
    torch_files,
    zarr_groups,
)
from reid_dist.stores.importers.ingest import ingest, open_features
from reid_dist.stores.importers.name_layouts import LAYOUTS
from reid_dist.stores.importers.names import ArrayNames
from reid_dist.stores.importers.source import FORMATS, open_source

__all__ = ["FORMATS", "LAYOUTS", "ArrayNames", "ingest", "open_features", "open_source"]
