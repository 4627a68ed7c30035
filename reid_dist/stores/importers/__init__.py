"""Readers of file formats, one file each, and what is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.stores.importers.appending import append
    from reid_dist.stores.importers.ingestion import ingest
    from reid_dist.stores.importers.name_layouts import LAYOUTS
    from reid_dist.stores.importers.names import ArrayNames
    from reid_dist.stores.importers.source import FORMATS, open_source

__all__ = ["FORMATS", "LAYOUTS", "ArrayNames", "append", "ingest", "open_source"]

_NAMES = {
    "appending": ("append",),
    "ingestion": ("ingest",),
    "name_layouts": ("LAYOUTS",),
    "names": ("ArrayNames",),
    "source": ("FORMATS", "open_source"),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
