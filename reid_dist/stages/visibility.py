"""Sets in memory are stored where workers can read them; stores that a worker cannot read are refused."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reid_dist.clusters.versions import refuse_unlike_code
from reid_dist.clusters.workers import awaited_workers, run_on_workers
from reid_dist.core.temporary import draft_of, temporary_directory
from reid_dist.errors import ReidDistError, StoreError, StoreNotFoundError
from reid_dist.stores import DistanceBlock, FeatureSet, Workspace
from reid_dist.stores.featureset import stores_of
from reid_dist.stores.locks import stage_lock
from reid_dist.stores.stored import StoreReader

if TYPE_CHECKING:
    from distributed import Client


@contextlib.contextmanager
def visible_sets(
    client: Client,
    workspace: Workspace | None,
    query: FeatureSet,
    gallery: FeatureSet,
    warn: Callable[[str], None],
) -> Iterator[tuple[FeatureSet, FeatureSet]]:
    """Write sets in the memory of this process to where workers can read them, once each.

    Stores and workspaces that a worker cannot read, and workers without this package or with another version of it,
    are refused.  `warn` takes a line about workers that are waited for.
    """
    _refuse_unfit_workers(client, workspace, warn)
    if all(each.is_stored and not _must_move(each, workspace) for each in (query, gallery)):
        _refuse_unseen_stores(client, query, gallery)
        yield query, gallery
        return
    with _kept_in(workspace) as place:
        stored: dict[str, FeatureSet] = {}
        for features in (query, gallery):
            if features.content_digest not in stored:
                target = place.place(f"features-{features.content_digest[:16]}.zarr")
                stays = features.is_stored and not _must_move(features, workspace)
                stored[features.content_digest] = features if stays else _saved(features, target, warn)
        near, far = stored[query.content_digest], stored[gallery.content_digest]
        _refuse_unseen_stores(client, near, far)
        yield near, far


@contextlib.contextmanager
def visible_block(
    client: Client, workspace: Workspace | None, block: DistanceBlock, warn: Callable[[str], None]
) -> Iterator[DistanceBlock]:
    """The same for distances, which are a file that every worker maps."""
    _refuse_unfit_workers(client, workspace, warn)
    with contextlib.ExitStack() as stack:
        if not block.is_stored:
            place = stack.enter_context(_kept_in(workspace))
            block = block.save(place.place(f"distances-{block.content_digest[:16]}.npy"))
        unseen = [worker for worker, seen in _run_on_all(client, os.path.isfile, block.uri).items() if not seen]
        if unseen:
            raise StoreNotFoundError(
                f"worker {unseen[0]} cannot read the distances {block.uri} of this process; put the file where all "
                "workers have it under the same path"
            )
        yield block


def _refuse_unfit_workers(client: Client, workspace: Workspace | None, warn: Callable[[str], None]) -> None:
    """Refuse workers with other code, and those that do not see the workspace."""
    awaited_workers(client, warn)
    refuse_unlike_code(client, warn)
    if workspace is not None:
        _refuse_unseen_workspace(client, workspace.path)


@contextlib.contextmanager
def _kept_in(workspace: Workspace | None) -> Iterator[Workspace]:
    """The workspace, or a temporary one."""
    if workspace is not None:
        yield workspace
        return
    with temporary_directory() as folder:
        yield Workspace.at(folder)


def _saved(features: FeatureSet, target: str, warn: Callable[[str], None]) -> FeatureSet:
    """Save a set to a place that is named after its content; the store of another run is used again."""
    # The lock of the place itself is that of its writer.
    with stage_lock(f"{target}-turn", warn):
        with contextlib.suppress(StoreError):
            stored = StoreReader.open(target)
            if stored.manifest.source.get("content_digest") == features.content_digest:
                return FeatureSet.open(target)
        return features.save(target, overwrite=True)


def _must_move(features: FeatureSet, workspace: Workspace | None) -> bool:
    """Whether a set is in a temporary store outside the workspace, which workers may be unable to read."""
    return workspace is not None and any(
        each.origin and not each.uri.startswith(workspace.path) for each in stores_of(features)
    )


def _refuse_unseen_stores(client: Client, *stored: FeatureSet) -> None:
    """Have every worker open the stores: the error of a task would not name its worker."""
    found = _run_on_all(
        client, _first_problem, [(each.uri, each.content_digest) for of in stored for each in stores_of(of)]
    )
    for worker, problem in found.items():
        if problem is not None:
            raise StoreNotFoundError(
                f"worker {worker} cannot read the stores of this process: {problem}; put the stores where all workers "
                "have them under the same path, or on S3"
            )


def _first_problem(stores: list[tuple[str, str]]) -> str | None:
    """Run on a worker: why it cannot read one of the stores, given by URI and content digest."""
    for uri, content_digest in stores:
        try:
            found = FeatureSet.open(uri)
        except ReidDistError as error:
            return str(error)
        if found.content_digest != content_digest:
            return f"{uri} holds something else there"
    return None


def _refuse_unseen_workspace(client: Client, path: str) -> None:
    """Have every worker look for a file that is there for a moment."""
    if "://" in path:
        return
    folder = Path(path)
    made = not folder.exists()
    probe = draft_of(folder / "seen")
    try:
        _make_probe(probe)
        unseen = [worker for worker, seen in _run_on_all(client, os.path.exists, str(probe)).items() if not seen]
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
            if made:
                folder.rmdir()
    if unseen:
        raise StoreError(
            f"worker {unseen[0]} cannot read the workspace {path} of this process; choose a --workspace that all "
            "workers have under the same path, or one on S3"
        )


def _make_probe(probe: Path) -> None:
    for is_last in (False, False, True):
        try:
            probe.parent.mkdir(parents=True, exist_ok=True)
            probe.touch()
        except OSError as error:
            # Another run may have made the folder for its own probe, and removed it in between.
            if is_last or not isinstance(error, FileNotFoundError):
                raise StoreError(
                    f"cannot write to the workspace {probe.parent}: {error.strerror}; make room or choose another "
                    "--workspace"
                ) from None
        else:
            return


def _run_on_all(client: Client, function: Any, argument: Any) -> dict[str, Any]:
    """Results of a function by address of the worker; a worker that leaves meanwhile has none."""
    found = run_on_workers(client, function, argument)
    return {worker: result for worker, result in found.items() if not isinstance(result, BaseException)}
