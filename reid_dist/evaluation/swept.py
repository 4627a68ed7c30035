"""Parameters that a sweep can go over: those of every expansion and re-ranking, with their help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, TypedDict, get_type_hints

from reid_dist.evaluation.options import EvaluationOptions

Value = int | float | str
Values = Value | Sequence[Value]
"""Values of a parameter: one, several, or a text such as ``0:10``, ``0:1:0.1`` or ``1,6,10:30:10``."""


class _SweptValues(TypedDict, total=False):
    k: Annotated[Values | None, "Numbers of neighbours of an expansion; lengths of the lists of ecn."]
    alpha: Annotated[Values | None, "Exponents of the similarities of an expansion."]
    times: Annotated[Values | None, "Repetitions of fastreid."]
    ridge: Annotated[Values | None, "Multiples of the identity of camera_norm."]
    least_rows: Annotated[Values | None, "Gallery rows of a camera that has statistics of its own in camera_norm."]
    dim: Annotated[Values | None, "Numbers of principal axes of whiten."]
    beta1: Annotated[Values | None, "Divisors of similarities in the weights of gcr."]
    beta2: Annotated[Values | None, "The same in the graph across cameras."]
    scale: Annotated[Values | None, "Weights of the graph across cameras in gcr, 0 to 1."]
    symmetric: Annotated[Values | None, "Whether weights of gcr are means of both directions: true, false."]
    k1: Annotated[Values | None, "Neighbours that the graph of a re-ranking, or of gcr, is made from."]
    k2: Annotated[Values | None, "Items whose rows are averaged or summed; neighbours across cameras of gcr."]
    lambda_value: Annotated[Values | None, "Weights of the plain distance, 0 to 1."]
    rounds: Annotated[Values | None, "Rounds of gnn and of gcr."]
    t: Annotated[Values | None, "Nearest items that a neighbourhood of ecn begins with."]
    q: Annotated[Values | None, "Nearest items of each of these."]
    variant: Annotated[Values | None, "Variants of the re-ranking, as in `reid-dist list rerankers`."]
    inclusive: Annotated[Values | None, "Whether k_reciprocal accepts an overlap of exactly two thirds: true, false."]
    weights: Annotated[Values | None, "Kinds of weights of k_reciprocal: gaussian, binary."]
    mode: Annotated[Values | None, "Modes of k_reciprocal: transductive, inductive."]
    method: Annotated[Values | None, "Methods of ecn: rankdist, origdist."]
    m: Annotated[Values | None, "Numbers of nearest gallery items that top re-ranks."]
    weight: Annotated[Values | None, "Weights of the model of --fuse that is given without one, 0 to 1; swept alone."]


SWEPT_PARAMETERS: Final[Mapping[str, str]] = {
    name: text
    for name, values in get_type_hints(_SweptValues, include_extras=True).items()
    for text in values.__metadata__
}
"""What the values of each swept parameter are, by its name."""


class SweepOptions(EvaluationOptions, _SweptValues, total=False):
    """Options of an evaluation, and values of swept parameters."""
