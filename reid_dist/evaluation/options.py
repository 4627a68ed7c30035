"""What an evaluation is asked: options, read and checked against the labels of both sides before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from os import PathLike
from typing import Any

from reid_dist.core.formatting import have
from reid_dist.core.registry import did_you_mean
from reid_dist.engine.checks import (
    check_count,
    check_flag,
    check_ground_truth,
    check_labels,
    check_level,
    check_metrics,
    check_seed,
    joined_labels,
    refuse_thresholds,
)
from reid_dist.engine.partitions import ORDERS, Partitions, gallery_sizes, parse_breakdowns
from reid_dist.errors import InputError
from reid_dist.evaluation.breakdowns import Breakdowns
from reid_dist.evaluation.summary import RequestedOutputs
from reid_dist.metrics.definitions import default_metrics, parse_metrics
from reid_dist.relevance.ground_truth import GroundTruth, read_ground_truth
from reid_dist.relevance.protocols import PROTOCOLS, Protocol
from reid_dist.stages.expansion import Expansion, parse_expand
from reid_dist.stages.reranking import KReciprocal, parse_rerank
from reid_dist.stores import LabelledSet

__all__ = ["CheckedOptions", "Options", "Source"]

Source = Sequence[Mapping[str, Any]] | Mapping[Any, Mapping[str, Any]] | str | PathLike[str]
"""What a ground truth is read from; see `reid_dist.relevance.ground_truth.read_ground_truth`."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """What an evaluation of features, of distances or of lists can be asked; see `reid_dist.evaluate`."""

    protocol: str | Protocol = "market1501"
    metrics: str | Sequence[str] | None = None
    max_rank: int = 50
    ground_truth: Source | GroundTruth | None = None
    topk: int | None = None
    ties: bool = False
    breakdowns: Sequence[str] | None = ()
    gallery_sizes: Sequence[float] | None = None
    gallery_order: str = "stored"
    single_shot_draws: int | None = None
    roc: bool = False
    confidence: float | None = 0.95
    seed: int = 0
    chunk_rows: int | None = None
    rerank: str | KReciprocal | None = None
    expand: str | Sequence[Expansion] | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """Make options of keyword arguments.

        Raises
        ------
        InputError
            If there is no such option.
        """
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise InputError(did_you_mean("option", name, known))
        return cls(**given)

    def refuse_what_needs_features(self, given: str) -> None:
        """Refuse what is computed from features where something else takes their place.

        Parameters
        ----------
        given
            What takes their place: ``"distances"`` or ``"lists"``.

        Raises
        ------
        InputError
            If any of that is asked for; the message says what works.
        """
        asked = [name for name in ("expand", "rerank") if getattr(self, name) is not None]
        if asked:
            blocks = asked == ["rerank"] and given == "distances"
            more = ", or a block that reid_dist.rerank_blocks has re-ranked" if blocks else ""
            raise InputError(
                f"{' and '.join(asked)} cannot be had from {given}, which take the place of features; evaluate the "
                f"feature stores{more}"
            )

    def describe(self) -> dict[str, Any]:
        """Return what a report says of them: all that the answer depends on, protocol and ground truth aside."""
        told = ("protocol", "ground_truth", "chunk_rows", "rerank", "expand")
        described = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in told}
        # None and an empty list ask for the same, and a finished report is taken up for either.
        return {**described, "breakdowns": () if self.breakdowns is None else self.breakdowns}


@dataclass(frozen=True)
class CheckedOptions:
    """Options that have been read and checked against the labels of both sides.

    Attributes
    ----------
    protocol, truth
        The rules, and the lists that they may go by.
    asked
        What the report shall hold.
    parts
        How the gallery is parted; None for not at all.
    rows_are_items, joined
        As in `Job`.
    options
        The rest.
    rerank, expand
        The re-ranking and the steps of expansion, if any.
    """

    protocol: Protocol
    truth: GroundTruth | None
    asked: RequestedOutputs
    parts: Partitions | None
    rows_are_items: bool
    joined: tuple[str, ...]
    options: Options
    rerank: KReciprocal | None = None
    expand: tuple[Expansion, ...] = ()

    @classmethod
    def of(cls, options: Options, query: LabelledSet, gallery: LabelledSet) -> CheckedOptions:
        """Read and check options.

        Raises
        ------
        InputError, UnknownNameError
            As `evaluate`.
        """
        given = options.protocol
        protocol = given if isinstance(given, Protocol) else PROTOCOLS.get(given)
        check_count("max_rank", options.max_rank)
        for name in ("topk", "single_shot_draws"):
            if getattr(options, name) is not None:
                check_count(name, getattr(options, name))
        if options.chunk_rows is not None:
            check_count("chunk_rows", options.chunk_rows)
        for name in ("ties", "roc"):
            check_flag(name, getattr(options, name))
        check_level(options.confidence)
        check_seed(options.seed)
        usual = default_metrics(protocol.cmc_family, protocol.ap_family, protocol.reported)
        metrics = parse_metrics(usual if options.metrics is None else options.metrics)
        check_metrics(metrics, protocol)
        truth = _truth(options.ground_truth, query, gallery)
        check_ground_truth(protocol, truth)
        names = parse_breakdowns(options.breakdowns, list(query.columns))
        parts = _parts(names, options, query, gallery)
        asked = RequestedOutputs(
            metrics=metrics,
            max_rank=int(options.max_rank),
            ties=bool(options.ties),
            breakdowns=Breakdowns(names) if names else None,
            confidence=options.confidence,
            seed=int(options.seed),
        )
        rows_are_items = check_labels(query, gallery, protocol)
        by_camera = parts is not None and parts.cameras
        joined = joined_labels(query, gallery, protocol, camids=by_camera)
        rerank = None if options.rerank is None else parse_rerank(options.rerank)
        expand = () if options.expand is None else parse_expand(options.expand)
        if rerank is not None:
            refuse_thresholds(metrics, options.roc, rerank.variant, by_row_maximum=rerank.rules.by_row_maximum)
        if options.metrics is not None:
            # Under one spelling each, so that runs that differ in spelling alone are one run.
            options = replace(options, metrics=[metric.name for metric in metrics])
        return cls(protocol, truth, asked, parts, rows_are_items, joined, options, rerank, expand)


def _truth(source: Source | GroundTruth | None, query: LabelledSet, gallery: LabelledSet) -> GroundTruth | None:
    if source is None:
        return None
    if isinstance(source, GroundTruth):
        if (source.n_query, source.n_gallery) != (query.n_rows, gallery.n_rows):
            raise InputError(
                f"the ground truth is of {source.n_query} queries and {source.n_gallery} gallery rows, the sets have "
                f"{query.n_rows} and {gallery.n_rows}"
            )
        return source
    return read_ground_truth(
        source,
        n_query=query.n_rows,
        n_gallery=gallery.n_rows,
        query_item_ids=query.item_ids,
        gallery_item_ids=gallery.item_ids,
    )


def _parts(names: tuple[str, ...], options: Options, query: LabelledSet, gallery: LabelledSet) -> Partitions | None:
    """How the tables part the gallery."""
    if not isinstance(options.gallery_order, str) or options.gallery_order not in ORDERS:
        raise InputError(f"gallery_order must be one of {', '.join(ORDERS)}, found {options.gallery_order!r}")
    if options.gallery_sizes is not None and "gallery_size" not in names:
        raise InputError('gallery_sizes belong to the breakdown "gallery_size"; ask for it as well')
    for name in ("camera", "camera_pair"):
        sides = [("query", query)] + ([("gallery", gallery)] if name == "camera_pair" else [])
        missing = [side for side, each in sides if each.camids is None]
        if name in names and missing:
            raise InputError(f"the breakdown {name!r} needs camids, and {' and '.join(missing)} {have(missing)} none")
    if not {"camera_pair", "gallery_size"} & set(names):
        return None
    sizes = gallery_sizes(options.gallery_sizes, gallery.n_rows) if "gallery_size" in names else ()
    return Partitions("camera_pair" in names, sizes, options.gallery_order, int(options.seed))
