"""Definition of k-reciprocal re-ranking: its parameters, and the variants under one name in the literature."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from reid_dist.core.numeric import is_number, is_whole
from reid_dist.core.registry import Registry, did_you_mean
from reid_dist.core.specs import parse_spec
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.errors import InputError

# A smaller weight is lost in the rounding of the mixed distance.
_LEAST_WEIGHT = 1e-9


@dataclass(frozen=True)
class Variant:
    """Variant of k-reciprocal re-ranking: the choices in which published programs differ.

    Attributes
    ----------
    name, summary, source
        Texts for reports and lists.
    lists_and_self
        Whether lists of k1 hold the item itself besides k1 others, or as one of k1.
    half_lists_and_self
        `lists_and_self` for the half lists.
    on_sphere
        Whether the graph uses squared distances between rows of length 1, whatever the requested distance.
    by_row_maximum
        Whether each row of distances is divided by its maximum.
    squares
        Whether distances are squared a second time.
    normalised
        Whether rows of weights sum to 1.
    inclusive
        Whether an overlap of exactly two thirds is accepted.
    clipped
        Whether negative Jaccard distances are replaced by 0.
    mixes_plain
        Whether the Jaccard distance is mixed with the requested distance instead of the graph's distance.
    """

    name: str
    summary: str
    source: str
    lists_and_self: bool = True
    half_lists_and_self: bool = True
    on_sphere: bool = False
    by_row_maximum: bool = True
    squares: bool = False
    normalised: bool = True
    inclusive: bool = False
    clipped: bool = False
    mixes_plain: bool = False


VARIANTS: Registry[Variant] = Registry("variant of re-ranking")

VARIANTS.register(
    Variant(
        name="zhong",
        summary="squared distances divided by the maximum of their row",
        source="Zhong et al., CVPR 2017, the authors' code on features",
    )
)
VARIANTS.register(
    Variant(
        name="zhong_d4",
        summary="as zhong, with distances squared twice",
        source="torchreid, cluster-contrast and layumi's baseline, which hand squared distances to code that squares",
        squares=True,
    )
)
VARIANTS.register(
    Variant(
        name="faiss_k1",
        summary="k1 neighbours with the item itself, rows of length 1, nothing divided by row maxima",
        source="fast-reid, cluster-contrast (faiss)",
        lists_and_self=False,
        on_sphere=True,
        by_row_maximum=False,
        clipped=True,
        mixes_plain=True,
    )
)
VARIANTS.register(
    Variant(
        name="paper",
        summary="the equations as printed: two thirds are enough, weights are not normalised",
        source="Zhong et al., CVPR 2017, eqs. 1 to 12",
        lists_and_self=False,
        half_lists_and_self=False,
        by_row_maximum=False,
        normalised=False,
        inclusive=True,
    )
)


@dataclass(frozen=True)
class KReciprocal:
    """k-reciprocal encoding, with its Jaccard distance mixed with the plain distance (Zhong et al., CVPR 2017).

    Attributes
    ----------
    k1
        Number of neighbours that a reciprocal set is taken from.
    k2
        Number of items whose rows of weights are averaged, the item itself included; 1 for no averaging.
    lambda_value
        Weight of the plain distance, from 0 to 1.
    variant
        Name of a `Variant`.
    inclusive
        Whether an overlap of exactly two thirds is accepted (as in the paper, and in no program); None for the value of
        the variant, which replaces it.
    weights
        ``gaussian``, or ``binary`` in the variant ``paper`` (its eq. 6).
    mode
        ``transductive``: the graph holds all queries and the gallery.  ``inductive``: the graph holds the gallery, and
        each query is placed in it separately, so that its result does not depend on the other queries; if the gallery
        contains the query's row as well, both are present.
    """

    k1: int = 20
    k2: int = 6
    lambda_value: float = 0.3
    variant: str = "zhong"
    inclusive: bool | None = None
    weights: str = "gaussian"
    mode: str = "transductive"

    def __post_init__(self) -> None:
        VARIANTS.get(self.variant)
        for name in ("k1", "k2"):
            value = getattr(self, name)
            if not is_whole(value) or value < 1:
                raise InputError(f"{name} of k_reciprocal must be a whole number from 1, found {value!r}")
        if self.k2 > self.k1 + 1:
            raise InputError(
                f"k2 of k_reciprocal must not be larger than k1 + 1 = {self.k1 + 1}, found {self.k2}: only neighbours "
                "from the lists of k1 are averaged"
            )
        weight = self.lambda_value
        if not is_number(weight) or not 0 <= weight <= 1:
            raise InputError(f"lambda_value of k_reciprocal must be from 0 to 1, found {weight!r}")
        if 0 < weight < _LEAST_WEIGHT:
            raise InputError(
                f"lambda_value of k_reciprocal must be 0 or at least {_LEAST_WEIGHT:g}, found {weight!r}: below that "
                "the weight is lost in rounding"
            )
        if self.inclusive is None:
            object.__setattr__(self, "inclusive", self.rules.inclusive)
        if not isinstance(self.inclusive, bool):
            raise InputError(f"inclusive of k_reciprocal must be true or false, found {self.inclusive!r}")
        if self.rules.inclusive and not self.inclusive:
            raise InputError(
                f"inclusive=false contradicts the variant {self.variant!r} of k_reciprocal, where two thirds are "
                "enough by definition; leave inclusive out, or choose another variant"
            )
        for name, known in (("weights", ("gaussian", "binary")), ("mode", ("transductive", "inductive"))):
            if getattr(self, name) not in known:
                raise InputError(did_you_mean(f"{name} of k_reciprocal", str(getattr(self, name)), known))
        if self.weights == "binary" and self.variant != "paper":
            raise InputError(f"binary weights belong to the variant 'paper', not to {self.variant!r}")
        # NumPy scalars are not JSON-serialisable; reports hold these values.
        for name, value in (("k1", int(self.k1)), ("k2", int(self.k2)), ("lambda_value", float(weight))):
            object.__setattr__(self, name, value)

    @property
    def rules(self) -> Variant:
        """Definition of the variant."""
        return VARIANTS.get(self.variant)

    @property
    def n_near(self) -> int:
        """Length of the lists of k1, the item itself counted."""
        return self.k1 + int(self.rules.lists_and_self)

    @property
    def n_half(self) -> int:
        """Length of the half lists, the item itself counted; k1 / 2 is rounded to even."""
        return round(self.k1 / 2) + int(self.rules.half_lists_and_self)

    def graph_distance(self, requested: Distance) -> Distance:
        """Distance that orders lists and determines weights, up to constant factors and a square."""
        return DISTANCES.get("cosine" if self.rules.on_sphere or requested.name == "cosine" else "sqeuclidean")

    def mixed_distance(self, requested: Distance) -> Distance:
        """Distance that is mixed with the Jaccard distance, up to constant factors and a square."""
        return requested if self.rules.mixes_plain else self.graph_distance(requested)

    def describe(self) -> dict[str, Any]:
        """Report entries: name, every parameter, and the definition of the variant."""
        return {
            "name": "k_reciprocal",
            **asdict(self),
            "definition": self.rules.summary,
            "source": self.rules.source,
        }


@dataclass(frozen=True)
class _Reranker:
    name: str
    summary: str
    source: str


RERANKERS: Registry[_Reranker] = Registry("re-ranker")
RERANKERS.register(
    _Reranker(
        "k_reciprocal",
        "(1 - lambda) Jaccard distance of k-reciprocal neighbours + lambda distance; k1, k2, lambda_value, variant "
        f"({', '.join(VARIANTS.names())}), inclusive, weights, mode",
        "Zhong et al., Re-ranking person re-identification with k-reciprocal encoding, CVPR 2017",
    )
)


def parse_rerank(spec: str | KReciprocal) -> KReciprocal:
    """Parse a re-ranking such as ``k_reciprocal(k1=20,k2=6,lambda_value=0.3,variant=zhong)``."""
    if isinstance(spec, KReciprocal):
        return spec
    calls = parse_spec("re-ranking", spec)
    if len(calls) > 1:
        raise InputError(f"one re-ranking at a time, found {spec!r}")
    RERANKERS.get(calls[0].name)
    known = [field.name for field in fields(KReciprocal)]
    values: dict[str, Any] = calls[0].values
    for name in values:
        if name not in known:
            raise InputError(did_you_mean("parameter of k_reciprocal", name, known))
    return KReciprocal(**values)
