"""Parameters that a sweep can go over: those of every expansion and re-ranking, with their help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypedDict

from reid_dist.evaluation.options import EvaluationOptions

Value = int | float | str
Values = Value | Sequence[Value]
"""Values of a parameter: one, several, or a text such as ``0:10``, ``0:1:0.1`` or ``1,6,10:30:10``."""

SWEPT_PARAMETERS: Final[Mapping[str, str]] = {
    "k": "Numbers of neighbours of an expansion; lengths of the lists of ecn.",
    "alpha": "Exponents of the similarities of an expansion.",
    "times": "Repetitions of fastreid.",
    "ridge": "Multiples of the identity of camera_norm.",
    "least_rows": "Gallery rows of a camera that has statistics of its own in camera_norm.",
    "dim": "Numbers of principal axes of whiten.",
    "beta1": "Divisors of similarities in the weights of gcr.",
    "beta2": "The same in the graph across cameras.",
    "scale": "Weights of the graph across cameras in gcr, 0 to 1.",
    "symmetric": "Whether weights of gcr are means of both directions: true, false.",
    "k1": "Neighbours that the graph of a re-ranking, or of gcr, is made from.",
    "k2": "Items whose rows are averaged or summed; neighbours across cameras of gcr.",
    "lambda_value": "Weights of the plain distance, 0 to 1.",
    "rounds": "Rounds of gnn and of gcr.",
    "t": "Nearest items that a neighbourhood of ecn begins with.",
    "q": "Nearest items of each of these.",
    "variant": "Variants of the re-ranking, as in `reid-dist list rerankers`.",
    "inclusive": "Whether k_reciprocal accepts an overlap of exactly two thirds: true, false.",
    "weights": "Kinds of weights of k_reciprocal: gaussian, binary.",
    "mode": "Modes of k_reciprocal: transductive, inductive.",
    "method": "Methods of ecn: rankdist, origdist.",
    "m": "Numbers of nearest gallery items that top re-ranks.",
    "weight": "Weights of the model of --fuse that is given without one, 0 to 1; swept alone.",
}


class _SweptValues(TypedDict, total=False):
    k: Values | None
    alpha: Values | None
    times: Values | None
    ridge: Values | None
    least_rows: Values | None
    dim: Values | None
    beta1: Values | None
    beta2: Values | None
    scale: Values | None
    symmetric: Values | None
    k1: Values | None
    k2: Values | None
    lambda_value: Values | None
    rounds: Values | None
    t: Values | None
    q: Values | None
    variant: Values | None
    inclusive: Values | None
    weights: Values | None
    mode: Values | None
    method: Values | None
    m: Values | None
    weight: Values | None


class SweepOptions(EvaluationOptions, _SweptValues, total=False):
    """Options of an evaluation, and values of swept parameters."""
