"""New features of one set: blocks of rows that tasks write to a stage, and the store that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import RowRange, cut_rows, nth_rows
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import DamagedStoreError, StoreError, StoreExistsError
from reid_dist.stages.neighbours import Resources
from reid_dist.stores import FeatureSet, FeatureWriter, Stage
from reid_dist.stores.locations import remove
from reid_dist.stores.locks import in_turn
from reid_dist.stores.stored import open_stored
from reid_dist.stores.workspace import FORMAT, stage_name

UNKNOWN_APART: Final = "unknown cameras apart"
"""Rule of `Output` for sets with rows of unknown camera."""


@dataclass(frozen=True)
class RowWork:
    """Work on the rows of one set, in blocks of `block_rows` whose results are parts of a stage."""

    stage: Stage
    n_rows: int
    block_rows: int

    @property
    def notes(self) -> list[str]:
        """Lines that the store keeps on how its rows were made."""
        return []

    def part(self, block: int) -> str:
        """Name of the part of a block."""
        return f"rows-{block:05d}"

    def rows(self, block: int) -> RowRange:
        """Rows of a block."""
        return nth_rows(block, self.n_rows, self.block_rows)


class Made(Protocol):
    """What makes new features: its name, and its parameters as fields and as text."""

    @property
    def name(self) -> str:
        """Registered name."""


@dataclass(frozen=True)
class Output:
    """New features of a set under a step; `side` separates queries (0) from gallery (1) where both are expanded.

    `rules` are how the step takes labels of these sets, where that is not as of all others.
    """

    features: FeatureSet
    inputs: tuple[FeatureSet, ...]
    step: Made
    where: Resources
    side: int = 0
    rules: tuple[str, ...] = ()

    @property
    def recipe(self) -> str:
        """Fingerprint of everything that the new features depend on, recorded in their store."""
        inputs = [each.content_digest for each in self.inputs]
        return fingerprint(
            FORMAT, self.features.content_digest, inputs, self.step.name, self.step, self.side, *self.rules
        )

    @property
    def target(self) -> str:
        """Location of the new store."""
        return self.where.workspace.place(f"expanded-{self.recipe[:20]}.zarr")

    def ready(self) -> FeatureSet | None:
        """The new features if their store is complete and holds this recipe; a damaged or other store is removed."""
        target, warn = self.target, self.where.progress.warn
        try:
            stored = open_stored(target)
        except DamagedStoreError as error:
            warn(f"{str(error).partition(';')[0]}: made again")
            remove(target)
            return None
        except StoreError:
            return None
        if stored.manifest.source.get("identity") != self.recipe:
            warn(f"{target} holds other features than its name denotes: made again")
            remove(target)
            return None
        return FeatureSet.open(target)

    def made(
        self,
        kind: str,
        work: type[RowWork],
        more: tuple[Any, ...],
        block_rows: int,
        task: Callable[..., None],
        values: NDArray[Any] | None = None,
        dim: int | None = None,
    ) -> FeatureSet:
        """Make all rows of the set by blocks, and write the store; runs that share the workspace take turns.

        `kind` is that of the stage with the blocks, and `more` are the fields of the work beside those of `RowWork`.
        `task` takes the work, the number of a block and the block's `values`, one for every row of the set.
        New rows have `dim` features, None for as many as before.
        """
        workspace, description = self.where.workspace, {"recipe": str(self.step), "block_rows": block_rows}
        place = workspace.place(stage_name(kind, self.target))
        with in_turn(place, self.where.progress.warn):
            # Another run may have finished the same features meanwhile.
            if (ready := self.ready()) is not None:
                return ready
            stage = workspace.stage(kind, self.target, description)
            blocks = work(stage, self.features.n_rows, stage.description["block_rows"], *more)
            self._compute(blocks, task, values)
            self._write(blocks, dim or self.features.dim)
            workspace.remove(stage)
            return FeatureSet.open(self.target)

    def _compute(self, blocks: RowWork, task: Callable[..., None], values: NDArray[Any] | None) -> None:
        """Compute the blocks that the stage lacks."""
        graph = TaskGraph()
        at = fingerprint(blocks.stage.path)[:12]
        for block, rows in enumerate(cut_rows(blocks.n_rows, blocks.block_rows)):
            if not blocks.stage.has(blocks.part(block)):
                own = None if values is None else values[rows.start : rows.stop]
                graph.finals.append(graph.add(f"expansion-{at}-{block}", task, blocks, block, own, stage="expansion"))
        self.where.run(graph)

    def _write(self, blocks: RowWork, dim: int) -> None:
        """Write the store from the blocks."""
        features = self.features
        source: dict[str, Any] = {
            "identity": self.recipe,
            "recipe": str(self.step),
            "of": features.content_digest,
            "inputs": [each.content_digest for each in self.inputs],
        }
        try:
            with FeatureWriter(
                self.target,
                dim=dim,
                n_rows=features.n_rows,
                # Averages may cancel, and a row may be the mean of its camera; a row of zeros is then correct.
                allow_zero=True,
                overwrite=True,
                notes=[*features.notes, *blocks.notes],
                source=source,
            ) as writer:
                for block in range(-(-blocks.n_rows // blocks.block_rows)):
                    writer.append(blocks.stage.read(blocks.part(block), "features")["features"])
                writer.set_labels(features.labels)
        except StoreExistsError:
            # On object storage, where runs do not take turns, another one may have written the same features.
            if self.ready() is None:
                raise
