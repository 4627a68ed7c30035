"""Notes on a run: remarks on its inputs, its own rows and its thresholds, as lines for `Report.notes`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Final

import numpy as np

from reid_dist.core.formatting import counted, first_few, have
from reid_dist.core.model import UNKNOWN_CAMERA, Int64, RankedQueries
from reid_dist.core.segments import segment_offsets
from reid_dist.metrics.metric import PAIRS, PROBES, Metric
from reid_dist.relevance.protocols import NOT, OWN_ROW, Protocol
from reid_dist.reports.heading import WARNING
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import given_labels, joint_labels
from reid_dist.stores.repeated_items import named_by_paths, repeat_note, shared_items

LEAST_FALSE_ACCEPTS: Final = 10
"""A rate of false accepts is supported by a sample in which it comes to this many."""

_NUMBER: Final = re.compile(r"[0-9][0-9,.]*(e-?[0-9]+)?")

_MOST_CAMERAS: Final = 6

# Identical features are noted from this share of the valid queries on, and from two queries on.
_MANY: Final = Fraction(1, 100)


def side_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[str]:
    """Note signs that query and gallery are exchanged.

    The signs are queries of the pid that marks junk, and fewer gallery rows than queries.  Galleries with one row of
    each identity are small by design.
    """
    if query.content_digest == gallery.content_digest:
        return []
    signs = []
    remedy = "swap the arguments"
    n_junk = int(np.isin(query.pids, protocol.junk_pids).sum())
    if n_junk:
        signs.append(
            f"{n_junk:,} of {counted(query.n_rows, 'query')} {have(n_junk)} {protocol.junk_pid_in_words}, which "
            "marks junk, so these queries can never match"
        )
        drop = " ".join(f"--drop-pid {pid}" for pid in protocol.junk_pids)
        remedy += f"; if not, drop them (ingest {drop})"
    if query.n_rows > gallery.n_rows and len(np.unique(gallery.pids)) < gallery.n_rows:
        signs.append(f"there are {query.n_rows:,} queries and only {counted(gallery.n_rows, 'gallery row')}")
    # Sizes alone are a weak sign: some benchmarks have small galleries.
    mark = WARNING if n_junk else ""
    return [f"{mark}query and gallery may be swapped: {'; '.join(signs)}; if they are, {remedy}"] if signs else []


def label_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[str]:
    """Note labels of whole sets: rows that repeat an item, unknown cameras, and cameras that no other side has."""
    return [*_repeated_row_notes(query, gallery), *_camera_notes(query, gallery, protocol)]


def _repeated_row_notes(query: LabelledSet, gallery: LabelledSet) -> list[str]:
    if query.content_digest == gallery.content_digest:
        found = [repeat_note(query, "set")]
    else:
        found = [repeat_note(query, "query set"), repeat_note(gallery, "gallery")]
    return [note for note in found if note]


def _camera_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol) -> list[str]:
    if not protocol.needs_camids or query.camids is None or gallery.camids is None:
        return []
    camids = joint_labels("camid", (query, gallery))
    notes = []
    n_unknown = [int((each == UNKNOWN_CAMERA).sum()) for each in camids]
    if any(n_unknown):
        notes.append(
            f"the camera of {n_unknown[0]:,} of {counted(query.n_rows, 'query')} and of {n_unknown[1]:,} of "
            f"{counted(gallery.n_rows, 'gallery row')} is unknown ({UNKNOWN_CAMERA}): it is equal to no camera, so "
            "that none of these is junk for a query's camera"
        )
    near, far = (np.setdiff1d(each, UNKNOWN_CAMERA) for each in camids)
    # Cameras that a protocol tells apart by number may be apart by design.
    if not protocol.counts_cameras and len(near) and len(far):
        notes += _unlike_cameras(query, gallery, near, far)
    return notes


def _unlike_cameras(query: LabelledSet, gallery: LabelledSet, near: Int64, far: Int64) -> list[str]:
    """Note known cameras of both sides, (n,) each under one numbering, that are none of the other side's."""
    given = [
        [*map(str, given_labels(np.setdiff1d(each.labels["camids"], UNKNOWN_CAMERA), each.camid_names))]
        for each in (query, gallery)
    ]
    found = " and ".join(
        f"{side} cameras {first_few(names, _MOST_CAMERAS)}"
        for side, names in zip(("query", "gallery"), given, strict=True)
    )
    apart = not np.isin(near, far).any()
    numbered = "no query camera is" if apart else "not all query cameras are"
    first = near.min(), far.min()
    if query.camid_names is None and gallery.camid_names is None and not np.isin(near, far).all():
        for shift, starts in ((1, (0, 1)), (-1, (1, 0))):
            if first == starts and len(far) > 1 and np.isin(near + shift, far).all():
                return [
                    f"{WARNING}{numbered} in the gallery: {found} may be numbered from {starts[0]} and from "
                    f"{starts[1]}; number the cameras of both sides alike, or rows of a query's own camera count"
                ]
    if not apart:
        return []
    bare = [{re.sub(r"[\W_]|(?<![0-9])0+(?=[0-9])", "", name).casefold() for name in names} for names in given]
    if bare[0] & bare[1]:
        return [
            f"{WARNING}no query camera is in the gallery: {found} are spelled unlike; write them alike, or rows of a "
            "query's own camera count"
        ]
    return [
        f"no query camera is in the gallery: {found}; nothing is junk for its camera, which is right only if the "
        "cameras of both sides are different ones, as visible and infrared ones are: otherwise number them alike"
    ]


