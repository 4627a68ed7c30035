"""Parameters of methods, re-rankings and expansions: limits and words, once under each name.

A method has its parameters as fields of a dataclass, with their types and defaults.  Specs, checks, the keywords and
the help of a sweep read them from there and from here.  Help reads this module, so it imports no stage.

Annotations are evaluated at run time, so this module does without postponed ones.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Final, TypedDict, get_type_hints

from reid_dist.core.parameters import Parameter, check_values, declared_keys
from reid_dist.core.specs import Value

Values = Value | Sequence[Value]
"""Values of a parameter: one, several, or a text such as ``0:10``, ``0:1:0.1`` or ``1,6,10:30:10``."""

FROM_0: Final = (0, math.inf)
FROM_1: Final = (1, math.inf)


class SweptValues(TypedDict, total=False):
    """Values of swept parameters by name; limits and words are those of one value."""

    k: Annotated[
        Values | None,
        Parameter(limits=FROM_0, help="Numbers of neighbours of an expansion; list lengths of ecn."),
    ]
    alpha: Annotated[Values | None, Parameter(limits=FROM_0, help="Exponents of the similarities of an expansion.")]
    times: Annotated[Values | None, Parameter(limits=FROM_1, help="Repetitions of fastreid.")]
    # Rows have length 1: with the least ridge, no matrix is singular to the precision of float64.
    ridge: Annotated[
        Values | None, Parameter(limits=(1e-9, 1e9), help="Ridge (multiple of the identity matrix) of camera_norm.")
    ]
    least_rows: Annotated[
        Values | None,
        Parameter(
            limits=FROM_1, help="Fewest gallery rows for which camera_norm estimates the statistics of a camera."
        ),
    ]
    dim: Annotated[Values | None, Parameter(limits=FROM_1, help="Numbers of principal axes of whiten.")]
    beta1: Annotated[Values | None, Parameter(limits=(1e-6, 1e6), help="Temperatures of the weights in the gcr graph.")]
    beta2: Annotated[
        Values | None,
        Parameter(limits=(1e-6, 1e6), help="Temperatures of the weights in the cross-camera graph of gcr."),
    ]
    scale: Annotated[Values | None, Parameter(limits=(0, 1), help="Weights of the cross-camera graph in gcr, 0 to 1.")]
    symmetric: Annotated[
        Values | None, Parameter(help="Whether gcr averages the weights of both directions: true, false.")
    ]
    k1: Annotated[
        Values | None,
        Parameter(limits=FROM_1, help="Neighbours per item in the graph of a re-ranking or of gcr."),
    ]
    k2: Annotated[
        Values | None,
        Parameter(
            limits=FROM_1,
            help="Neighbours whose rows are averaged or summed; neighbours in the cross-camera graph of gcr.",
        ),
    ]
    lambda_value: Annotated[Values | None, Parameter(limits=(0, 1), help="Weights of the plain distance, 0 to 1.")]
    rounds: Annotated[Values | None, Parameter(limits=FROM_0, help="Rounds of gnn and of gcr.")]
    t: Annotated[Values | None, Parameter(limits=FROM_1, help="Nearest items with which an ecn neighbourhood starts.")]
    q: Annotated[Values | None, Parameter(limits=FROM_0, help="Nearest neighbours of each of those items (ecn).")]
    variant: Annotated[Values | None, Parameter(help="Variants of the re-ranking, as in `reid-dist list rerankers`.")]
    inclusive: Annotated[
        Values | None,
        Parameter(help="Whether k_reciprocal accepts an overlap of exactly two thirds: true, false."),
    ]
    weights: Annotated[Values | None, Parameter(help="Kinds of weights of k_reciprocal: gaussian, binary.")]
    mode: Annotated[Values | None, Parameter(help="Modes of k_reciprocal: transductive, inductive.")]
    method: Annotated[Values | None, Parameter(help="Methods of ecn: rankdist, origdist.")]
    m: Annotated[Values | None, Parameter(limits=FROM_1, help="Numbers of nearest gallery items that top re-ranks.")]
    weight: Annotated[
        Values | None,
        Parameter(
            limits=(0, 1), help="Weights of a --fuse model given without a weight, 0 to 1; cannot be swept with others."
        ),
    ]


SWEPT_PARAMETERS: Final = declared_keys(SweptValues, Parameter)
"""Limits and words of the parameters that have a keyword in a sweep, by name."""


def parameters_of(method: type) -> Mapping[str, Parameter]:
    """Parameters of a method by name: the fields of its class.

    A field with limits of its own is annotated with a `Parameter`.
    """
    found = {}
    hints = get_type_hints(method, include_extras=True)
    for field in fields(method):
        given = hints[field.name]
        own = [each for each in getattr(given, "__metadata__", ()) if isinstance(each, Parameter)]
        (declared,) = own or [SWEPT_PARAMETERS.get(field.name, Parameter())]
        found[field.name] = declared.of_type(field.name, given.__origin__ if own else given)
    return {name: each for name, each in found.items() if each.form != "any"}


def check_parameters(method: Any) -> None:
    """Check the parameters of a method, whose class is a frozen dataclass, and leave them as plain Python values."""
    declared = parameters_of(type(method))
    given = {name: getattr(method, name) for name in declared}
    for name, value in check_values(declared, given, of=f" of {method.name}").items():
        object.__setattr__(method, name, value)
