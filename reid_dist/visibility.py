"""Where workers can read what this process has in memory."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from os import PathLike
from typing import TYPE_CHECKING

from reid_dist.stores import FeatureSet, Workspace

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["visible_to", "workspace_folder"]


def workspace_folder(stack: contextlib.ExitStack, workspace: str | PathLike[str] | None) -> str:
    """Path or URI of the workspace, or a temporary directory that lasts as long as the stack."""
    if workspace is not None:
        return Workspace.at(workspace).path
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="reid-dist-"))


@contextlib.contextmanager
def visible_to(
    client: Client | None, workspace: str | PathLike[str] | None, query: FeatureSet, gallery: FeatureSet
) -> Iterator[tuple[FeatureSet, FeatureSet]]:
    """Put sets that live in this process's memory where workers can read them, once each."""
    if client is None or (query.is_stored and gallery.is_stored):
        yield query, gallery
        return
    with contextlib.ExitStack() as stack:
        place = Workspace.at(workspace_folder(stack, workspace))
        stored: dict[str, FeatureSet] = {}
        for features in (query, gallery):
            if features.content_digest not in stored:
                target = place.place(f"features-{features.content_digest[:16]}.zarr")
                stored[features.content_digest] = (
                    features if features.is_stored else features.save(target, overwrite=True)
                )
        yield stored[query.content_digest], stored[gallery.content_digest]
