"""Options checked against the labels of both sides before any work, and the spec of a result that follows from them.

A *spec* is all that a result depends on, as one mapping of plain values that is stored with the result.  It is made
once, before anything is computed.  A finished result is compared with a job by it, and what computes more of the same
ranking reads its options from it.  Values are exact: two parameters that differ in the last bit differ here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Final, cast

from reid_dist.core.formatting import have
from reid_dist.core.nested import differing_fields, leaves
from reid_dist.engine.checks import (
    check_collapse,
    check_ground_truth,
    check_labels,
    check_metrics,
    joined_labels,
    refuse_thresholds,
)
from reid_dist.errors import InputError
from reid_dist.evaluation.options import OPTIONS, EvaluationOptions, Source, recorded, requests
from reid_dist.metrics.metric import RANKS, Metric, default_metrics, parse_metrics
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import PROTOCOLS, Protocol, frozen
from reid_dist.reports.documents import plain
from reid_dist.stores import LabelledSet

if TYPE_CHECKING:
    from reid_dist.engine.outputs.partitions import Partitions
    from reid_dist.stages.expansion.expansion_steps import Step
    from reid_dist.stages.reranking.rerankers import Reranking


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

    @property
    def described_stages(self) -> dict[str, Any]:
        """Entries ``rerank`` and ``expand`` of a report."""
        expand = None
        if self.expand:
            from reid_dist.stages.expansion.expansion_steps import describe_expansion

            expand = describe_expansion(self.expand)
        return {"rerank": None if self.rerank is None else self.rerank.describe(), "expand": expand}

    @classmethod
    def of(cls, options: EvaluationOptions, query: LabelledSet, gallery: LabelledSet) -> CheckedOptions:
        """Read options that are complete; errors are those of `evaluate`."""
        given = options["protocol"]
        protocol = given if isinstance(given, Protocol) else PROTOCOLS.get(given)
        collapse = options["collapse"] if options["collapse"] is not None else protocol.collapse
        collapsed = None if collapse is None else Collapse.parse(collapse)
        protocol = replace(protocol, collapse=collapse)
        values = options.copy()
        usual = default_metrics(protocol.cmc_family, protocol.ap_family, protocol.reported)
        metrics = parse_metrics(usual if values["metrics"] is None else values["metrics"])
        check_metrics(metrics, protocol)
        truth = _truth(values["ground_truth"], query, gallery)
        check_ground_truth(protocol, truth)
        breakdowns = _breakdowns(values["breakdowns"], query)
        partitions = _partitions(breakdowns, values, query, gallery)
        requested = [*breakdowns, *(["roc"] if values["roc"] else [])]
        check_collapse(collapsed, metrics, protocol, gallery, requested)
        rows_are_items = check_labels(query, gallery, protocol)
        by_camera = partitions is not None and partitions.cameras
        joined = joined_labels(query, gallery, protocol, camids=by_camera)
        rerank, expand = _stages(values)
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


def _stages(values: EvaluationOptions) -> tuple[Reranking | None, tuple[Step, ...]]:
    """Re-ranking and expansion; their modules are imported where there is one."""
    rerank: Reranking | None = None
    expand: tuple[Step, ...] = ()
    if values["rerank"] is not None:
        from reid_dist.stages.reranking.rerankers import parse_rerank

        rerank = parse_rerank(values["rerank"])
    if values["expand"] is not None:
        from reid_dist.stages.expansion.expansion_steps import parse_expand

        expand = parse_expand(values["expand"])
    return rerank, expand


def _spelled(steps: tuple[Step, ...]) -> str | None:
    if not steps:
        return None
    from reid_dist.stages.expansion.expansion_steps import spelled

    return spelled(steps)


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
    from reid_dist.relevance.ground_truth import read_ground_truth

    return read_ground_truth(
        source,
        n_query=query.n_rows,
        n_gallery=gallery.n_rows,
        query_item_ids=query.item_ids,
        gallery_item_ids=gallery.item_ids,
    )


def _breakdowns(names: Sequence[str] | None, query: LabelledSet) -> tuple[str, ...]:
    if not names:
        return ()
    from reid_dist.evaluation.breakdowns import parse_breakdowns

    return parse_breakdowns(names, list(query.columns))


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
    from reid_dist.engine.outputs.partitions import Partitions
    from reid_dist.evaluation.breakdowns import gallery_sizes

    sizes = gallery_sizes(options["gallery_sizes"], gallery.n_rows) if "gallery_size" in names else ()
    return Partitions("camera_pair" in names, sizes, options["gallery_order"], options["seed"])


# ---- specs -----------------------------------------------------------------------------------------------------------

Spec = Mapping[str, Any]

# Ground truths are compared by their content, and distances and lists take the place of features.
_INPUTS: Final = ("query", "gallery", "ground_truth", "distances", "lists")


def ranking_spec(checked: CheckedOptions, query: LabelledSet, gallery: LabelledSet, **more: Any) -> dict[str, Any]:
    """Spec of an evaluation of two sides; `more` are further entries, or others in the place of its own.

    Where distances or lists take the place of features, `more` has the digest of their content, and ``distance=None``.
    """
    return plain_spec(
        {
            "query": query.content_digest,
            "gallery": gallery.content_digest,
            "protocol": asdict(checked.protocol),
            "ground_truth": None if checked.truth is None else checked.truth.content_digest,
            "distance": checked.values["distance"],
            "expand": _spelled(checked.expand),
            "rerank": None if checked.rerank is None else str(checked.rerank),
            **recorded(checked.values),
            **more,
        }
    )


def plain_spec(entries: Spec) -> dict[str, Any]:
    """Entries of a spec as plain values, as they are after they were stored."""
    spec: dict[str, Any] = plain(entries)
    return spec


def differing(wanted: Spec, found: Spec) -> dict[tuple[str, ...], tuple[Any, Any]]:
    """Both values of each field in which two specs differ; one that requests nothing is as one that is missing."""
    sides = [{name: value for name, value in spec.items() if requests(value)} for spec in (wanted, found)]
    near, far = (dict(leaves(side)) for side in sides)
    return {field.path: (near.get(field.path), far.get(field.path)) for field in differing_fields(sides, _exact)}


def entry_text(spec: Spec, name: str) -> str:
    """An entry as JSON, as `_exact` writes it; of a missing one, null."""
    value = spec.get(name)
    return _exact(value if requests(value) else None)


def _exact(value: Any) -> str:
    """A value as JSON, in which 1 and 1.0 differ, as they do as sizes of a gallery."""
    return json.dumps(plain(value), sort_keys=True)


def options_of(spec: Spec) -> EvaluationOptions:
    """Options of `evaluate` of a spec, except for its ground truth, of which it has the digest alone."""
    protocol = Protocol(**{name: frozen(value) for name, value in spec["protocol"].items()})
    values = {name: value for name, value in spec.items() if name in OPTIONS and name not in _INPUTS}
    return cast("EvaluationOptions", values | {"protocol": protocol, "collapse": protocol.collapse})
