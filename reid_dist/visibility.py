"""Where workers can read what this process has in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from reid_dist.stores import FeatureSet

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["visible_to", "workspace_folder"]


def workspace_folder(stack: contextlib.ExitStack, workspace: str | PathLike[str] | None) -> Path:
    """The workspace, or a temporary directory that lasts as long as the stack."""
    if workspace is not None:
        return Path(workspace)
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="reid-dist-")))


@contextlib.contextmanager
def visible_to(
    client: Client | None, workspace: str | PathLike[str] | None, query: FeatureSet, gallery: FeatureSet
) -> Iterator[tuple[FeatureSet, FeatureSet]]:
    """Put sets that live in this process's memory where workers can read them, once each."""
    if client is None or (query.is_stored and gallery.is_stored):
        yield query, gallery
        return
    with contextlib.ExitStack() as stack:
        folder = workspace_folder(stack, workspace)
        stored: dict[str, FeatureSet] = {}
        for features in (query, gallery):
            if features.content_digest not in stored:
                target = folder / f"features-{features.content_digest[:16]}.zarr"
                stored[features.content_digest] = (
                    features if features.is_stored else features.save(str(target), overwrite=True)
                )
        yield stored[query.content_digest], stored[gallery.content_digest]
