"""Results that point to a mistake in the input: at chance level, decided by ties, or better in the reversed order.

A result is at chance level if its mAP is within the range of 99% of all random orders of the kept items
(`reid_dist.metrics.chance`) and the queries are enough to tell twice the chance level from that range.  A good model
ranks the items of an identity together, also where the labels are not those of the rows: mAP is then above that of
random orders, up to that of random orders of whole identities, while the relevant item is still before the other one
in half of all pairs.  So a result is at chance level as well if that share is within its range of 99%, taken for
identities whose ranks are all alike, and if the identities are enough to tell an honest model at twice the chance level
from that range.

None of it needs a look at features.  The cause does, at a few runs of rows of either set, and only where there is a
note.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, warning
from reid_dist.core.model import UNKNOWN_CAMERA, Int64, RankedQueries
from reid_dist.core.segments import run_offsets, segment_sums
from reid_dist.metrics.chance import Moments, chance_average_precision, chance_cmc
from reid_dist.stores import DistanceBlock, FeatureSet, LabelledSet
from reid_dist.stores.labels import given_labels

Float64 = NDArray[np.float64]

# Half the width of the range of 99% of a normal distribution, in standard deviations.
_RANGE: Final = 2.5758
# Honest models reach this multiple of the chance level, and a reversed order is better by it.
_FACTOR: Final = 2.0
# The widest range of the share of pairs in the right order that leaves out honest models at twice the chance level, and
# the variance of that share for a relevant item at any rank alike.
_WIDEST, _VARIANCE = 0.08, 1.0 / 12.0
_TIED: Final = 0.5
# The metric where the nearest relevant items alone are ranked.
_FIRST: Final = 10
# Pairs of rows of one identity each, at least and at most, that show whether features fit labels.
_FEWEST_PAIRS, _MOST_PAIRS = 16, 256
# Standard deviations by which the mates of rows must be nearer than others on average.
_NEARER: Final = 3.0
# Cameras of a side, at least, that may be identities; and the share of labels that are among those of the other kind,
# if the two kinds are exchanged.
_FEWEST_CAMERAS: Final = 10
_MOST_LABELS: Final = 0.5


def chance_notes(
    query: LabelledSet, gallery: LabelledSet, ranked: RankedQueries, *, first_alone: bool, given: DistanceBlock | None
) -> list[Finding]:
    """Note a result at chance level, one of ties, or one that is better reversed; with the causes that fit.

    With `first_alone`, only the ranks of the nearest relevant items are known.  With `given` distances,
    features of the sets are not theirs.
    """
    valid = ranked.n_relevant > 0
    if not valid.any():
        return []
    if exchanged := _exchanged_labels(query, gallery):
        return exchanged
    n_tied, n_pairs = _tied_pairs(ranked)
    if n_pairs and n_tied > _TIED * n_pairs:
        return [warning("tied_pairs", n=n_tied, n_pairs=n_pairs)]
    level = _level_of(ranked, valid, query.pids[valid], first_alone=first_alone)
    if not first_alone:
        turned = float(_reversed_precision(ranked)[valid].mean())
        if turned >= _FACTOR * level.result and level.order is not None and level.order < 0.5 - level.order_width:
            kind = {"similarity": True} if given is not None and given.similarity else {}
            return [warning("reversed_order", result=level.result, reversed=turned, given=given is not None, **kind)]
    if level.is_chance:
        return [warning("chance_level", **level.values, cause=_cause(query, gallery, given is not None))]
    return []


@dataclass(frozen=True, slots=True)
class _Level:
    """A result beside that of random orders."""

    metric: str
    result: float
    # Mean over random orders, half the width of the range of 99% of them, and the upper end for whole identities.
    chance: float
    width: float
    of_identities: float
    # Share of pairs in which the relevant item is before the other one, and half the width of its range; None if only
    # the nearest relevant items are ranked.
    order: float | None
    order_width: float

    @property
    def is_chance(self) -> bool:
        """Whether the result is that of random orders."""
        upper = self.chance + self.width
        if self.result <= upper < _FACTOR * self.chance <= 1.0:
            return True
        is_like = self.order is not None and abs(self.order - 0.5) <= self.order_width <= _WIDEST
        return is_like and self.result <= self.of_identities

    @property
    def values(self) -> dict[str, Any]:
        """The result beside its chance level."""
        ends = {"low": max(0.0, self.chance - self.width), "high": self.chance + self.width}
        return {"metric": self.metric, "result": self.result, "chance": self.chance, **ends, "in_order": self.order}


def _level_of(ranked: RankedQueries, valid: NDArray[np.bool_], pids: Int64, *, first_alone: bool) -> _Level:
    """Compare the valid queries, whose identities are `pids`."""
    n_relevant, n_kept = ranked.n_relevant[valid], ranked.n_kept[valid]
    identity = np.unique(pids, return_inverse=True)[1]

    def half_width(moments: Moments, *, alike: bool) -> float:
        """Half the width of the range of a mean; queries of an identity are single ones, or all alike."""
        deviation = np.sqrt(moments.variance)
        each = np.bincount(identity, deviation) if alike else deviation
        return _RANGE * float(np.sqrt(np.sum(each**2))) / len(pids)

    if first_alone:
        name, values = f"CMC@{_FIRST}", (ranked.first_rank <= _FIRST).astype(np.float64)[valid]
        moments = chance_cmc(n_relevant, n_kept, _FIRST)
    else:
        name, values = "mAP", segment_sums(ranked.number / ranked.rank, ranked.indptr)[valid] / n_relevant
        moments = chance_average_precision(n_relevant, n_kept)
    chance = float(moments.mean.mean())
    width = half_width(moments, alike=True)
    if chance + width >= _FACTOR * chance:
        # Too few identities: the least that the range can be.
        width = half_width(moments, alike=False)
    whole = chance_average_precision(np.ones_like(n_kept), n_kept // n_relevant)
    of_identities = float(whole.mean.mean()) + half_width(whole, alike=True)
    order = None if first_alone else _share_in_order(ranked)
    even = Moments(whole.mean, np.full(len(pids), _VARIANCE))
    return _Level(name, float(values.mean()), chance, width, of_identities, order, half_width(even, alike=True))


def _share_in_order(ranked: RankedQueries) -> float | None:
    """Mean share, over queries, of the pairs in which the relevant item is before the other one; None without pairs."""
    n_others = ranked.n_kept - ranked.n_relevant
    has_pairs = (ranked.n_relevant > 0) & (n_others > 0)
    if not has_pairs.any():
        return None
    before = segment_sums((ranked.rank - ranked.number).astype(np.float64), ranked.indptr)[has_pairs]
    return 1.0 - float((before / (ranked.n_relevant * n_others)[has_pairs]).mean())


def _tied_pairs(ranked: RankedQueries) -> tuple[int, int]:
    """Pairs of a ranked relevant item and another kept one at its distance, and all pairs of these."""
    others = np.repeat(ranked.n_kept - ranked.n_relevant, ranked.n_relevant)
    return int(ranked.tied.sum()), int(others.sum())


def _reversed_precision(ranked: RankedQueries) -> Float64:
    """AP of every query in the reversed order, in which rank r is rank M + 1 - r; 0 without relevant items."""
    n = ranked.n_relevant
    rank = np.repeat(ranked.n_kept + 1, n) - ranked.rank
    number = np.repeat(n + 1, n) - ranked.number
    return segment_sums(number / rank, ranked.indptr) / np.maximum(n, 1)


# ---- causes ----------------------------------------------------------------------------------------------------------


def _cause(query: LabelledSet, gallery: LabelledSet, given: bool) -> str:
    """The cause that fits: where features do not fit labels, or all that are possible."""
    near, far = (
        _fits_labels(each) if isinstance(each, FeatureSet) and not given else None for each in (query, gallery)
    )
    for fits, side in ((far, "gallery"), (near, "query")):
        if fits is False:
            return side
    if far:
        return "between" if near else "query or between"
    return "distances" if given else "features"


def _exchanged_labels(query: LabelledSet, gallery: LabelledSet) -> list[Finding]:
    """Note a side whose pids are cameras of the other one, and whose cameras are its pids and not its cameras."""
    if query.camids is None or gallery.camids is None:
        return []
    sides = (("query set", query), ("gallery", gallery))
    pids, camids = (
        [np.unique(query.pids), np.unique(gallery.pids)],
        [np.setdiff1d(query.camids, UNKNOWN_CAMERA), np.setdiff1d(gallery.camids, UNKNOWN_CAMERA)],
    )
    for own, (side, _) in enumerate(sides):
        # Few sets have so many cameras: mostly nothing is compared.
        if len(camids[own]) < max(_FEWEST_CAMERAS, 2 * len(pids[own])) or len(camids[1 - own]) >= len(pids[1 - own]):
            continue
        known = [set(map(str, given_labels(pids[at], each.pid_names))) for at, (_, each) in enumerate(sides)]
        cameras = [set(map(str, given_labels(camids[at], each.camid_names))) for at, (_, each) in enumerate(sides)]
        crosses = _overlap(known[own], cameras[1 - own]) and _overlap(cameras[own], known[1 - own])
        if crosses and len(cameras[own] & cameras[1 - own]) < _MOST_LABELS * len(cameras[own]):
            return [warning("labels_exchanged", side=side)]
    return []


def _overlap(some: set[str], others: set[str]) -> bool:
    """Whether labels of either set are mostly among those of the other one."""
    return len(some & others) >= _MOST_LABELS * max(1, min(len(some), len(others)))


def _fits_labels(features: FeatureSet) -> bool | None:
    """Whether rows of one identity are nearer to each other than to others; None if a sample has too few pairs."""
    from reid_dist.evaluation.data_problem_search import read_sampled, sampled_rows, unit_vectors
    from reid_dist.reports.failure_kinds import NO_IDENTITY

    rows = sampled_rows(features.n_rows, features.dim)
    pids = features.pids[rows]
    order = np.argsort(pids, kind="stable")
    ordered = pids[order]
    runs = run_offsets(ordered)
    first = runs[:-1][np.diff(runs) > 1]
    first = first[~np.isin(ordered[first], NO_IDENTITY)]
    if len(first) < _FEWEST_PAIRS:
        return None
    first = first[np.linspace(0, len(first) - 1, min(len(first), _MOST_PAIRS)).astype(np.int64)]
    one, other = order[first], order[first + 1]
    chosen, place = np.unique(np.concatenate([one, other]), return_inverse=True)
    units = unit_vectors(read_sampled(features, rows[chosen]))[place]
    similarity = units[: len(one)] @ units[len(one) :].T
    own = np.diagonal(similarity)[:, np.newaxis]
    # Share of the others that are nearer than the mate, ties as one half; 1/2 on average without any relation.
    before = (similarity > own).sum(axis=1) + 0.5 * ((similarity == own).sum(axis=1) - 1)
    mean = float(before.mean()) / (len(one) - 1)
    return bool(mean < 0.5 - _NEARER * np.sqrt(1.0 / 12.0 / len(one)))
