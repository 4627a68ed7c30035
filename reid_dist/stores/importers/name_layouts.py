"""Labels in the names of images: `0002_c1s1_000451_03.jpg` is pid 2, camera 1.

A layout is one definition: a pattern with the groups ``pid`` and ``camid``, and where it comes from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.registry import Registry
from reid_dist.errors import InputError
from reid_dist.stores.importers.source import text_rows
from reid_dist.stores.labels import COLUMN_PREFIX

_LABEL_OF_GROUP = {"pid": "pids", "camid": "camids", "item_id": "item_ids"}
_SHOWN = 3
_IMAGE = re.compile(r".*[.](?:jpe?g|png|bmp|webp|tiff?|ppm|gif)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True)
class NameLayout:
    """How names of images hold labels.

    The pattern is searched in the base name, or in the whole path if it holds a ``/``.  Its groups ``pid``, ``camid``
    and ``item_id`` are these labels, and any other group is a label column, which must be whole numbers.
    """

    name: str
    summary: str
    source: str
    pattern: re.Pattern[str]

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that names of this layout hold, by what they are: ``pids``, ``camids``, ``columns/NAME``."""
        return tuple(_LABEL_OF_GROUP.get(group, COLUMN_PREFIX + group) for group in self.pattern.groupindex)


LAYOUTS: Registry[NameLayout] = Registry("layout")

MARKET1501 = LAYOUTS.register(
    NameLayout(
        "market1501",
        "0002_c1s1_000451_03.jpg, -1_c3s2_012345_00.jpg, 0005_c2_f0046985.jpg: pid, then camera",
        "Market-1501, DukeMTMC-reID, VeRi-776",
        re.compile(r"^(?P<pid>-1|[0-9]+)_c(?P<camid>[0-9]+)(?:s[0-9]+)?_"),
    )
)


def layout_of_pattern(pattern: str) -> NameLayout:
    """Make a layout of a regular expression."""
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(f"--pattern {pattern!r} is no regular expression: {error}") from None
    if not {"pid", "camid"} & set(compiled.groupindex):
        raise InputError(
            f"--pattern {pattern!r} has neither a group pid nor a group camid; write them as (?P<pid>[0-9]+) and "
            "(?P<camid>[0-9]+)"
        )
    return NameLayout("--pattern", "a pattern of this command", pattern, compiled)


def labels_of_names(names: NDArray[np.str_], layout: NameLayout) -> dict[str, NDArray[Any]]:
    """Read labels from names of images, (n,), as texts by what they are: ``pids``, ``camids``, ``columns/NAME``."""
    whole = "/" in layout.pattern.pattern
    paths = (name.replace("\\", "/") for name in names.tolist())
    found = [layout.pattern.search(path if whole else path.rpartition("/")[2]) for path in paths]
    unfit = [row for row, match in enumerate(found) if match is None or not all(match.groupdict().values())]
    if unfit:
        shown = ", ".join(f"row {row}: {str(names[row])[:80]!r}" for row in unfit[:_SHOWN])
        more = ", …" if len(unfit) > _SHOWN else ""
        raise InputError(
            f"{len(unfit)} of {len(names)} names do not fit the layout {layout.name} "
            f"({layout.pattern.pattern}): {shown}{more}; give --pattern with the groups pid and camid, such as "
            "'(?P<pid>[0-9]+)_c(?P<camid>[0-9]+)', or leave these rows out"
        )
    return {
        what: text_rows([match[group] for match in found if match is not None], group)
        for what, group in zip(layout.labels, layout.pattern.groupindex, strict=True)
    }


def first_file_name(values: NDArray[Any]) -> int | None:
    """Return the first row whose label is the name of an image file, which no identity is; None if there is none."""
    if values.dtype.kind != "U":
        return None
    texts = values.tolist()
    if texts and all(MARKET1501.pattern.search(text) for text in texts):
        return 0
    return next((row for row, text in enumerate(texts) if _IMAGE.fullmatch(text)), None)
