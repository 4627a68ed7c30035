"""New features of a set: rows that a stage computes by blocks, and the store that is made of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange
from reid_dist.engine.checks import check_excluded
from reid_dist.errors import DamagedStoreError, InputError, StoreError, StoreExistsError
from reid_dist.stages.parts import Blocks, Parts, RowStage, completed, turn
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet, FeatureWriter
from reid_dist.stores.locations import remove
from reid_dist.stores.stored import StoreReader
from reid_dist.stores.workspace import FORMAT

UNKNOWN_APART: Final = "unknown cameras apart"
"""Rule of `NewSet` for sets with rows of unknown camera."""

GATHERED_BYTES = 128 << 20
"""Bytes of neighbour features that a task reads at once."""

_MOST_ROWS = 8192

Given = TypeVar("Given")


class Recipe(Protocol):
    """Name and parameters of a feature transform; parameters are fields and text."""

    @property
    def name(self) -> str:
        """Registered name."""


def check_cameras(query: FeatureSet, gallery: FeatureSet, step: Recipe, takes: str, instead: str) -> None:
    """Refuse sets without cameras, which a step `takes`; `instead` is how it does without them."""
    for features, side in ((query, "query"), (gallery, "gallery")):
        if features.camids is None:
            raise InputError(
                f"{step.name} {takes}, and the {side} set has no cameras; ingest it with camera labels, or use "
                f"{step.name}({instead}"
            )
    check_excluded("camid", query, gallery)


@dataclass(frozen=True)
class NewSet:
    """A set with new features under a step; `side` separates queries (0) from gallery (1) where both are expanded.

    `rules` are how the step takes labels of these sets, where that is not as of all others, and `notes` are lines that
    the store keeps on how its rows were made.
    """

    features: FeatureSet
    inputs: tuple[FeatureSet, ...]
    step: Recipe
    side: int = 0
    rules: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @classmethod
    def of_both(
        cls, sets: tuple[FeatureSet, FeatureSet], step: Recipe, rules: tuple[str, ...] = (), notes: tuple[str, ...] = ()
    ) -> list[NewSet]:
        """Both sides of a step that makes each from both."""
        return [cls(features, sets, step, side, rules, notes) for side, features in enumerate(sets)]

    @property
    def first(self) -> int:
        """Item of the inputs, one after the other, that row 0 is."""
        return self.inputs[0].n_rows if self.side else 0

    @property
    def identity(self) -> str:
        """Fingerprint of everything that the new features depend on, recorded in their store."""
        inputs = [each.content_digest for each in self.inputs]
        return fingerprint(
            FORMAT, self.features.content_digest, inputs, self.step.name, self.step, self.side, *self.rules
        )

    def target(self, where: Resources) -> str:
        """Location of the new store."""
        return where.workspace.place(f"expanded-{self.identity[:20]}.zarr")

    def ready(self, where: Resources) -> FeatureSet | None:
        """The new set if its store is complete and holds these features; a damaged or other store is removed."""
        target, warn = self.target(where), where.progress.warn
        try:
            stored = StoreReader.open(target)
        except DamagedStoreError as error:
            warn(f"{str(error).partition(';')[0]}: made again")
            remove(target)
            return None
        except StoreError:
            return None
        if stored.manifest.source.get("identity") != self.identity:
            warn(f"{target} holds other features than its name denotes: made again")
            remove(target)
            return None
        return FeatureSet.open(target)


def feature_blocks(n_rows: int, row_bytes: int, n_threads: int) -> Blocks:
    """Cut of new rows: bounded by the memory of what a row is made of, and few enough to occupy all threads."""
    return Blocks(n_rows, max(1, min(_MOST_ROWS, GATHERED_BYTES // row_bytes, -(-n_rows // n_threads))))


@dataclass(frozen=True)
class FeatureStage(RowStage):
    """Definition of the rows of a new set, which identifies them."""

    progress: ClassVar[str] = "expansion"

    made: NewSet

    @property
    def identity(self) -> str:
        """That of the new set."""
        return self.made.identity

    @property
    def dim(self) -> int:
        """Number of new features."""
        return self.made.features.dim

    @abstractmethod
    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Features of a range of rows, (n, dim), which are the items `listed`."""

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Features of a block of rows."""
        return {"features": self.new_rows(rows, RowRange(self.made.first + rows.start, self.made.first + rows.stop))}


def new_sets(
    wanted: Sequence[NewSet],
    prepare: Callable[[], Given],
    stage: Callable[[NewSet, Given], FeatureStage],
    where: Resources,
) -> list[FeatureSet]:
    """Return some new sets: finished stores are reused, and the others made.

    `prepare` is called once, if any has to be made, and `stage` with what it returns defines the rows of each.
    """
    ready = [each.ready(where) for each in wanted]
    if None not in ready:
        return [each for each in ready if each is not None]
    given = prepare()
    return [there or _made(stage(each, given), where) for each, there in zip(wanted, ready, strict=True)]


def _made(stage: FeatureStage, where: Resources) -> FeatureSet:
    """Make all rows of a set by blocks, and write the store; runs that share the workspace take turns."""
    with turn(stage, where):
        # Another run may have finished the same features meanwhile.
        if (ready := stage.made.ready(where)) is not None:
            return ready
        parts = completed(stage, where)
        _write(stage, parts, where)
        where.workspace.remove(parts.stage)
        return FeatureSet.open(stage.made.target(where))


def _write(stage: FeatureStage, parts: Parts, where: Resources) -> None:
    """Write the store from the blocks."""
    made, features = stage.made, stage.made.features
    source: dict[str, Any] = {
        "identity": made.identity,
        "recipe": str(made.step),
        "of": features.content_digest,
        "inputs": [each.content_digest for each in made.inputs],
    }
    try:
        with FeatureWriter(
            made.target(where),
            dim=stage.dim,
            n_rows=features.n_rows,
            dtype="float32",
            # Averages may cancel, and a row may be the mean of its camera; a row of zeros is then correct.
            allow_zero=True,
            overwrite=True,
            notes=[*features.notes, *made.notes],
            source=source,
        ) as writer:
            for block in range(len(parts.blocks)):
                writer.append(parts.block(block, "features")["features"])
            writer.set_labels(features.labels)
    except StoreExistsError:
        # On object storage, where runs do not take turns, another one may have written the same features.
        if made.ready(where) is None:
            raise
