"""Options: the sources of labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypedDict

from reid_dist.errors import InputError
from reid_dist.stores.importers.name_layouts import MARKET1501, NameLayout, layout_of_pattern
from reid_dist.stores.importers.names import ArrayNames, option_of

Location: TypeAlias = str | os.PathLike[str]

# The option of ``reid-dist ingest`` and the argument of `ingest` for a file of labels.
_FILE_OPTIONS = {
    "pids": ("--pids-file", "pids_file"),
    "camids": ("--camids-file", "camids_file"),
    "image_paths": ("--names", "names_file"),
}


class LabelFields(TypedDict, total=False):
    """Keyword arguments for the sources of labels; see `reid_dist.stores.importers.ingest.ingest`."""

    pids_file: Location | None
    camids_file: Location | None
    labels_file: Location | None
    names_file: Location | None
    pattern: str | None
    num_query: int | None
    drop_pids: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class LabelOptions:
    """Where labels come from; see `reid_dist.stores.importers.ingest.ingest`."""

    names: ArrayNames
    pids_file: Location | None = None
    camids_file: Location | None = None
    labels_file: Location | None = None
    names_file: Location | None = None
    pattern: str | None = None
    num_query: int | None = None
    drop_pids: Sequence[int] = ()

    @property
    def layout(self) -> NameLayout:
        """How names hold labels."""
        return MARKET1501 if self.pattern is None else layout_of_pattern(self.pattern)

    @property
    def reads_names(self) -> bool:
        """Whether labels come from names of images by choice."""
        return self.names_file is not None or self.pattern is not None

    @property
    def files(self) -> dict[str, Location]:
        """The files with one label of a single set each, by what it is."""
        given = {"pids": self.pids_file, "camids": self.camids_file, "image_paths": self.names_file}
        return {what: file for what, file in given.items() if file is not None}

    @property
    def of_single_sets(self) -> list[str]:
        """The options that were given and that go with a single set."""
        given = [_FILE_OPTIONS[what][0] for what in self.files]
        others = {"--labels": self.labels_file, "--num-query": self.num_query}
        return given + [option for option, value in others.items() if value is not None]

    def check(self) -> None:
        """Refuse labels that are named twice."""
        named = self.names.given(None)
        for what, file in self.files.items():
            if what in named:
                raise InputError(
                    f"{what} are named twice: the array {named[what]!r} ({option_of(what)}, {what}) and the file "
                    f"{file} ({', '.join(_FILE_OPTIONS[what])}); give one of them"
                )
        if self.names_file is not None and self.labels_file is not None:
            raise InputError(
                "labels are given twice: by --labels (labels_file) and by --names (names_file); give one of them, or "
                "--labels with --pattern where its paths hold labels"
            )
        if self.pattern is not None:
            for what in self.layout.labels:
                if what in named or what in self.files:
                    raise InputError(f"{what} are named twice: by --pattern (pattern), and by {option_of(what)} or "
                                     f"{option_of(what)}-file; give one of them")  # fmt: skip
