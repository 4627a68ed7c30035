"""Evaluate every split, and summarise."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
from numpy.typing import NDArray

from reid_dist._version import __version__
from reid_dist.core.environment import describe_environment
from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.formatting import counted, have
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import complete, recorded, refuse_options
from reid_dist.evaluation.evaluate import evaluate
from reid_dist.evaluation.options import SPLITS, EvaluationOptions
from reid_dist.evaluation.progress_bars import Shown, shown_progress
from reid_dist.evaluation.runner import FinishedParts
from reid_dist.evaluation.signatures import lists_options
from reid_dist.evaluation.splits.draw import Draw, draw_rows
from reid_dist.evaluation.splits.report import SplitReport
from reid_dist.metrics.definitions import parse_metrics
from reid_dist.metrics.repeats import mean_and_spread
from reid_dist.relevance.protocols import JUNK_PID, PROTOCOLS, Protocol
from reid_dist.reports import Report
from reid_dist.reports.documents import plain
from reid_dist.reports.notes import notes_of_splits, side_notes
from reid_dist.stores import FeatureSet, FeatureSource, FeatureWriter, Workspace, as_feature_set
from reid_dist.stores.featureset import read_scattered
from reid_dist.stores.workspace import INNER, inner_folder

if TYPE_CHECKING:
    from distributed import Client

Int64 = NDArray[np.int64]

_STAGE = "splits"

# Drawn rows are held in memory up to so many bytes, and put into the workspace beyond.
_HELD_BYTES = 256 << 20


@dataclass(frozen=True)
class FinishedSplit:
    """What is kept of the evaluation of one split.

    `digests` are those of its sets and of its result; `conventions` are the same in every split: protocol, distance and
    definitions.
    """

    metrics: dict[str, float]
    counts: dict[str, int]
    digests: dict[str, str]
    conventions: dict[str, Any]
    notes: list[str]

    @classmethod
    def of(cls, report: Report, *, leave_out: Sequence[str] = ()) -> FinishedSplit:
        """Values of the report of a split, without some of its notes."""
        return cls(
            metrics=dict(report.metrics),
            counts={name: int(report.counts[name]) for name in ("n_query", "n_valid", "n_gallery")},
            digests={
                **{side: report.inputs[side]["content_digest"] for side in ("query", "gallery")},
                "result": report.result_digest,
            },
            conventions={name: plain(getattr(report, name)) for name in ("protocol", "distance", "definitions")},
            notes=[note for note in report.notes if note not in leave_out],
        )


@lists_options(evaluation=SPLITS)
def evaluate_splits(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    repeats: int = 10,
    per_identity: int = 1,
    per_camera: bool = False,
    rest_as_queries: bool = False,
    client: Client | None = None,
    workspace: str | os.PathLike[str] | None = None,
    progress: Shown = None,
    held_bytes: int = _HELD_BYTES,
    **options: Unpack[EvaluationOptions],
) -> SplitReport:
    """Evaluate on galleries that are drawn at random, exactly each time.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    repeats
        Number of splits.
    per_identity
        Rows of every gallery identity that a split keeps; all of them where there are fewer, with a note.
    per_camera
        Keep so many of every identity under every camera, as SYSU-MM01 does.
    seed
        Of the draw, 0 to 2**64 - 1; also handed to `evaluate`, for what it may draw itself.
    rest_as_queries
        Take the rows that a split does not keep as its queries, as VehicleID does; `query` is then the gallery, too.
    client
        Cluster to run on; None for threads of this process.  Results do not depend on it.
    workspace
        Directory that all workers share, for drawn rows; None for a temporary one.  What is put there is removed in the
        end; of a run that breaks, what is finished stays, and the same run goes on from there.
    progress
        As in `evaluate`, of finished splits: one stage, ``"splits"``.
    held_bytes
        Drawn features are held in memory up to so many bytes, and written to the workspace beyond.
    **options
        As in `evaluate`; options that request more than metrics, or name rows of one gallery, are refused.

    Returns
    -------
    The report; `SplitReport.save` writes it.

    Raises
    ------
    UnknownNameError
        For a protocol, distance or metric that does not exist.
    InputError
        For sets or options that cannot be evaluated so, or that do not exist; for a split in which no query is valid.
    PlanError, RunFailedError, ClusterError
        As `reid_dist.evaluate` does.
    """
    given = complete(options)
    draw = Draw(
        repeats=repeats,
        per_identity=per_identity,
        per_camera=per_camera,
        seed=given["seed"],
        rest_as_queries=rest_as_queries,
    )
    refuse_options(options, SPLITS, "is about one gallery, and every split has its own; evaluate without splits for it")
    rules = _check_names(given)
    # The spread over splits is the uncertainty of the report; intervals of each split would be thrown away.
    given["confidence"], given["seed"] = None, draw.seed
    query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    drawn = _Population(query, gallery, draw)
    _refuse_own_rows(query, gallery, draw, rules)
    started = time.perf_counter()
    finished: list[FinishedSplit] = []
    identity = _identity(query, gallery, draw, rules, given)
    with inner_folder(workspace, identity) as folder, shown_progress(progress) as shown:
        shown.start({_STAGE: draw.repeats})
        kept = FinishedParts(Workspace(str(folder)), _STAGE, identity, FinishedSplit, shown.warn)
        near = query
        for split in range(draw.repeats):
            part = f"split-{split:05d}"
            found = kept.find(part)
            if found is None:
                if client is not None and not (near.is_stored or draw.rest_as_queries):
                    # Once for all splits; `evaluate` would put it there again for each.
                    near = query.save(folder / "query.zarr", overwrite=True)
                # A private workspace, which is found again by its name.
                private = folder / f"{INNER}{split:05d}"
                private.mkdir(exist_ok=True)
                rows = draw_rows(gallery.pids, gallery.camids, draw, split)
                far = _subset(gallery, rows, private / "gallery.zarr", held_bytes)
                if draw.rest_as_queries:
                    rest = np.setdiff1d(drawn.known, rows, assume_unique=True)
                    near = _subset(gallery, rest, private / "query.zarr", held_bytes)
                try:
                    report = evaluate(near, far, client=client, workspace=private, **given)
                except InputError as error:
                    raise InputError(f"split {split} of {draw.repeats} (from 0): {error}") from error
                # Notes on the two sides are those of the whole sets: a drawn gallery is small by design.
                found = FinishedSplit.of(report, leave_out=side_notes(near, far, rules))
                kept.keep(part, found)
                shutil.rmtree(private, ignore_errors=True)
            finished.append(found)
            shown.advance(_STAGE)
    notes = [
        *([] if draw.rest_as_queries else side_notes(query, gallery, rules)),
        *notes_of_splits([split.notes for split in finished]),
        *_notes(query, gallery, draw, drawn),
    ]
    seconds = time.perf_counter() - started
    return _summarise(
        query, gallery, draw, drawn, finished, {"max_rank": int(given["max_rank"])}, list(dict.fromkeys(notes)), seconds
    )


def _check_names(options: EvaluationOptions) -> Protocol:
    """Refuse names that do not exist, and protocols by lists, before rows are read; return the protocol."""
    protocol = options["protocol"]
    rules = PROTOCOLS.get(protocol) if isinstance(protocol, str) else protocol
    if rules.is_listed:
        raise InputError(
            f"protocol {rules.name!r} goes by lists of gallery rows, and every split has other rows; use a protocol by "
            "labels, such as no_cameras"
        )
    DISTANCES.get(options["distance"])
    if options["metrics"] is not None:
        parse_metrics(options["metrics"])
    return rules


def _identity(query: FeatureSet, gallery: FeatureSet, draw: Draw, rules: Protocol, options: EvaluationOptions) -> str:
    """Fingerprint of everything that the values of all splits depend on."""
    metrics = None if options["metrics"] is None else [metric.name for metric in parse_metrics(options["metrics"])]
    values = {**recorded(options), "metrics": metrics}
    values |= {name: options[name] for name in ("distance", "expand", "rerank", "collapse")}
    return fingerprint(__version__, query.content_digest, gallery.content_digest, draw, rules, values)


def _refuse_own_rows(query: FeatureSet, gallery: FeatureSet, draw: Draw, protocol: Protocol) -> None:
    """Refuse one set as query and gallery where every drawn row would be a match of itself."""
    if draw.rest_as_queries or query.content_digest != gallery.content_digest:
        return
    # A row shares all labels with itself, so that any junk rule hides it, if the labels are there.
    if not protocol.junk or (protocol.needs_item_ids and query.item_ids is None):
        raise InputError(
            "query and gallery are the same set, so that every drawn row would be a query that finds itself under "
            f"protocol {protocol.name!r}{' without item ids' if protocol.junk else ''}; use --rest-as-queries "
            "(rest_as_queries=True) with 'no_cameras', which takes the rows that are not drawn as queries, or item ids "
            "and the protocol 'same_set'"
        )


class _Population:
    """What is drawn from: `known` rows of the gallery (those with an identity, ascending, int64) in groups.

    A group is an identity, or a pair of identity and camera.  `n_short` groups have fewer rows than are drawn,
    `n_whole` no more than are drawn.
    """

    def __init__(self, query: FeatureSet, gallery: FeatureSet, draw: Draw) -> None:
        if draw.rest_as_queries and query.content_digest != gallery.content_digest:
            raise InputError(
                "with rest_as_queries (--rest-as-queries) one set is query and gallery, and two different ones were "
                "given; give the same one twice"
            )
        self.known = np.flatnonzero(gallery.pids != JUNK_PID)
        if not self.known.size:
            raise InputError(f"all {gallery.n_rows} gallery rows have pid {JUNK_PID}, so there is nothing to draw from")
        labels = [gallery.pids[self.known]]
        if draw.per_camera:
            if gallery.camids is None:
                raise InputError(
                    "per_camera (--per-camera) needs camids, and the gallery has none; give them, or draw by identity "
                    "alone"
                )
            labels.append(gallery.camids[self.known])
        _, sizes = np.unique(np.stack(labels), axis=1, return_counts=True)
        self.n_identity = len(np.unique(labels[0]))
        self.n_groups = len(sizes)
        self.n_short = int((sizes < draw.per_identity).sum())
        self.n_whole = int((sizes <= draw.per_identity).sum())
        if draw.rest_as_queries and self.n_whole == self.n_groups:
            raise InputError(
                f"no row is left to be a query: the fullest of {self.words(draw)} has {sizes.max()} rows, and "
                f"{draw.per_identity} of each are drawn"
            )

    def words(self, draw: Draw) -> str:
        """The number of groups that rows are drawn from, in words."""
        if draw.per_camera:
            return f"{counted(self.n_groups, 'pair')} of identity and camera"
        return counted(self.n_groups, "identity")


def _subset(features: FeatureSet, rows: Int64, path: Path, held_bytes: int) -> FeatureSet:
    """Some rows of a set, in their order: in memory, or stored where they are too many."""
    labels = {name: values if name.endswith("_names") else values[rows] for name, values in features.labels.items()}
    if len(rows) * features.dim * features.dtype.itemsize > held_bytes:
        # A stopped run may have left an incomplete one.
        with FeatureWriter(
            path,
            dim=features.dim,
            n_rows=len(rows),
            dtype=features.dtype,
            allow_zero=features.allow_zero,
            overwrite=True,
        ) as writer:
            for block in read_scattered(features, rows):
                writer.append(block)
            writer.set_labels(labels)
        return FeatureSet.open(path)
    held = np.empty((len(rows), features.dim), features.dtype)
    filled = 0
    for block in read_scattered(features, rows):
        held[filled : filled + len(block)] = block
        filled += len(block)
    return FeatureSet.from_labels(held, labels, allow_zero=features.allow_zero)


def _summarise(
    query: FeatureSet,
    gallery: FeatureSet,
    draw: Draw,
    drawn: _Population,
    splits: list[FinishedSplit],
    options: dict[str, Any],
    notes: list[str],
    seconds: float,
) -> SplitReport:
    first = splits[0]
    per_split = {name: np.array([split.metrics[name] for split in splits]) for name in first.metrics}
    means, spreads = {}, {}
    for name, values in per_split.items():
        means[name], spreads[name] = mean_and_spread(values.tolist())
    return SplitReport(
        metrics=means,
        spread=spreads,
        per_split=per_split,
        counts={
            **{name: [split.counts[name] for split in splits] for name in first.counts},
            "n_identity": drawn.n_identity,
            "n_groups": drawn.n_groups,
            "n_short": drawn.n_short,
            "n_junk_rows": gallery.n_rows - len(drawn.known),
        },
        digests={name: [split.digests[name] for split in splits] for name in first.digests},
        draw={
            **asdict(draw),
            "generator": "SplitMix64 by seed, split and gallery row; the smallest numbers of a group are kept",
        },
        options=options,
        # The same in every split.
        **first.conventions,
        inputs={"query": query.describe(), "gallery": gallery.describe()},
        environment=describe_environment(),
        timing={"total": seconds},
        notes=notes,
    )


def _notes(query: FeatureSet, gallery: FeatureSet, draw: Draw, drawn: _Population) -> list[str]:
    notes = [*query.notes, *gallery.notes]
    if drawn.n_short:
        notes.append(
            f"{drawn.n_short:,} of {drawn.words(draw)} {have(drawn.n_short)} fewer than "
            f"{counted(draw.per_identity, 'gallery row')}: all of these are in every split"
        )
    if draw.rest_as_queries and drawn.n_whole:
        notes.append(
            f"{drawn.n_whole:,} of {drawn.words(draw)} {have(drawn.n_whole)} no more rows than are drawn: none of "
            "these is a query"
        )
    n_junk_rows = gallery.n_rows - len(drawn.known)
    if n_junk_rows:
        where = "in the gallery or the queries" if draw.rest_as_queries else "in the gallery"
        notes.append(f"rows of pid {JUNK_PID} are not {where} of any split: {n_junk_rows:,} of the whole gallery")
    if draw.repeats == 1:
        notes.append("one split has no spread")
    return notes
