"""Values of options: defaults, what a report records, and checks against the labels of both sides before any work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from reid_dist.core.formatting import have
from reid_dist.core.numeric import is_number, is_whole
from reid_dist.core.registry import did_you_mean
from reid_dist.engine.checks import (
    check_collapse,
    check_ground_truth,
    check_labels,
    check_metrics,
    joined_labels,
    refuse_thresholds,
)
from reid_dist.engine.outputs.partitions import Partitions
from reid_dist.errors import InputError
from reid_dist.evaluation.breakdowns import gallery_sizes, parse_breakdowns
from reid_dist.evaluation.options import (
    OPTIONS,
    RANKING_OPTIONS,
    SWEEP,
    EvaluationOptions,
    Form,
    Option,
    Source,
    requests,
)
from reid_dist.metrics.definitions import RANKS, Metric, default_metrics, parse_metrics
from reid_dist.relevance.ground_truth import GroundTruth, read_ground_truth
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import PROTOCOLS, Protocol
from reid_dist.stages.expansion import Step, parse_expand
from reid_dist.stages.reranking import Reranking, parse_rerank
from reid_dist.stores import LabelledSet


@dataclass(frozen=True)
class CheckedOptions:
    """Options that have been read and checked against the labels of both sides.

    Metrics are in the order of the report and under one spelling each; `truth` is None unless the protocol goes by
    lists, `partitions` unless a table needs them; `rows_are_items` and `joined` are as in `EvaluationJob`.
    """

    values: EvaluationOptions
    protocol: Protocol
    truth: GroundTruth | None
    metrics: list[Metric]
    breakdowns: tuple[str, ...]
    partitions: Partitions | None
    rows_are_items: bool
    joined: tuple[str, ...]
    rerank: Reranking | None = None
    expand: tuple[Step, ...] = ()
    collapse: Collapse | None = None

    @property
    def rank_metrics(self) -> list[Metric]:
        """Metrics that are functions of the ranks."""
        return [metric for metric in self.metrics if metric.family.needs == RANKS]

    @classmethod
    def of(cls, options: EvaluationOptions, query: LabelledSet, gallery: LabelledSet) -> CheckedOptions:
        """Read and check options; errors are those of `evaluate`."""
        given = options["protocol"]
        protocol = given if isinstance(given, Protocol) else PROTOCOLS.get(given)
        collapse = options["collapse"] if options["collapse"] is not None else protocol.collapse
        collapsed = None if collapse is None else Collapse.parse(collapse)
        protocol = replace(protocol, collapse=collapse)
        values = cast(
            "EvaluationOptions", {name: _checked(OPTIONS[name], value) for name, value in dict(options).items()}
        )
        usual = default_metrics(protocol.cmc_family, protocol.ap_family, protocol.reported)
        metrics = parse_metrics(usual if values["metrics"] is None else values["metrics"])
        check_metrics(metrics, protocol)
        truth = _truth(values["ground_truth"], query, gallery)
        check_ground_truth(protocol, truth)
        breakdowns = parse_breakdowns(values["breakdowns"], list(query.columns))
        partitions = _partitions(breakdowns, values, query, gallery)
        requested = [*breakdowns, *(["roc"] if values["roc"] else [])]
        check_collapse(collapsed, metrics, protocol, gallery, requested)
        rows_are_items = check_labels(query, gallery, protocol)
        by_camera = partitions is not None and partitions.cameras
        joined = joined_labels(query, gallery, protocol, camids=by_camera)
        rerank = None if values["rerank"] is None else parse_rerank(values["rerank"])
        expand = () if values["expand"] is None else parse_expand(values["expand"])
        if rerank is None and values["against_plain"]:
            raise InputError("against_plain compares a re-ranking with the ranking without it; give rerank")
        if rerank is not None:
            refuse_thresholds(metrics, values["roc"], rerank.per_query_scale)
        if values["metrics"] is not None:
            # Under one spelling each, so that runs that differ in spelling alone are one run.
            values["metrics"] = [metric.name for metric in metrics]
        return cls(
            values, protocol, truth, metrics, breakdowns, partitions, rows_are_items, joined, rerank, expand, collapsed
        )


# ---- values ----------------------------------------------------------------------------------------------------------


def complete(given: Mapping[str, Any]) -> EvaluationOptions:
    """Options with the defaults of all that are not given; an unknown one is refused."""
    for name in given:
        if name not in OPTIONS:
            raise InputError(did_you_mean("option", name, list(OPTIONS)))
    return cast("EvaluationOptions", {name: given.get(name, option.default) for name, option in OPTIONS.items()})


def headline_only(options: EvaluationOptions, **changed: Any) -> EvaluationOptions:
    """Options with all extras switched off: lists, tables, intervals, comparisons; `changed` are others by name."""
    extras = {name: option for name, option in OPTIONS.items() if SWEEP in option.refused_by}
    off = {name: None if option.optional else option.default for name, option in extras.items()}
    return cast("EvaluationOptions", {**options, **off, **changed})


def recorded(options: EvaluationOptions) -> dict[str, Any]:
    """Values that a report lists among its options: results depend on them, and they have no entry of their own."""
    values = {name: value for name, value in options.items() if OPTIONS[name].recorded}
    # None and an empty list mean the same, and a finished report serves for either.
    return {**values, "breakdowns": () if options["breakdowns"] is None else options["breakdowns"]}


def refuse_options_of_features(options: Mapping[str, Any], given: str) -> None:
    """Refuse options that are computed from features, where ``"distances"`` or ``"lists"`` take their place."""
    found = [name for name in OPTIONS if name not in RANKING_OPTIONS and requests(options.get(name))]
    if found:
        blocks = found == ["rerank"] and given == "distances"
        more = ", or a block that reid_dist.rerank_blocks has re-ranked" if blocks else ""
        raise InputError(f"{' and '.join(found)} is not available for {given}; evaluate the feature stores{more}")


def refuse_options(options: Mapping[str, Any], evaluation: str, reason: str) -> None:
    """Refuse options that an evaluation does not compute; the message is the name of the first and the reason."""
    for name, option in OPTIONS.items():
        value = options.get(name)
        # A choice always has a value; of other options, even the default is a request.
        if evaluation in option.refused_by and (option.is_set(value) if option.choices else requests(value)):
            raise InputError(f"{name} {reason}")


# ---- types and limits ------------------------------------------------------------------------------------------------


def _checked(option: Option, value: Any) -> Any:
    """Value of an option as a plain Python value, refused where its type or limits are wrong."""
    if (value is None and option.optional) or option.form not in _CHECKS:
        return value
    return _CHECKS[option.form](option, value)


def _checked_flag(option: Option, value: Any) -> bool:
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{option.name} must be True or False, found {value!r}")
    return bool(value)


def _checked_whole(option: Option, value: Any) -> int:
    if not is_whole(value) or (option.limits is not None and not option.limits[0] <= value <= option.limits[1]):
        raise InputError(f"{option.name} must be {_between(option)}a whole number{_or_none(option)}, found {value!r}")
    return int(value)


def _checked_number(option: Option, value: Any) -> float:
    if not is_number(value) or (option.limits is not None and not option.limits[0] < value < option.limits[1]):
        what = "be a number" if option.limits is None else f"lie between {option.limits[0]} and {option.limits[1]}"
        such = f", such as {option.default}" if option.default is not None else ""
        raise InputError(f"{option.name} must {what}{such}{_or_none(option)}, found {value!r}")
    return float(value)


def _checked_choice(option: Option, value: Any) -> str:
    if not isinstance(value, str) or value not in option.choices:
        raise InputError(f"{option.name} must be one of {', '.join(option.choices)}, found {value!r}")
    return value


_CHECKS: dict[Form, Callable[[Option, Any], Any]] = {
    "flag": _checked_flag,
    "whole": _checked_whole,
    "number": _checked_number,
    "choice": _checked_choice,
}


def _between(option: Option) -> str:
    """Limits of a whole number, as the beginning of a list of conditions."""
    if option.limits is None:
        return ""
    low, high = map(int, option.limits)
    # 2**31 - 1 is easier to read than 2147483647.
    largest = f"2**{high.bit_length()} - 1" if high > 2**16 and high & (high + 1) == 0 else str(high)
    return f"between {low} and {largest} and "


def _or_none(option: Option) -> str:
    return ", or be None" if option.optional else ""


# ---- options that depend on the sets ---------------------------------------------------------------------------------


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


def _partitions(
    names: tuple[str, ...], options: EvaluationOptions, query: LabelledSet, gallery: LabelledSet
) -> Partitions | None:
    """Partitions of the gallery that the tables need."""
    if options["gallery_sizes"] is not None and "gallery_size" not in names:
        raise InputError('gallery_sizes belong to the breakdown "gallery_size"; request it as well')
    for name in ("camera", "camera_pair"):
        sides = [("query", query)] + ([("gallery", gallery)] if name == "camera_pair" else [])
        missing = [side for side, each in sides if each.camids is None]
        if name in names and missing:
            raise InputError(f"the breakdown {name!r} needs camids, and {' and '.join(missing)} {have(missing)} none")
    if not {"camera_pair", "gallery_size"} & set(names):
        return None
    sizes = gallery_sizes(options["gallery_sizes"], gallery.n_rows) if "gallery_size" in names else ()
    return Partitions("camera_pair" in names, sizes, options["gallery_order"], options["seed"])
