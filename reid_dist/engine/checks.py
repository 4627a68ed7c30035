"""Validation before any computation: feature sets, labels required by a protocol, ground truth and options."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted, have
from reid_dist.core.numeric import is_whole
from reid_dist.core.registry import unknown_name
from reid_dist.engine.distances import Distance
from reid_dist.errors import InputError
from reid_dist.metrics.metric import LARGEST_RANK, METRICS, NEAREST, PAIRS, PROBES, RANKS, SINGLE_SHOT, Metric
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import OWN_ROW, Protocol
from reid_dist.stores import FeatureSet, LabelledSet
from reid_dist.stores.labels import COLUMN_PREFIX, ambiguous_numbers, join_item_ids, numbers_among
from reid_dist.stores.repeated_items import named_by_paths, shared_items


def check_count(name: str, value: object) -> None:
    """Raise `InputError` unless `value` is a whole number from 1 to 2**31 - 1."""
    if not is_whole(value) or value < 1:
        raise InputError(f"{name} must be at least 1 and a whole number, found {value!r}")
    if value > LARGEST_RANK:
        raise InputError(f"{name} must be at most 2**31 - 1, found {value!r}")


def check_client(client: object) -> None:
    """Raise `InputError` unless `client` is None or has the interface of a `distributed.Client`."""
    # Checked by attribute: importing the class takes longer than a small evaluation.
    if client is not None and not hasattr(client, "scheduler_info"):
        raise InputError(
            f"client must be a distributed.Client, or None for threads of this process, found {type(client).__name__}"
        )


def check_sets(query: FeatureSet, gallery: FeatureSet, distance: Distance) -> None:
    """Raise `InputError` for other types, zero rows without direction under the distance, or unequal dimensions."""
    for side, features in (("query", query), ("gallery", gallery)):
        if not isinstance(features, FeatureSet):
            raise InputError(
                f"{side} must be a FeatureSet, found {type(features).__name__}; use FeatureSet.open or .from_arrays"
            )
        if distance.needs_length and features.n_zero_rows and not features.allow_zero:
            rows = ", ".join(map(str, features.first_zero_rows))
            more = ", …" if features.n_zero_rows > len(features.first_zero_rows) else ""
            n_zero = features.n_zero_rows
            raise InputError(
                f"{n_zero:,} of {counted(features.n_rows, f'{side} row')} {'is' if n_zero == 1 else 'are'} all zeros, "
                f"for which {distance.name} distance is undefined; drop or allow them",
                details=(
                    f"rows: {rows}{more}",
                    "allow them with ingest --allow-zero (allow_zero=True): their distance to every row is then 1",
                ),
            )
    if query.dim != gallery.dim:
        raise InputError(
            f"query features have {query.dim} dimensions, gallery features {gallery.dim}; both must come from one model"
        )


def check_excluded(label: str, query: LabelledSet, gallery: LabelledSet) -> None:
    """Raise `InputError` for a label that one of two sets lacks, or whose values cannot be equal in both."""
    sides = (("query", query), ("gallery", gallery))
    known = {"pid", "camid", *query.columns, *gallery.columns}
    if label not in known:
        raise unknown_name("label", label, sorted(known))
    kind = f"{label}s" if label in ("pid", "camid") else f"{COLUMN_PREFIX}{label}"
    if missing := [side for side, each in sides if kind not in each.labels]:
        raise InputError(
            f"items of the same {label} are left out, and {' and '.join(missing)} {have(missing)} no {label}s; ingest "
            "both sets with them"
        )
    if label in ("pid", "camid"):
        _check_joinable(kind, query, gallery)


def check_labels(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> bool:
    """Raise `InputError` for labels that the protocol cannot use; return whether row numbers serve as item ids."""
    sides = (("query", query), ("gallery", gallery))
    if protocol.needs_camids:
        missing = [side for side, each in sides if each.camids is None]
        if missing:
            advice, *reasons = _without_camids(query, gallery)
            raise InputError(
                f"protocol {protocol.name!r} needs camids, and {' and '.join(missing)} {have(missing)} none; give "
                f"them, or {advice}",
                details=reasons,
            )
    if protocol.counts_cameras and query.camid_names != gallery.camid_names:
        raise InputError(
            f"protocol {protocol.name!r} counts cameras by number, and the two sets number the texts of their camids "
            "differently; give camids as whole numbers"
        )
    for name in protocol.label_columns:
        missing = [side for side, each in sides if name not in each.columns]
        if missing:
            known = sorted({column for _, each in sides for column in each.columns})
            raise InputError(
                f"protocol {protocol.name!r} reads the label column {name!r}, and {' and '.join(missing)} "
                f"{have(missing)} none; ingest it with them",
                details=(f"columns there: {', '.join(known) or 'none'}",),
            )
    if not protocol.needs_item_ids:
        return False
    if query.item_ids is None and gallery.item_ids is None and query.content_digest == gallery.content_digest:
        return True
    by_paths = named_by_paths(query, gallery)
    names = [each.image_paths if by_paths else each.item_ids for _, each in sides]
    if names[0] is None or names[1] is None:
        lacking = [side for (side, _), each in zip(sides, names, strict=True) if each is None]
        raise InputError(
            f"protocol {protocol.name!r} needs item_ids or image_paths, and {' and '.join(lacking)} {have(lacking)} "
            "no item ids; give them to both sets, or the same set twice",
            details=(
                "reid-dist ingest: --item-ids NAME, or --names FILE",
                "it leaves out each query's own row, which it knows by its item id or image path",
            ),
        )
    kinds = "image path" if by_paths else "item id"
    if protocol.junk == (OWN_ROW,) and not np.isin(*join_item_ids(names[0], names[1])).any():
        raise InputError(
            f"protocol {protocol.name!r} leaves out each query's own row by its {kinds}, and none of the "
            f"{query.n_rows} {kinds}s of the query set is in the gallery",
            details=(
                f"give each image the same {kinds} on both sides, or use the protocol 'no_cameras' if no query is a "
                "gallery row",
                f"query: {_first(names[0])}",
                f"gallery: {_first(names[1])}",
            ),
        )
    return False


def _first(item_ids: NDArray[np.generic]) -> str:
    """Format the first three item ids for a message."""
    return ", ".join(repr(item) for item in item_ids[:3].tolist()) + (", …" if len(item_ids) > 3 else "")


def _without_camids(query: LabelledSet, gallery: LabelledSet) -> tuple[str, ...]:
    """Return the recommended protocol for sets without camids, under which no query finds its own row, and why."""
    shared = shared_items(query, gallery)
    if shared is None:
        return ("use the protocol 'no_cameras'",)
    rows = f"{counted(shared.n_query, 'row')} of the query set {'is' if shared.n_query == 1 else 'are'} in the gallery"
    found = {
        "content": "query and gallery are the same set",
        "item_ids": f"{rows} as well, by item id",
        "image_paths": f"{rows} as well, by image path",
    }[shared.by]
    if query.content_digest == gallery.content_digest == query.labels_digest:
        found = "query and gallery have the same labels in every row"
    # Where both sides have item ids, the protocol goes by these.
    by_ids = shared.by == "image_paths" and not named_by_paths(query, gallery)
    first = "give the paths as item_ids to both sides and " if by_ids else ""
    return (
        f"{first}use the protocol 'same_set'",
        f"{found}, and under 'no_cameras' each of these queries would find itself",
    )


def joined_labels(query: LabelledSet, gallery: LabelledSet, protocol: Protocol, *, camids: bool) -> tuple[str, ...]:
    """Return the kinds of labels whose encodings differ between the two sets and must be joined.

    `camids` is whether camids of both sides are compared outside the protocol.  Raises `InputError` if no label of one
    set can equal a label of the other, or a number has several spellings.
    """
    kinds = {} if protocol.is_listed else {"pids": (query.pid_names, gallery.pid_names)}
    if protocol.needs_camids or camids:
        kinds["camids"] = (query.camid_names, gallery.camid_names)
    for kind in kinds:
        _check_joinable(kind, query, gallery)
    joined = [kind for kind, (near, far) in kinds.items() if near != far]
    if protocol.needs_item_ids and query.item_ids is not None and gallery.item_ids is not None:
        joined += ["item_ids"] if _join_ids(query.item_ids, gallery.item_ids) else []
    elif protocol.needs_item_ids and named_by_paths(query, gallery):
        joined += ["image_paths"]
    return tuple(joined)


def _check_joinable(kind: str, query: LabelledSet, gallery: LabelledSet) -> None:
    """Raise `InputError` if one set has texts and the other whole numbers, unless these are among the texts.

    A number must have one spelling among them.
    """
    name = f"{kind.removesuffix('s')}_names"
    texts = [(side, getattr(each, name)) for side, each in (("query", query), ("gallery", gallery))]
    if (texts[0][1] is None) == (texts[1][1] is None):
        return
    (text_side, names), (number_side, _) = texts if texts[1][1] is None else texts[::-1]
    if not numbers_among(names):
        raise InputError(
            f"{kind} of the {text_side} set are texts and of the {number_side} set whole numbers, so none can be "
            "equal; give both sets the same kind of labels"
        )
    values = getattr(query if number_side == "query" else gallery, kind)
    unclear = np.intersect1d(np.fromiter(ambiguous_numbers(names), dtype=np.int64), values)
    if unclear.size:
        spellings = [name for name in names if numbers_among([name]) == {int(unclear[0])}]
        raise InputError(
            f"{kind} of the {number_side} set hold {unclear[0]}, which the {text_side} set writes as "
            f"{' and '.join(map(repr, spellings))}; give the {kind} of both sets in one spelling"
        )


def _join_ids(query: NDArray[Any], gallery: NDArray[Any]) -> bool:
    """Whether joining the item ids of two sets changes those of either set."""
    near, far = join_item_ids(query, gallery)
    return not (np.array_equal(near, query) and np.array_equal(far, gallery))


def check_ground_truth(protocol: Protocol, truth: GroundTruth | None) -> None:
    """Raise `InputError` if a listed protocol lacks lists or has lists of another kind, or another one has lists."""
    if protocol.is_listed and truth is None:
        raise InputError(
            f"protocol {protocol.name!r} needs a ground truth: lists of {', '.join(protocol.relevant_lists)} and "
            f"{', '.join(protocol.junk_lists)} gallery rows for every query (ground_truth=, --ground-truth FILE)"
        )
    if truth is None:
        return
    if not protocol.is_listed:
        raise InputError(
            f"protocol {protocol.name!r} goes by labels and takes no ground truth; protocols by lists are oxford, "
            "revisitop_easy, revisitop_medium and revisitop_hard"
        )
    missing = [name for name in (*protocol.relevant_lists, *protocol.junk_lists) if name not in truth.lists]
    if missing:
        raise InputError(
            f"protocol {protocol.name!r} needs the lists {', '.join(missing)}, and the ground truth has "
            f"{', '.join(truth.lists)}; use {'oxford' if 'ok' in truth.lists else 'a protocol revisitop_*'}"
        )


def check_metrics(metrics: list[Metric], protocol: Protocol) -> None:
    """Raise `InputError` for metrics that are undefined under the protocol."""
    if not metrics:
        raise InputError("metrics is an empty list; name at least one, or leave it out for the usual ones")
    for metric in metrics:
        if metric.family.needs in (SINGLE_SHOT, PROBES, NEAREST) and protocol.is_listed:
            raise InputError(
                f"metric {metric.name!r} needs identities, and protocol {protocol.name!r} goes by lists; use a "
                "protocol by labels, such as no_cameras, or a rank metric"
            )


def check_collapse(
    collapse: Collapse | None, metrics: list[Metric], protocol: Protocol, gallery: LabelledSet, others: Sequence[str]
) -> None:
    """Raise `InputError` for a ranking by group that cannot be computed.

    `others` are the requested outputs that may not fit: breakdowns, and ``roc``.
    """
    if collapse is None:
        return
    known = ["pid", *(["camid"] if gallery.camids is not None else []), *sorted(gallery.columns)]
    if collapse.label not in known:
        raise unknown_name("label of the gallery to collapse", collapse.label, known)
    stems = list(dict.fromkeys(family.stem for family in METRICS if family.needs == RANKS))
    for family in collapse.families:
        if family not in stems:
            raise unknown_name("metric of ranks to collapse", family, stems)
    single = [metric.name for metric in metrics if metric.family.needs == SINGLE_SHOT]
    if single or protocol.cmc_family == "CMC_single_shot":
        raise InputError(
            f"{', '.join(single) or protocol.name} draws single gallery items of each identity, and collapse ranks "
            "groups of items; leave collapse out, or use a protocol with cmc_family CMC, such as market1501"
        )
    cut = [name for name in others if name in ("camera_pair", "gallery_size")]
    if cut:
        raise InputError(
            f"the breakdown {cut[0]!r} ranks parts of the gallery, which cut the groups of collapse "
            f"{collapse.label!r}; request it in a run without collapse"
        )
    pairs = [metric.name for metric in metrics if metric.family.needs in (PAIRS, PROBES, NEAREST)]
    pairs += [name for name in others if name == "roc"]
    if pairs and not collapse.families:
        raise InputError(
            f"{', '.join(pairs)} compare single items, and with collapse {collapse.label!r} groups are ranked; leave "
            f"them out, or let only the CMC rank groups (collapse CMC:{collapse.label})"
        )


def refuse_thresholds(metrics: list[Metric], roc: bool, per_query_scale: str | None) -> None:
    """Raise `InputError` for metrics that compare distances of different queries under a re-ranking.

    `per_query_scale` is why its distances of different queries are not comparable to one threshold; None if they are.
    """
    if per_query_scale is None:
        return
    compared = [metric for metric in metrics if metric.family.needs in (PAIRS, PROBES, NEAREST)]
    unfit = [metric.name for metric in compared if not metric.family.of_one_query] + (["roc"] if roc else [])
    if unfit:
        raise InputError(
            f"{', '.join(unfit)} would compare re-ranked distances of different queries with one threshold, and "
            f"{per_query_scale}; leave them out, or evaluate without re-ranking"
        )
