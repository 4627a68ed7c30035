"""Options: the sources of labels."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias, TypedDict

from reid_dist.errors import InputError
from reid_dist.stores.importers.exclusion import Exclusion
from reid_dist.stores.importers.name_layouts import LAYOUTS, MARKET1501, NameLayout, layout_of_pattern
from reid_dist.stores.importers.names import ArrayNames, option_of
from reid_dist.stores.importers.source import Frame
from reid_dist.stores.repeated_items import Repeated

Location: TypeAlias = str | os.PathLike[str]

# The option of ``reid-dist ingest`` and the argument of `ingest` for a file of labels.
_FILE_OPTIONS = {
    "pids": ("--pids-file", "pids_file"),
    "camids": ("--camids-file", "camids_file"),
    "image_paths": ("--names", "names_file"),
}


class LabelFields(TypedDict, total=False):
    """Keyword arguments for the sources of labels; see `reid_dist.stores.importers.ingestion.ingest`."""

    pids_file: Location | None
    camids_file: Location | None
    labels_file: Location | Frame | None
    names_file: Location | None
    layout: str | None
    pattern: str | None
    words: Mapping[str, Mapping[str, int]]
    lists: Sequence[Location]
    query_lists: Sequence[Location]
    gallery_lists: Sequence[Location]
    query_folders: Sequence[str]
    gallery_folders: Sequence[str]
    num_query: int | None
    drop_pids: Sequence[int]
    drop_duplicates: Repeated | None
    exclude: Location | Sequence[Location]
    left_out: Location | None


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Where labels come from; see `reid_dist.stores.importers.ingestion.ingest`."""

    names: ArrayNames
    pids_file: Location | None = None
    camids_file: Location | None = None
    labels_file: Location | Frame | None = None
    names_file: Location | None = None
    layout: str | None = None
    pattern: str | None = None
    words: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    lists: Sequence[Location] = ()
    query_lists: Sequence[Location] = ()
    gallery_lists: Sequence[Location] = ()
    query_folders: Sequence[str] = ()
    gallery_folders: Sequence[str] = ()
    num_query: int | None = None
    drop_pids: Sequence[int] = ()
    drop_duplicates: Repeated | None = None
    exclude: Location | Sequence[Location] = ()
    left_out: Location | None = None

    def __post_init__(self) -> None:
        """Take a single list or folder for a sequence of one."""
        for name in ("lists", "query_lists", "gallery_lists", "query_folders", "gallery_folders"):
            given = getattr(self, name)
            if isinstance(given, str | os.PathLike):
                object.__setattr__(self, name, (given,))

    @cached_property
    def exclusion(self) -> Exclusion:
        """Which rows are left out, and where they are listed."""
        return Exclusion(self.exclude, self.drop_duplicates, self.left_out)

    @cached_property
    def name_layout(self) -> NameLayout:
        """How names and lists hold labels."""
        if self.pattern is not None:
            layout = layout_of_pattern(self.pattern)
        else:
            layout = MARKET1501 if self.layout is None else LAYOUTS.get(self.layout)
        return layout.with_words(self.words) if self.words else layout

    @property
    def chooses_layout(self) -> bool:
        """Whether labels come from names of images or from lists by choice."""
        return self.names_file is not None or self.pattern is not None or self.layout is not None

    @property
    def files(self) -> dict[str, Location]:
        """The files with one label of a single set each, by what it is."""
        given = {"pids": self.pids_file, "camids": self.camids_file, "image_paths": self.names_file}
        return {what: file for what, file in given.items() if file is not None}

    @property
    def of_sides(self) -> list[str]:
        """The options that were given and that choose the rows of query and gallery."""
        given = {
            "--query-list": self.query_lists,
            "--gallery-list": self.gallery_lists,
            "--query-folder": self.query_folders,
            "--gallery-folder": self.gallery_folders,
        }
        return [option for option, values in given.items() if values]

    @property
    def of_single_sets(self) -> list[str]:
        """The options that were given and that go with a single set."""
        given = [_FILE_OPTIONS[what][0] for what in self.files]
        others = {"--labels": self.labels_file, "--list": self.lists or None, "--num-query": self.num_query}
        return given + [option for option, value in others.items() if value is not None] + self.of_sides

    def check(self) -> None:
        """Refuse labels that are named twice, and options without those that they need."""
        named = self.names.given(None)
        for what, file in self.files.items():
            if what in named:
                raise InputError(
                    f"{what} are named twice: the array {named[what]!r} ({option_of(what)}, {what}) and the file "
                    f"{file} ({', '.join(_FILE_OPTIONS[what])}); give one of them"
                )
        if self.labels_file is not None and (self.names_file is not None or self.lists):
            option, argument = ("--list", "lists") if self.lists else _FILE_OPTIONS["image_paths"]
            raise InputError(
                f"labels are given twice: by --labels (labels_file) and by {option} ({argument}); give one of them, or "
                "--labels with --layout or --pattern where its paths hold labels"
            )
        if self.layout is not None and self.pattern is not None:
            raise InputError("names are described by --layout (layout) and by --pattern (pattern); give one of them")
        if self.lists and self.layout is None:
            raise InputError(
                "--list (lists) is read in the form of a data set; name it with --layout (layout), see `reid-dist list "
                "layouts`"
            )
        if self.num_query is not None and self.of_sides:
            raise InputError(
                f"query and gallery are chosen twice: by --num-query (num_query) and by {self.of_sides[0]}; give "
                "one of them"
            )
        for what in self.name_layout.labels if self.pattern is not None else ():
            if what in named or what in self.files:
                raise InputError(f"{what} are named twice: by --pattern (pattern), and by {option_of(what)} or "
                                 f"{option_of(what)}-file; give one of them")  # fmt: skip
