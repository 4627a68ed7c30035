"""Layouts: how names of images, and the lists of a data set, hold labels; importing this package fills the registry."""

from reid_dist.stores.importers.name_layouts.definition import (
    EVALUATED,
    LAYOUTS,
    Coded,
    NameLayout,
    Records,
    layout_of_pattern,
)
from reid_dist.stores.importers.name_layouts.definitions import MARKET1501
from reid_dist.stores.importers.name_layouts.matching import records_of_names, rows_in_list
from reid_dist.stores.importers.name_layouts.reading import labels_of_names, sets_by_folder, sets_by_label
from reid_dist.stores.importers.name_layouts.records import read_lists, read_name_list, read_names_file

__all__ = [
    "EVALUATED",
    "LAYOUTS",
    "MARKET1501",
    "Coded",
    "NameLayout",
    "Records",
    "labels_of_names",
    "layout_of_pattern",
    "read_lists",
    "read_name_list",
    "read_names_file",
    "records_of_names",
    "rows_in_list",
    "sets_by_folder",
    "sets_by_label",
]
