"""Thumbnails of both sides by row, made when they are first asked for, the latest kept in memory."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.reports.thumbnails import UnreadableImageError, thumbnail

_MOST_BYTES: Final = 64_000_000


class Thumbnails:
    """Thumbnails of the queries and of the gallery; several threads may read at once.

    Parameters
    ----------
    paths
        Of the pictures by side, each of shape (n,); None for a side without pictures.
    root
        Where relative paths start.
    """

    def __init__(self, paths: Mapping[str, NDArray[np.str_] | None], root: Path) -> None:
        self._paths, self._root = dict(paths), root
        self._kept: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._n_bytes = 0
        self._lock = threading.Lock()
        self.n_failed = 0
        self.first_failure = ""

    def has(self, side: str) -> bool:
        """Whether there are pictures of a side."""
        return self._paths[side] is not None

    def get(self, side: str, row: int) -> bytes | None:
        """Return a thumbnail as a JPEG; None for a row that does not exist and where the picture cannot be read."""
        paths = self._paths[side]
        if paths is None or row >= len(paths):
            return None
        key = (side, row)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        path = str(paths[row])
        try:
            if not path:
                raise UnreadableImageError("empty path")
            image = thumbnail(self._root / path)
        except UnreadableImageError as error:
            with self._lock:
                self.n_failed += 1
                self.first_failure = self.first_failure or f"{path!r}: {error}"
            return None
        with self._lock:
            if key not in self._kept:
                self._kept[key] = image
                self._n_bytes += len(image)
            while self._n_bytes > _MOST_BYTES:
                self._n_bytes -= len(self._kept.popitem(last=False)[1])
        return image