def own_row_notes(query: LabelledSet, gallery: LabelledSet, protocol: Protocol, ranked: RankedQueries) -> list[str]:
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
        found = f"the own row of {own.n_query:,} of {counted(n_valid, 'valid query')}"
        remedy = _own_row_remedy(own.by, protocol, by_paths=named_by_paths(query, gallery))
        if own.by == "content" and query.content_digest == query.labels_digest:
            # Labels alone: two sets of different images may be labelled alike, row by row.
            return [
                f"{WARNING}query and gallery have the same labels in every row; if they are the same images, queries "
                f"match themselves ({found} is one of the relevant gallery rows): {remedy}"
            ]
        evidence = {
            "content": "query and gallery are the same set",
            "item_ids": "by item id",
            "image_paths": "by image path",
        }[own.by]
        return [
            f"{WARNING}queries match themselves: {found} is one of the relevant gallery rows ({evidence}); {remedy}"
        ]
    identical = (ranked.distance == 0.0) & (ranked.tied == 0)
    if not identical.any():
        return []
    n_identical = int((np.diff(segment_offsets(identical)[ranked.indptr]) > 0).sum())
    if n_identical < 2 or n_identical < _MANY * n_valid:
        return []
    remedy = "give item_ids or image_paths to both sides and use the protocol 'same_set', which leaves own rows out"
    if OWN_ROW in protocol.junk:
        remedy = "give an image the same item id on both sides"
    elif protocol.needs_camids:
        remedy = f"check that both sides number their cameras alike, or {remedy}"
    return [
        f"{WARNING}{n_identical:,} of {n_valid:,} valid queries have a relevant gallery row at distance 0: identical "
        f"features, as of an image that is on both sides; if these are the same images, {remedy}"
    ]


def _own_row_remedy(by: str, protocol: Protocol, *, by_paths: bool) -> str:
    """What leaves own rows out; `by_paths` is whether the protocol knows them by image path."""
    if OWN_ROW in protocol.junk:
        return "give an image the same item id on both sides"
    if by == "image_paths" and not by_paths:
        return "give the paths as item_ids to both sides and use the protocol 'same_set', which leaves own rows out"
    if protocol.junk:
        labels = sorted({name for rule in protocol.junk for name in rule if not name.startswith(NOT)} - {"pid"})
        return (
            f"their {' and '.join(labels) or 'labels'} differ between the two sides: check them, or use the protocol "
            "'same_set', which leaves own rows out"
        )
    return "use the protocol 'same_set', which leaves own rows out"


def threshold_notes(
    metrics: Sequence[Metric], rates: Sequence[str], n_impostor: int | None, n_non_mated: int | None
) -> list[str]:
    """Note false accept rates of metrics and of the ROC that come to fewer than ten false accepts.

    `rates` are decimals; `n_impostor` and `n_non_mated` are None where they were not counted.
    """
    notes = []
    for needs, number, noun in ((PAIRS, n_impostor, "impostor pair"), (PROBES, n_non_mated, "non-mated query")):
        if number is None:
            continue
        names = [
            metric.name
            for metric in metrics
            if metric.family.needs == needs
            and metric.family.takes_share
            and not _is_supported(metric.false_accept_rate, number)
        ]
        if names:
            rest = "rests" if len(names) == 1 else "rest"
            notes.append(f"{', '.join(names)} {rest} on {_few(number, noun)}")
    few = [rate for rate in rates if n_impostor is not None and not _is_supported(Fraction(rate), n_impostor)]
    if few and n_impostor is not None:
        rest = "point rests" if len(few) == 1 else "points rest"
        notes.append(f"ROC: {len(few)} of its {len(rates)} {rest} on {_few(n_impostor, 'impostor pair')}")
    return notes


def notes_of_parts(notes: Sequence[Sequence[str]], part: str, *, warnings_alone: bool = False) -> list[str]:
    """Merge the notes of all parts of a job, in order; those that differ in their numbers alone become one.

    `part` is the noun, such as ``split``; with `warnings_alone`, other notes are merged only if they are equal.
    """
    alike: dict[str, list[tuple[int, str]]] = {}
    for place, of_part in enumerate(notes):
        for note in of_part:
            is_own = warnings_alone and not note.startswith(WARNING)
            alike.setdefault(note if is_own else _NUMBER.sub("#", note), []).append((place, note))
    together = []
    for found in alike.values():
        first, note = found[0]
        n_parts = len({place for place, _ in found})
        if len({text for _, text in found}) == 1:
            together.append(note)
        else:
            mark, text = (WARNING, note.removeprefix(WARNING)) if note.startswith(WARNING) else ("", note)
            together.append(
                f"{mark}in {n_parts} of {counted(len(notes), part)}, with other numbers in each; in {part} {first}: "
                f"{text}"
            )
    return together


def smallest_rate(number: int) -> str | None:
    """The smallest false accept rate that so many impostors support, rounded up to three digits; None for none."""
    if number < LEAST_FALSE_ACCEPTS:
        return None
    rounded = Context(prec=3, rounding=ROUND_CEILING).divide(Decimal(LEAST_FALSE_ACCEPTS), Decimal(number))
    return f"{float(rounded):.3g}"


def _is_supported(rate: Fraction, number: int) -> bool:
    return rate * number >= LEAST_FALSE_ACCEPTS


def _few(number: int, noun: str) -> str:
    least = LEAST_FALSE_ACCEPTS
    rate = smallest_rate(number)
    if rate is None:
        return f"fewer than {least} false accepts: with {counted(number, noun)} every false accept rate does"
    return (
        f"fewer than {least} false accepts (FAR x {counted(number, noun)} < {least}); the smallest FAR that so "
        f"many support is {rate}"
    )
