"""Notes on a run: findings on its inputs, its own rows and its thresholds, for `Report.notes`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from operator import attrgetter
from typing import Any, Final

import numpy as np

from reid_dist.core.findings import Finding, caution, info, warning
from reid_dist.core.model import UNKNOWN_CAMERA, Int64, RankedQueries
from reid_dist.core.segments import segment_offsets
from reid_dist.metrics.metric import PAIRS, PROBES, Metric
from reid_dist.relevance.protocols import NOT, OWN_ROW, Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import given_labels, joint_labels
from reid_dist.stores.repeated_items import named_by_paths, repeat_notes, shared_items

LEAST_FALSE_ACCEPTS: Final = 10
"""A rate of false accepts is supported by a sample in which it comes to this many."""

# Identical features are noted from this share of the valid queries on, and from two queries on.
_MANY: Final = Fraction(1, 100)


def side_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[Finding]:
    """Note signs that query and gallery are exchanged.

    The signs are queries of the pid that marks junk, and fewer gallery rows than queries.  Galleries with one row of
    each identity are small by design.
    """
    if query.content_digest == gallery.content_digest:
        return []
    n_junk = int(np.isin(query.pids, protocol.junk_pids).sum())
    few_rows = query.n_rows > gallery.n_rows and len(np.unique(gallery.pids)) < gallery.n_rows
    if not n_junk and not few_rows:
        return []
    sizes = {"n_query": query.n_rows, "n_gallery": gallery.n_rows, "few_rows": few_rows}
    # Sizes alone are a weak sign: some benchmarks have small galleries.
    say = warning if n_junk else caution
    return [say("sides_swapped", n_junk=n_junk, junk_pids=protocol.junk_pids, **sizes)]


def label_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[Finding]:
    """Note labels of whole sets: rows that repeat an item, unknown cameras, and cameras that no other side has."""
    return [*_repeated_row_notes(query, gallery), *_camera_notes(query, gallery, protocol)]


def _repeated_row_notes(query: LabelledSet, gallery: LabelledSet) -> list[Finding]:
    if query.content_digest == gallery.content_digest:
        return repeat_notes(query, "set")
    return [*repeat_notes(query, "query set"), *repeat_notes(gallery, "gallery")]


def _camera_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[Finding]:
    if not protocol.needs_camids or query.camids is None or gallery.camids is None:
        return []
    camids = joint_labels("camid", (query, gallery))
    notes = []
    n_query, n_gallery = (int((each == UNKNOWN_CAMERA).sum()) for each in camids)
    if n_query or n_gallery:
        of = {"of_query": query.n_rows, "of_gallery": gallery.n_rows, "camera": UNKNOWN_CAMERA}
        notes.append(caution("unknown_cameras", n_query=n_query, n_gallery=n_gallery, **of))
    near, far = (np.setdiff1d(each, UNKNOWN_CAMERA) for each in camids)
    # Cameras that a protocol tells apart by number may be apart by design.
    if not protocol.counts_cameras and len(near) and len(far):
        notes += _unlike_cameras(query, gallery, near, far)
    return notes


def _unlike_cameras(query: LabelledSet, gallery: LabelledSet, near: Int64, far: Int64) -> list[Finding]:
    """Note known cameras of both sides, (n,) each under one numbering, that are none of the other side's."""
    named = {
        side: [*map(str, given_labels(np.setdiff1d(each.labels["camids"], UNKNOWN_CAMERA), each.camid_names))]
        for side, each in (("query", query), ("gallery", gallery))
    }
    apart = not np.isin(near, far).any()
    first = near.min(), far.min()
    if query.camid_names is None and gallery.camid_names is None and not np.isin(near, far).all():
        for shift, starts in ((1, (0, 1)), (-1, (1, 0))):
            if first == starts and len(far) > 1 and np.isin(near + shift, far).all():
                return [warning("cameras_numbered_apart", **named, apart=apart, starts=starts)]
    if not apart:
        return []
    bare = [{re.sub(r"[\W_]|(?<![0-9])0+(?=[0-9])", "", name).casefold() for name in names} for names in named.values()]
    if bare[0] & bare[1]:
        return [warning("cameras_spelled_apart", **named)]
    # By design in some data sets.
    return [caution("cameras_apart", **named)]


