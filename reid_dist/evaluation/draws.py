"""Which rows of query and gallery a split keeps: listed ones, or draws, a function of seed, split and row.

Row ``r`` gets output ``r`` of a SplitMix64 stream whose start is output ``s`` (the split) of the stream that starts at
the seed, and of every identity the rows with the smallest numbers are kept.  The finaliser of SplitMix64 is a bijection
of 64-bit words, so two rows never get the same number.  Draws do not depend on chunking, read order or NumPy version.

Benchmarks whose authors publish their draws (SYSU-MM01 does) have other draws of the same kind: their mean estimates
the same expectation, but split s here is not their split s.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted
from reid_dist.core.segments import entry_numbers, run_offsets
from reid_dist.errors import InputError
from reid_dist.kernels.splitmix import stream_outputs
from reid_dist.relevance.protocols import JUNK_PID, Protocol
from reid_dist.stores import FeatureSet
from reid_dist.stores.importers.row_lists import SplitRows

Int64 = NDArray[np.int64]

_GENERATOR: Final = "SplitMix64 by seed, split and gallery row; the smallest numbers of a group are kept"


@dataclass(frozen=True, kw_only=True)
class Draw:
    """How galleries are drawn: `per_identity` rows of every identity, or of every identity under every camera.

    Where there are fewer rows, all are drawn.  With `rest_as_queries`, the rows that are not drawn are the queries;
    with `of_queries`, the queries are drawn, and the gallery is whole.
    """

    repeats: int = 10
    per_identity: int = 1
    per_camera: bool = False
    seed: int = 0
    rest_as_queries: bool = False
    of_queries: bool = False

    def __post_init__(self) -> None:
        if self.rest_as_queries and self.of_queries:
            raise InputError("of_queries draws the queries, and rest_as_queries the gallery; leave one of them out")


def row_numbers(rows: Int64, seed: int, split: int) -> NDArray[np.uint64]:
    """Number by which every row is drawn in a split: uint64, of the shape of `rows`, different for different rows."""
    start = int(stream_outputs(seed, np.array([split], np.int64))[0])
    return stream_outputs(start, rows)


def draw_rows(labels: Sequence[Int64], draw: Draw, split: int, known: Int64) -> Int64:
    """Rows of the gallery of a split, ascending, int64.

    `known` are the rows to draw from, (n,), ascending, and `labels` what makes their groups, (n,) each.
    """
    keys = [row_numbers(known, draw.seed, split), *labels]
    order = np.lexsort(keys)
    place = entry_numbers(run_offsets(*(key[order] for key in keys[1:])))
    return np.sort(known[order[place < draw.per_identity]])


@dataclass(frozen=True, kw_only=True)
class Trials:
    """Rows of all splits, and what reports say of them.

    `rows` gives those of a split, and `spec` is all that they depend on.  `whole_queries` is whether every split has
    all queries, and `keeps_apart` whether no gallery row of a split is a query of it, where both sides are one set.
    `counts` hold ``n_identity`` at least.
    """

    n_splits: int
    rows: Callable[[int], SplitRows]
    spec: Any
    whole_queries: bool
    keeps_apart: bool
    description: dict[str, Any]
    counts: dict[str, int]
    notes: Sequence[Finding] = ()


def listed_splits(gallery: FeatureSet, splits: Sequence[SplitRows], source: object) -> Trials:
    """Listed rows; `source` is what they were read from, of which reports show the name of a file."""
    digest = fingerprint([[None if rows is None else rows.tolist() for rows in each] for each in splits])
    listed = np.unique(np.concatenate([each.gallery for each in splits]))
    named = os.fspath(source) if isinstance(source, str | os.PathLike) else "given in Python"
    return Trials(
        n_splits=len(splits),
        rows=splits.__getitem__,
        spec=digest,
        whole_queries=all(each.query is None for each in splits),
        keeps_apart=all(each.query is not None and not np.isin(each.query, each.gallery).any() for each in splits),
        description={"repeats": len(splits), "rows": named, "digest": digest},
        counts={"n_identity": len(np.setdiff1d(gallery.pids[listed], [JUNK_PID]))},
    )


def drawn_splits(query: FeatureSet, gallery: FeatureSet, draw: Draw, rules: Protocol) -> Trials:
    """Random galleries, or queries, of the rows that count, in groups: identities, or pairs of identity and camera."""
    if draw.rest_as_queries and query.content_digest != gallery.content_digest:
        raise InputError(
            "with rest_as_queries (--rest-as-queries) one set is query and gallery, and two different ones were "
            "given; give the same one twice"
        )
    side, features = ("query", query) if draw.of_queries else ("gallery", gallery)
    pids, camids = features.pids, features.camids
    cameras_that_count = rules.query_cameras if draw.of_queries else rules.gallery_cameras
    is_junk = pids == JUNK_PID
    counts = ~is_junk
    if cameras_that_count is not None and camids is not None:
        counts &= np.isin(camids, cameras_that_count)
    known = np.flatnonzero(counts)
    if not known.size:
        cameras = "" if is_junk.all() else " or a camera that the protocol does not count"
        raise InputError(
            f"all {features.n_rows} {side} rows have pid {JUNK_PID}{cameras}, so there is nothing to draw from"
        )
    labels = [pids[known]]
    if draw.per_camera:
        if camids is None:
            raise InputError(
                f"per_camera (--per-camera) needs camids, and the {side} has none; give them, or draw only by identity"
            )
        labels.append(camids[known])
    _, sizes = np.unique(np.stack(labels), axis=1, return_counts=True)
    groups = (
        f"{counted(len(sizes), 'pair')} of identity and camera" if draw.per_camera else counted(len(sizes), "identity")
    )
    n_short, n_whole = int((sizes < draw.per_identity).sum()), int((sizes <= draw.per_identity).sum())
    if draw.rest_as_queries and n_whole == len(sizes):
        raise InputError(
            f"no row is left to be a query: the fullest of {groups} has {sizes.max()} rows, and {draw.per_identity} of "
            "each are drawn"
        )
    n_junk_rows = int(is_junk.sum())

    def rows(split: int) -> SplitRows:
        drawn = draw_rows(labels, draw, split, known)
        if draw.of_queries:
            return SplitRows(np.arange(gallery.n_rows), drawn)
        return SplitRows(drawn, np.setdiff1d(known, drawn, assume_unique=True) if draw.rest_as_queries else None)

    def notes() -> Iterator[Finding]:
        of_groups = {"n_groups": len(sizes), "of": "identity-camera pair" if draw.per_camera else "identity"}
        if n_short:
            yield info("groups_with_few_rows", n=n_short, **of_groups, n_rows=draw.per_identity, side=side)
        if draw.rest_as_queries and n_whole:
            yield info("groups_without_query", n=n_whole, **of_groups)
        if n_other := features.n_rows - len(known) - n_junk_rows:
            yield info("cameras_not_drawn", n=n_other, side=side)
        if n_junk_rows:
            where = ["gallery", "queries"] if draw.rest_as_queries else [side]
            yield info("junk_not_drawn", n=n_junk_rows, pid=JUNK_PID, side=side, where=where)

    return Trials(
        n_splits=draw.repeats,
        rows=rows,
        # The seed is an option of its own, which an evaluation may draw by as well.
        spec={name: value for name, value in asdict(draw).items() if name != "seed"},
        whole_queries=not (draw.rest_as_queries or draw.of_queries),
        keeps_apart=draw.rest_as_queries,
        description={**asdict(draw), "generator": _GENERATOR},
        counts={
            "n_identity": len(np.unique(labels[0])),
            "n_groups": len(sizes),
            "n_short": n_short,
            "n_junk_rows": n_junk_rows,
        },
        notes=tuple(notes()),
    )
