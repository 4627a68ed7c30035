"""k-reciprocal re-ranking on whole matrices: every item against every item, sets of rows, and nothing sparse.

The graph holds N = Q + G items, queries first.  `steps` gives every stage of it, `reranked` the last one.

=============  ============  ==========  ===========================  =======================  =====================
variant        N(i, k1)      N(i, h)     D                            V                        blended with d_J
=============  ============  ==========  ===========================  =======================  =====================
``zhong``      k1 + 1 items  h + 1       2 - 2s, or squared; by rows  exp(-D), rows sum to 1   D by rows
``zhong_d4``   k1 + 1        h + 1       its square; by rows          exp(-D), rows sum to 1   D by rows
``faiss_k1``   k1            h + 1       2 - 2s for every distance    exp(-D), rows sum to 1   the requested distance
``paper``      k1            h           2 - 2s, or squared           exp(-D), or 1            D
=============  ============  ==========  ===========================  =======================  =====================

"By rows" is divided by the maximum of its row over all N items; a row whose maximum is 0 is 0.  h is k1 / 2, halves
rounded to even.

Readings, where formulas leave a choice:

* A list is in the order of (distance, row) after the item itself, which is first in its own list whatever else is
  at its distance.  The distance that orders is the canonical one before it is divided or squared: the cosine distance,
  or the squared Euclidean one (under ``euclidean`` too, where a root could make two distances one).
* Lists count the item itself.  In ``paper``, N(p, k) holds the k first samples of the ranking list of p.  All items
  are ranked, so p heads its own list and k - 1 others follow; half lists likewise, and hold nothing when h = 0.
* The mean is over the first k2 of N(i, k1) that there are: one less than k2 when k2 = k1 + 1 in ``faiss_k1`` and
  ``paper``, and never more than N.
* In ``paper``, d of its eq. 7 and in its final distance is that of its eq. 1, a squared distance: D, not divided by
  anything.
* A zero row is at cosine distance 1 from everything, itself and other zero rows included, as in `reference.py`.

**When this file may decide.**  `order_is_unambiguous` below returns whether a program that sums in another order must
find these lists.  If so, all sets are the same and the numbers differ by rounding.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from support import reference

VARIANTS = ("zhong", "zhong_d4", "faiss_k1", "paper")
WEIGHTS = ("gaussian", "binary")


# ------------------------------------------------------------------------------------------------ the variants


def half_of(k1):
    """k1 / 2, halves rounded to even."""
    return round(k1 / 2)


def list_lengths(variant, k1):
    """How many items the lists N(i, k1) and N(i, h) hold, the item itself counted."""
    h = half_of(k1)
    return {
        "zhong": (k1 + 1, h + 1),
        "zhong_d4": (k1 + 1, h + 1),
        "faiss_k1": (k1, h + 1),
        "paper": (k1, h),
    }[variant]


def divided_by_rows(variant):
    """Whether rows of D are divided by their maximum."""
    return variant in ("zhong", "zhong_d4")


def ordering_distances(first, second, distance, variant):
    """The distances that order a list: cosine, or squared Euclidean."""
    on_the_sphere = distance == "cosine" or variant == "faiss_k1"
    return reference.canonical_distances(first, second, "cosine" if on_the_sphere else "sqeuclidean")


def graph_distances(first, second, distance, variant):
    """D of the variant before rows are divided, (n_first, n_second)."""
    ordering = ordering_distances(first, second, distance, variant)
    on_the_sphere = distance == "cosine" or variant == "faiss_k1"
    squared = 2 * ordering if on_the_sphere else ordering
    return squared**2 if variant == "zhong_d4" else squared


def order_is_unambiguous(query, gallery, distance, variant):
    """Whether every fixed order of summation gives the lists of this file; see `reference.order_is_unambiguous`."""
    items = _joined(query, gallery)
    on_the_sphere = distance == "cosine" or variant == "faiss_k1"
    return reference.order_is_unambiguous(items, items, "cosine" if on_the_sphere else "sqeuclidean")


def _joined(query, gallery):
    return np.concatenate([np.asarray(query, dtype=np.float64), np.asarray(gallery, dtype=np.float64)])


# -------------------------------------------------------------------------------------------------- the stages


def divide_rows(distances):
    """Each row by its own maximum; a row whose maximum is 0 is 0."""
    result = np.zeros_like(distances)
    for i, row in enumerate(distances):
        if row.max() != 0:
            result[i] = row / row.max()
    return result


def nearest_rows(distances, own, length):
    """The first `length` rows by (distance, row), `own` before all others."""
    return sorted(range(len(distances)), key=lambda j: (j != own, distances[j], j))[:length]


def reciprocal_sets(lists):
    """R(i): who is in the list of i and has i in its own."""
    return [{j for j in members if i in lists[j]} for i, members in enumerate(lists)]


def grow(reciprocal, half_sets, inclusive):
    """R* of one item.

    Each candidate c of R adds R(c, h) when more than two thirds of that (two thirds or more, if `inclusive`) are in R.
    """
    grown = set(reciprocal)
    for candidate in reciprocal:
        half = half_sets[candidate]
        twice, thrice = 2 * len(half), 3 * len(half & reciprocal)
        if thrice > twice or (inclusive and thrice == twice):
            grown |= half
    return grown


def weigh(members, distances, variant, weights):
    """One row of V, dense."""
    row = np.zeros(len(distances))
    for j in members:
        row[j] = 1.0 if weights == "binary" else np.exp(-distances[j])
    return row if variant == "paper" else row / row.sum()


def jaccard(first, second, variant):
    """d_J of every row of V against every other, (n_first, n_second)."""
    result = np.empty((len(first), len(second)))
    for i, one in enumerate(first):
        for j, other in enumerate(second):
            smaller = np.minimum(one, other).sum()
            larger = np.maximum(one, other).sum() if variant == "paper" else 2 - smaller
            result[i, j] = 1 - smaller / larger
    return np.maximum(result, 0) if variant == "faiss_k1" else result


@dataclass(frozen=True)
class Steps:
    """Every stage for N items, queries first.

    `distances` (N, N)       D, divided by rows where the variant does so
    `neighbours`             N(i, k1), a list of rows from near to far, the item first
    `half_neighbours`        N(i, h)
    `reciprocal`             R(i, k1), a set
    `half_reciprocal`        R(i, h)
    `grown`                  R*(i)
    `weights` (N, N)         V
    `mean_weights` (N, N)    V after the mean over k2 items
    `jaccard` (Q, G)         d_J
    `final` (Q, G)           the re-ranked distance
    """

    distances: np.ndarray
    neighbours: list[list[int]]
    half_neighbours: list[list[int]]
    reciprocal: list[set[int]]
    half_reciprocal: list[set[int]]
    grown: list[set[int]]
    weights: np.ndarray
    mean_weights: np.ndarray
    jaccard: np.ndarray
    final: np.ndarray


def _check(variant, k1, k2, weights):
    assert variant in VARIANTS
    assert weights in WEIGHTS
    assert weights == "gaussian" or variant == "paper"
    assert k1 >= 1
    assert k2 >= 1


def _steps(ordering, undivided, plain, n_query, *, variant, k1, k2, lambda_value, inclusive, weights):
    """All stages from three matrices.

    `ordering` (N, N) orders the lists, `undivided` (N, N) is D, and `plain` (Q, G) the requested distance.
    """
    _check(variant, k1, k2, weights)
    items = range(len(ordering))
    length, half_length = list_lengths(variant, k1)
    distances = divide_rows(undivided) if divided_by_rows(variant) else undivided
    neighbours = [nearest_rows(ordering[i], i, length) for i in items]
    half_neighbours = [nearest_rows(ordering[i], i, half_length) for i in items]
    reciprocal = reciprocal_sets(neighbours)
    half_reciprocal = reciprocal_sets(half_neighbours)
    grown = [grow(reciprocal[i], half_reciprocal, inclusive or variant == "paper") for i in items]
    weights_ = np.array([weigh(grown[i], distances[i], variant, weights) for i in items])
    mean_weights = np.array([weights_[neighbours[i][:k2]].mean(axis=0) for i in items])
    jaccard_ = jaccard(mean_weights[:n_query], mean_weights[n_query:], variant)
    blended = plain if variant == "faiss_k1" else distances[:n_query, n_query:]
    return Steps(
        distances=distances,
        neighbours=neighbours,
        half_neighbours=half_neighbours,
        reciprocal=reciprocal,
        half_reciprocal=half_reciprocal,
        grown=grown,
        weights=weights_,
        mean_weights=mean_weights,
        jaccard=jaccard_,
        final=(1 - lambda_value) * jaccard_ + lambda_value * blended,
    )


# ---------------------------------------------------------------------------------------------- from features


def steps(
    query,
    gallery,
    *,
    distance="cosine",
    variant="zhong",
    k1=20,
    k2=6,
    lambda_value=0.3,
    inclusive=False,
    weights="gaussian",
):
    """Every stage for features (Q, dim) and (G, dim); `weights` may be ``binary`` in the variant ``paper``."""
    items = _joined(query, gallery)
    return _steps(
        ordering_distances(items, items, distance, variant),
        graph_distances(items, items, distance, variant),
        reference.canonical_distances(query, gallery, distance),
        len(query),
        variant=variant,
        k1=k1,
        k2=k2,
        lambda_value=lambda_value,
        inclusive=inclusive,
        weights=weights,
    )


def reranked(query, gallery, **options):
    """The re-ranked distances (Q, G) float64; the options are those of `steps`."""
    return steps(query, gallery, **options).final


# ------------------------------------------------------------------------------------------------ from distances


def ranklist_steps(
    qq,
    qg,
    gg,
    *,
    distance="cosine",
    variant="zhong",
    k1=20,
    k2=6,
    lambda_value=0.3,
    inclusive=False,
    weights="gaussian",
):
    """Every stage for given distances of the kind `distance`, blocks (Q, Q), (Q, G) and (G, G).

    D is twice a cosine distance, the square of a Euclidean one, and a squared Euclidean one itself; `zhong_d4` squares
    that.  `faiss_k1` can not look at features here and takes Euclidean distances for those of rows of length 1.
    The given distances order the lists.
    """
    qq, qg, gg = (np.asarray(block, dtype=np.float64) for block in (qq, qg, gg))
    given = np.block([[qq, qg], [qg.T, gg]])
    squared = {"cosine": 2 * given, "euclidean": given**2, "sqeuclidean": given}[distance]
    return _steps(
        given,
        squared**2 if variant == "zhong_d4" else squared,
        qg,
        len(qg),
        variant=variant,
        k1=k1,
        k2=k2,
        lambda_value=lambda_value,
        inclusive=inclusive,
        weights=weights,
    )


def ranklist(qq, qg, gg, **options):
    """The re-ranked distances (Q, G) for given ones; the options are those of `ranklist_steps`."""
    return ranklist_steps(qq, qg, gg, **options).final


# -------------------------------------------------------------------------------------- each query by itself


@dataclass(frozen=True)
class InductiveSteps:
    """Every stage for one query beside a gallery without it; row G is the query.

    `neighbours`             N(q, k1), a list of rows, the query first
    `reciprocal`, `grown`    R(q, k1) and R*(q), sets of rows
    `weights` (G + 1,)       V_q
    `mean_weights` (G + 1,)  V_q after the mean
    `jaccard` (G,)           d_J
    `final` (G,)             the re-ranked distance
    """

    neighbours: list[int]
    reciprocal: set[int]
    grown: set[int]
    weights: np.ndarray
    mean_weights: np.ndarray
    jaccard: np.ndarray
    final: np.ndarray


def inductive_steps(
    query,
    gallery,
    *,
    distance="cosine",
    variant="zhong",
    k1=20,
    k2=6,
    lambda_value=0.3,
    inclusive=False,
    weights="gaussian",
):
    """The stages of each query, a list of `InductiveSteps`.

    The gallery alone gives the lists, row maxima, R(c, h) and V of its items, all of them frozen.  A query q ranks
    itself and the gallery.  q is in N(g, k1) when

    * d(q, g) is strictly less than d(g, l), l the last item of the frozen list N(g, k1), or
    * that list has a place left, the gallery having fewer items than the list may hold,

    and never when the list has room for g alone.  V_q has a component for q, which no V_g has; the row of D it comes
    from is divided by its maximum over the gallery and q.  The mean of V_q is over V_q and the V_g of the first k2 - 1
    gallery items of N(q, k1) before their own mean; d_J is against the V_g after it.
    """
    _check(variant, k1, k2, weights)
    query, gallery = np.asarray(query, dtype=np.float64), np.asarray(gallery, dtype=np.float64)
    n_gallery = own = len(gallery)
    frozen = steps(
        gallery[:0],
        gallery,
        distance=distance,
        variant=variant,
        k1=k1,
        k2=k2,
        lambda_value=lambda_value,
        inclusive=inclusive,
        weights=weights,
    )
    gallery_ordering = ordering_distances(gallery, gallery, distance, variant)
    length, _ = list_lengths(variant, k1)

    def is_in_list_of(g, from_query):
        if length == 1:
            return False
        last = frozen.neighbours[g][-1]
        return len(frozen.neighbours[g]) < length or from_query < gallery_ordering[g, last]

    result = []
    for i in range(len(query)):
        alone = query[i : i + 1]
        beside = np.concatenate([gallery, alone])
        ordering = ordering_distances(alone, beside, distance, variant)[0]
        distances = graph_distances(alone, beside, distance, variant)
        distances = (divide_rows(distances) if divided_by_rows(variant) else distances)[0]
        neighbours = nearest_rows(ordering, own, length)
        reciprocal = {own} | {g for g in neighbours if g != own and is_in_list_of(g, ordering[g])}
        # What is in R(q, h) is in R(q, k1) as well, so the query as a candidate of its own adds nothing.
        half_sets = [*frozen.half_reciprocal, {own}]
        grown = grow(reciprocal, half_sets, inclusive or variant == "paper")
        own_weights = weigh(grown, distances, variant, weights)
        rows = [np.append(frozen.weights[g], 0.0) if g != own else own_weights for g in neighbours[:k2]]
        mean_weights = np.mean(rows, axis=0)
        widened = np.column_stack([frozen.mean_weights, np.zeros(n_gallery)])
        jaccard_ = jaccard([mean_weights], widened, variant)[0]
        plain = reference.canonical_distances(alone, gallery, distance)[0]
        blended = plain if variant == "faiss_k1" else distances[:n_gallery]
        final = (1 - lambda_value) * jaccard_ + lambda_value * blended
        result.append(InductiveSteps(neighbours, reciprocal, grown, own_weights, mean_weights, jaccard_, final))
    return result


def inductive(query, gallery, **options):
    """The re-ranked distances (Q, G), each query by itself; the options are those of `inductive_steps`."""
    return np.array([one.final for one in inductive_steps(query, gallery, **options)]).reshape(len(query), len(gallery))