def own_row_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol, ranked: RankedQueries) -> list[Finding]:
    """Note queries that find themselves: their own row, or a row with identical features, counts as a match.

    Where neither content digests nor item ids nor image paths identify own rows, relevant rows at distance 0 are
    counted, but for those that have negatives at distance 0 beside them: features of few values.  Lists made by hand
    may hold own rows on purpose.
    """
    if protocol.is_listed:
        return []
    n_valid = int((ranked.n_relevant > 0).sum())
    own = shared_items(query, gallery, (ranked.indptr, ranked.row))
    if own is not None:
        found = {"n": own.n_query, "n_valid": n_valid}
        found |= _own_row_remedy(own.by, protocol, by_paths=named_by_paths(query, gallery))
        if own.by == "content" and query.content_digest == query.labels_digest:
            # Labels alone: two sets of different images may be labelled alike, row by row.
            return [warning("same_labels", **found)]
        return [warning("own_rows", by=own.by, **found)]
    identical = (ranked.distance == 0.0) & (ranked.tied == 0)
    if not identical.any():
        return []
    n_identical = int((np.diff(segment_offsets(identical)[ranked.indptr]) > 0).sum())
    if n_identical < 2 or n_identical < _MANY * n_valid:
        return []
    remedy = "item ids" if OWN_ROW in protocol.junk else "cameras" if protocol.needs_camids else "names"
    return [warning("identical_features", n=n_identical, n_valid=n_valid, remedy=remedy)]


def _own_row_remedy(by: str, protocol: Protocol, *, by_paths: bool) -> dict[str, Any]:
    """What leaves own rows out; `by_paths` is whether the protocol knows them by image path."""
    if OWN_ROW in protocol.junk:
        return {"remedy": "item ids", "labels": ()}
    if by == "image_paths" and not by_paths:
        return {"remedy": "paths", "labels": ()}
    if protocol.junk:
        labels = {name for rule in protocol.junk for name in rule if not name.startswith(NOT)} - {"pid"}
        return {"remedy": "labels", "labels": sorted(labels)}
    return {"remedy": "protocol", "labels": ()}


def threshold_notes(
    metrics: Sequence[Metric],
    rates: Sequence[str],
    n_impostor: int | None,
    n_non_mated: int | None,
    *,
    name_of: Callable[[Metric], str] = attrgetter("name"),
) -> list[Finding]:
    """Note false accept rates of metrics and of the ROC that come to fewer than ten false accepts.

    `rates` are decimals; `n_impostor` and `n_non_mated` are None where they were not counted.
    """
    notes = []
    for needs, number, noun in ((PAIRS, n_impostor, "impostor pair"), (PROBES, n_non_mated, "non-mated query")):
        if number is None:
            continue
        names = [
            name_of(metric)
            for metric in metrics
            if metric.family.needs == needs
            and metric.family.takes_share
            and not _is_supported(metric.false_accept_rate, number)
        ]
        if names:
            notes.append(caution("few_false_accepts", names=names, of=noun, **_support(number)))
    few = [rate for rate in rates if n_impostor is not None and not _is_supported(Fraction(rate), n_impostor)]
    if few and n_impostor is not None:
        notes.append(caution("roc_few_false_accepts", n=len(few), n_points=len(rates), **_support(n_impostor)))
    return notes


def input_notes(*sets: LabelledSet) -> list[Finding]:
    """Note the changes of values that sets record, each once."""
    return [info("input", text=text) for text in dict.fromkeys(text for each in sets for text in each.notes)]


def smallest_rate(number: int) -> str | None:
    """The smallest false accept rate that so many impostors support, rounded up to three digits; None for none."""
    if number < LEAST_FALSE_ACCEPTS:
        return None
    rounded = Context(prec=3, rounding=ROUND_CEILING).divide(Decimal(LEAST_FALSE_ACCEPTS), Decimal(number))
    return f"{float(rounded):.3g}"


def _is_supported(rate: Fraction, number: int) -> bool:
    return rate * number >= LEAST_FALSE_ACCEPTS


def _support(number: int) -> dict[str, Any]:
    return {"number": number, "least": LEAST_FALSE_ACCEPTS, "smallest": smallest_rate(number)}
