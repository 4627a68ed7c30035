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
    def files(self) -> dict[str, Location]:
        """The files with labels of a single set, by their option."""
        given = {
            "--pids-file": self.pids_file,
            "--camids-file": self.camids_file,
            "--labels": self.labels_file,
            "--names": self.names_file,
        }
        return {option: file for option, file in given.items() if file is not None}

    def check(self) -> None:
        """Refuse labels that are named twice."""
        named = self.names.given(None)
        for what, file in (("pids", self.pids_file), ("camids", self.camids_file)):
            if what in named and file is not None:
                raise InputError(
                    f"{what} are named twice: the array {named[what]!r} ({option_of(what)}, {what}) and the file "
                    f"{file} ({option_of(what)}-file, {what}_file); give one of them"
                )
        if self.names_file is not None and "image_paths" in named:
            raise InputError(
                f"names are given twice: the array {named['image_paths']!r} (--image-paths, image_paths) and the file "
                f"{self.names_file} (--names, names_file); give one of them"
            )
        if self.names_file is not None and self.labels_file is not None:
            raise InputError(
                "labels are given twice: by --labels (labels_file) and by --names (names_file); give one of them, or "
                "--labels with --pattern where its paths hold labels"
            )
        if self.pattern is not None:
            files = {"pids": self.pids_file, "camids": self.camids_file}
            for what in self.layout.labels:
                if what in named or files.get(what) is not None:
                    raise InputError(f"{what} are named twice: by --pattern (pattern), and by {option_of(what)} or "
                                     f"{option_of(what)}-file; give one of them")  # fmt: skip
