"""Rows of query and gallery in every split: drawn at random, or listed."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, Final, Protocol

import numpy as np

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted, have
from reid_dist.errors import InputError
from reid_dist.evaluation.draws import Draw, draw_rows
from reid_dist.relevance.protocols import JUNK_PID
from reid_dist.relevance.protocols import Protocol as Rules
from reid_dist.stores import FeatureSet
from reid_dist.stores.importers.row_lists import SplitRows

_GENERATOR: Final = "SplitMix64 by seed, split and gallery row; the smallest numbers of a group are kept"


class Trials(Protocol):
    """Where the rows of splits come from.

    `spec` is all that the rows of a split depend on, and `whole_queries` whether every split has all queries.
    """

    n_splits: int
    whole_queries: bool
    spec: Any

    @property
    def keeps_apart(self) -> bool:
        """Whether no gallery row of a split is a query, where query and gallery are one set."""

    def rows(self, split: int) -> SplitRows:
        """Rows of a split."""

    def describe(self) -> dict[str, Any]:
        """Description for reports."""

    def counts(self) -> dict[str, int]:
        """Counts for reports; ``n_identity`` at least."""

    def notes(self) -> list[str]:
        """Remarks on the galleries."""


class DrawnSplits:
    """Random galleries, or queries, of the rows that count, in groups: identities, or pairs of identity and camera.

    `known` rows (ascending, int64) have an identity and a camera that the protocol counts.
    """

    def __init__(self, query: FeatureSet, gallery: FeatureSet, draw: Draw, rules: Rules) -> None:
        if draw.rest_as_queries and query.content_digest != gallery.content_digest:
            raise InputError(
                "with rest_as_queries (--rest-as-queries) one set is query and gallery, and two different ones were "
                "given; give the same one twice"
            )
        # The seed is an option of its own, which an evaluation may draw by as well.
        self.draw, self.spec = draw, {name: value for name, value in asdict(draw).items() if name != "seed"}
        self.n_splits, self.keeps_apart, self.whole_queries = (
            draw.repeats,
            draw.rest_as_queries,
            not (draw.rest_as_queries or draw.of_queries),
        )
        self._drawn_from = drawn_from = query if draw.of_queries else gallery
        self._n_gallery = gallery.n_rows
        self._side = side = "query" if draw.of_queries else "gallery"
        kept = drawn_from.pids != JUNK_PID
        cameras_that_count = rules.query_cameras if draw.of_queries else rules.gallery_cameras
        if cameras_that_count is not None and drawn_from.camids is not None:
            kept &= np.isin(drawn_from.camids, cameras_that_count)
        self.known = np.flatnonzero(kept)
        if not self.known.size:
            cameras = "" if (drawn_from.pids == JUNK_PID).all() else " or a camera that the protocol does not count"
            raise InputError(
                f"all {drawn_from.n_rows} {side} rows have pid {JUNK_PID}{cameras}, so there is nothing to draw from"
            )
        labels = [drawn_from.pids[self.known]]
        if draw.per_camera:
            if drawn_from.camids is None:
                raise InputError(
                    f"per_camera (--per-camera) needs camids, and the {side} has none; give them, or draw by identity "
                    "alone"
                )
            labels.append(drawn_from.camids[self.known])
        _, sizes = np.unique(np.stack(labels), axis=1, return_counts=True)
        self.n_identity = len(np.unique(labels[0]))
        self.n_groups = len(sizes)
        self.n_short = int((sizes < draw.per_identity).sum())
        self.n_whole = int((sizes <= draw.per_identity).sum())
        self.n_junk_rows = int((drawn_from.pids == JUNK_PID).sum())
        if draw.rest_as_queries and self.n_whole == self.n_groups:
            raise InputError(
                f"no row is left to be a query: the fullest of {self._groups_in_words()} has {sizes.max()} rows, and "
                f"{draw.per_identity} of each are drawn"
            )

    def rows(self, split: int) -> SplitRows:
        """Rows of a split."""
        drawn = draw_rows(self._drawn_from.pids, self._drawn_from.camids, self.draw, split, self.known)
        if self.draw.of_queries:
            return SplitRows(np.arange(self._n_gallery), drawn)
        rest = np.setdiff1d(self.known, drawn, assume_unique=True) if self.draw.rest_as_queries else None
        return SplitRows(drawn, rest)

    def describe(self) -> dict[str, Any]:
        """Description for reports."""
        return {**asdict(self.draw), "generator": _GENERATOR}

    def counts(self) -> dict[str, int]:
        """Counts for reports."""
        names = ("n_identity", "n_groups", "n_short", "n_junk_rows")
        return {name: getattr(self, name) for name in names}

    def notes(self) -> list[str]:
        """Remarks on the galleries."""
        draw, notes = self.draw, []
        if self.n_short:
            notes.append(
                f"{self.n_short:,} of {self._groups_in_words()} {have(self.n_short)} fewer than "
                f"{counted(draw.per_identity, f'{self._side} row')}: all of these are in every split"
            )
        if draw.rest_as_queries and self.n_whole:
            notes.append(
                f"{self.n_whole:,} of {self._groups_in_words()} {have(self.n_whole)} no more rows than are drawn: none "
                "of these is a query"
            )
        n_other = self._drawn_from.n_rows - len(self.known) - self.n_junk_rows
        if n_other:
            notes.append(
                f"{counted(n_other, f'{self._side} row')} of cameras that do not count {_are(n_other)} in no split"
            )
        if self.n_junk_rows:
            where = "in the gallery or the queries" if draw.rest_as_queries else f"in the {self._side}"
            notes.append(
                f"rows of pid {JUNK_PID} are not {where} of any split: {self.n_junk_rows:,} of the whole {self._side}"
            )
        return notes

    def _groups_in_words(self) -> str:
        """The number of groups that rows are drawn from, in words."""
        if self.draw.per_camera:
            return f"{counted(self.n_groups, 'pair')} of identity and camera"
        return counted(self.n_groups, "identity")


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


class ListedSplits:
    """Listed rows; `source` is what they were read from, of which reports show the name of a file."""

    def __init__(self, gallery: FeatureSet, splits: list[SplitRows], source: object) -> None:
        self.n_splits = len(splits)
        self.whole_queries = all(each.query is None for each in splits)
        self.spec = fingerprint([[None if rows is None else rows.tolist() for rows in each] for each in splits])
        self._gallery, self._splits = gallery, splits
        self._source = os.fspath(source) if isinstance(source, str | os.PathLike) else "given in Python"

    @property
    def keeps_apart(self) -> bool:
        """Whether no gallery row of a split is a query of it."""
        return all(each.query is not None and not np.isin(each.query, each.gallery).any() for each in self._splits)

    def rows(self, split: int) -> SplitRows:
        """Rows of a split."""
        return self._splits[split]

    def describe(self) -> dict[str, Any]:
        """Description for reports."""
        return {"repeats": self.n_splits, "rows": self._source, "digest": self.spec}

    def counts(self) -> dict[str, int]:
        """Counts for reports."""
        listed = np.unique(np.concatenate([each.gallery for each in self._splits]))
        return {"n_identity": len(np.setdiff1d(self._gallery.pids[listed], [JUNK_PID]))}

    def notes(self) -> list[str]:
        """Remarks on the galleries."""
        return []
