"""Definitions of what changes features before an evaluation: methods, steps and their parameters.

Query expansion and database-side augmentation average rows with their neighbours, graph convolution with weights of
both; normalisation by camera maps them with statistics of the gallery; treatments change each row by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.parameters import Parameter
from reid_dist.core.registry import Registry, unknown_name
from reid_dist.core.specs import call_text, parse_spec
from reid_dist.errors import InputError
from reid_dist.kernels.normalising import unit_rows
from reid_dist.stages.method_parameters import FROM_1, check_parameters, parameters_of
from reid_dist.stores.kept_rows import KEPT_DTYPES, convert_rows

Change = Callable[[NDArray[np.float32], int], NDArray[np.floating[Any]]]
"""New rows, (n, dim), of rows (n, dim), and the number of the first in its set."""


@dataclass(frozen=True)
class Method:
    """Definition of a method that changes features.

    Attributes
    ----------
    name, summary, source
        Texts for reports and lists.
    parameters
        Names of the parameters, with their defaults; None for a required one.
    expands_query, expands_gallery
        Whether the features of queries and of the gallery are replaced.
    kind
        Class of its steps; None for averages of rows with their neighbours (`Expansion`).
    among_all
        Whether the neighbours of an item are taken from queries and gallery together.
    unit
        Whether rows are scaled to length 1 before averaging, and the average after it.
    change
        What a treatment makes of rows; None for every other method.
    """

    name: str
    summary: str
    source: str
    parameters: dict[str, Any]
    expands_query: bool
    expands_gallery: bool
    kind: type[Normalisation | Whitening | Convolution | Treatment] | None = None
    among_all: bool = False
    unit: bool = True
    change: Change | None = None

    @property
    def declared(self) -> dict[str, Parameter]:
        """What the values of the parameters may be, by name."""
        known = parameters_of(self.kind or Expansion)
        return {name: known[name] for name in self.parameters}


EXPANSIONS: Registry[Method] = Registry("expansion")

EXPANSIONS.register(
    Method(
        name="aqe",
        summary="mean of the query and its k nearest gallery features, all of length 1; scaled to length 1",
        source="Chum et al., Total recall, ICCV 2007",
        parameters={"k": None, "include_self": False},
        expands_query=True,
        expands_gallery=False,
    )
)
EXPANSIONS.register(
    Method(
        name="alpha_qe",
        summary="the query with weight 1, its k nearest gallery features with weight max(s, 0)^alpha; of length 1",
        source="Radenović et al., Fine-tuning CNN image retrieval with no human annotation, TPAMI 2019",
        parameters={"k": None, "alpha": 3.0, "include_self": False},
        expands_query=True,
        expands_gallery=False,
    )
)
EXPANSIONS.register(
    Method(
        name="dba",
        summary="the same for every gallery item and its k nearest others in the gallery (weights 1 with alpha 0)",
        source="Arandjelović and Zisserman, Three things everyone should know, CVPR 2012",
        parameters={"k": None, "alpha": 0.0},
        expands_query=False,
        expands_gallery=True,
    )
)
EXPANSIONS.register(
    Method(
        name="fastreid",
        summary="every item of queries and gallery: sum of its k nearest, itself one of them, features as they are, "
        "weights max(s, 0)^alpha, divided by k; repeated",
        source="fast-reid, evaluation with AQE",
        parameters={"k": None, "alpha": 3.0, "times": 1},
        expands_query=True,
        expands_gallery=True,
        among_all=True,
        unit=False,
    )
)


@dataclass(frozen=True)
class _Step:
    """One step: a method, and its parameters as the fields of a subclass."""

    # Name of the `Method` in `EXPANSIONS`.
    name: str

    def __post_init__(self) -> None:
        EXPANSIONS.get(self.name)
        check_parameters(self)

    @property
    def method(self) -> Method:
        """Definition of the step's method."""
        return EXPANSIONS.get(self.name)

    @property
    def n_listed(self) -> int:
        """Length of the neighbour lists of the step, the item itself not counted; 0 without lists."""
        return 0

    @property
    def parameters(self) -> dict[str, Any]:
        """Values of the parameters of the method."""
        return {name: getattr(self, name) for name in self.method.parameters}

    def __str__(self) -> str:
        return call_text(self.name, self.parameters)


@dataclass(frozen=True)
class Expansion(_Step):
    """One expansion step: rows are averaged with their neighbours."""

    # Number of neighbours; 0 leaves features unchanged.
    k: int
    # Exponent of the similarities that weight the neighbours; 0 gives every neighbour the weight 1.
    alpha: float = 0.0
    # Whether queries are gallery rows, matched by item id, and count among the k.
    include_self: bool = False
    # Number of repetitions.
    times: int = 1

    @property
    def n_others(self) -> int:
        """Number of neighbours averaged, the item itself excluded."""
        return max(0, self.k - 1) if self.include_self or self.method.among_all else self.k

    @property
    def n_listed(self) -> int:
        """Number of neighbours listed."""
        return self.n_others

    def row_bytes(self, dim: int) -> int:
        """Bytes of the features of the neighbours that a new row is made of."""
        return 4 * dim * (self.n_others + 2)

    @property
    def changes_nothing(self) -> bool:
        """Whether the step leaves features unchanged, bit for bit."""
        return self.k == 0 or (self.method.unit and self.n_others == 0)

    @property
    def sets_lengths(self) -> bool:
        """Whether the step changes the lengths of rows."""
        return self.n_others > 0


class _RowStep(_Step):
    """A step that makes every new row from one row, so that queries stay comparable with a changed gallery."""

    times: ClassVar[int] = 1
    changes_nothing: ClassVar[bool] = False

    @property
    def sets_lengths(self) -> bool:
        """Whether the step changes the lengths of rows."""
        return True

    def row_bytes(self, dim: int) -> int:
        """Bytes of a row and of what it is made with."""
        return 24 * dim


@dataclass(frozen=True)
class Normalisation(_RowStep):
    """One normalisation step: rows are mapped with means and outer products of gallery rows."""

    # Multiple of the identity added to the mean outer product of rows.
    ridge: float
    # "all" for one statistic of all gallery rows.
    statistics: Literal["per_camera", "all"]
    # "centre" to subtract the mean alone.
    operation: Literal["whiten", "centre"]
    # Gallery rows of a camera below which its statistics are those of all rows.
    least_rows: int

    @property
    def whitens(self) -> bool:
        """Whether rows are multiplied by a matrix, besides a mean that is subtracted."""
        return self.operation == "whiten"


@dataclass(frozen=True)
class Whitening(_RowStep):
    """One whitening step: rows are projected on principal axes, each scaled to variance 1."""

    whitens: ClassVar[bool] = True

    # Number of axes, those of largest variance; "all" for as many as there are features.
    dim: int | Literal["all"]
    # Store of the rows that the axes are learned from; "gallery" for the gallery.
    on: str


EXPANSIONS.register(
    Method(
        name="camera_norm",
        summary="rows of length 1, minus the mean of their camera's gallery rows, times the inverse of X'X + n ridge I "
        "over these n rows X, which are not centred; scaled to length 1; rows of a camera with fewer than least_rows "
        "gallery rows take mean and inverse of all gallery rows, as rows of unknown camera (-1) do",
        source="vimar-gu/Bias-Eliminate-DA-ReID utils/reid_metric.py, compute_P2 and meanfeat_sub (ridge 0.02); "
        "WesleyZhang1991/GCN_rerank gcrv.py, compute_P2 (ridge 10)",
        parameters={"ridge": 10.0, "statistics": "per_camera", "operation": "whiten", "least_rows": 100},
        expands_query=True,
        expands_gallery=True,
        kind=Normalisation,
    )
)
EXPANSIONS.register(
    Method(
        name="whiten",
        summary="rows of length 1, minus the mean, projected on the dim principal axes of largest variance, each "
        "divided by the square root of its variance; scaled to length 1",
        source="Jégou and Chum, ECCV 2012; filipradenovic/cnnimageretrieval-pytorch cirtorch/utils/whiten.py, "
        "pcawhitenlearn",
        parameters={"dim": "all", "on": "gallery"},
        expands_query=True,
        expands_gallery=True,
        kind=Whitening,
    )
)


@dataclass(frozen=True)
class Treatment(_RowStep):
    """One step that changes every row without anything learned; it has no parameters."""

    @property
    def sets_lengths(self) -> bool:
        """Whether the step changes the lengths of rows, but for rounding."""
        return self.method.unit

    def change(self, rows: NDArray[np.float32], first: int) -> NDArray[np.float32]:
        """New rows, (n, dim), of rows from number `first` on; InputError for values that have no place in them."""
        if self.method.change is None:
            raise AssertionError("a treatment has a change")
        return self.method.change(rows, first).astype(np.float32)


LENGTH_1 = "l2"

EXPANSIONS.register(
    Method(
        name=LENGTH_1,
        summary="rows scaled to length 1; a zero row stays zero",
        source="torch.nn.functional.normalize before the distances, as fast-reid, OML and others have it",
        parameters={},
        expands_query=True,
        expands_gallery=True,
        kind=Treatment,
        change=lambda rows, _: unit_rows(rows),
    )
)
EXPANSIONS.register(
    Method(
        name="float16",
        summary="features rounded to half precision, as a store of dtype float16 holds them",
        source="IEEE 754 binary16; features saved after `half()` or under autocast",
        parameters={},
        expands_query=True,
        expands_gallery=True,
        kind=Treatment,
        unit=False,
        change=lambda rows, first: convert_rows(rows, KEPT_DTYPES["float16"], first),
    )
)
EXPANSIONS.register(
    Method(
        name="flip_sign",
        summary="gallery features times -1: rows of one length rank from the farthest to the nearest",
        source="a mistake: similarities that are sorted as distances, or distances as similarities",
        parameters={},
        expands_query=False,
        expands_gallery=True,
        kind=Treatment,
        unit=False,
        change=lambda rows, _: -rows,
    )
)


@dataclass(frozen=True)
class Convolution(_Step):
    """One step of graph convolution: rows are averaged over a graph of all items and one across cameras."""

    changes_nothing: ClassVar[bool] = False
    sets_lengths: ClassVar[bool] = True

    # Lengths of the lists of both graphs, the item itself counted.
    k1: int
    k2: int
    # Divisors of the similarities in the exponents of the weights.
    beta1: float
    beta2: float
    # Weight of the graph across cameras.
    scale: float
    # Number of repetitions.
    rounds: Annotated[int, Parameter(limits=FROM_1)]
    # Whether weights are means of those of both directions.
    symmetric: bool

    @property
    def times(self) -> int:
        """Number of repetitions."""
        return self.rounds

    def row_bytes(self, dim: int) -> int:
        """Bytes of the sums that a new row is made of."""
        return 16 * dim

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """Graphs of a weight above 0."""
        both = Graph(self.k1, self.beta1, 1.0 - self.scale, None), Graph(self.k2, self.beta2, self.scale, "camid")
        return tuple(graph for graph in both if graph.share > 0)

    @property
    def n_listed(self) -> int:
        """Length of the longer lists, the item itself not counted."""
        return max(graph.k for graph in self.graphs) - 1


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of nearest items: length of the lists, divisor of similarities, weight, and label that is left out."""

    k: int
    beta: float
    share: float
    exclude: str | None


EXPANSIONS.register(
    Method(
        name="gcr",
        summary="per round, queries and gallery together: unit(scale L2 x + (1 - scale) L1 x), rows x of length 1; "
        "S_ij = exp(cos / beta) at the k nearest j of i, i itself first, L = S divided by the roots of its row and "
        "column sums; L1 of k1 and beta1, L2 of k2 and beta2 without items of i's camera, "
        "if it is known; symmetric: S + S' for S",
        source="Zhang et al., Graph convolution based efficient re-ranking for visual retrieval, IEEE TMM 2023; "
        "WesleyZhang1991/GCN_rerank gcrv.py, mergesetfeat4 (nonsym, sym), with the settings for Market-1501",
        parameters={
            "k1": 15,
            "k2": 3,
            "beta1": 0.2,
            "beta2": 0.2,
            "scale": 0.3,
            "rounds": 3,
            "symmetric": False,
        },
        expands_query=True,
        expands_gallery=True,
        kind=Convolution,
        among_all=True,
    )
)

LearnedMap = Normalisation | Whitening
"""Steps that map rows with statistics that are learned before."""

Step = Expansion | LearnedMap | Convolution | Treatment

TREATMENTS: tuple[str, ...] = tuple(method.name for method in EXPANSIONS if method.kind is Treatment)
"""Names of the treatments."""


def parse_expand(spec: str | Sequence[Step]) -> tuple[Step, ...]:
    """Parse an expansion such as ``alpha_qe(k=5,alpha=3)`` or ``dba(k=5)+aqe(k=3)``, applied from left to right.

    Refuses a change of the gallery after the queries were expanded.
    """
    calls = parse_spec("expansion", spec) if isinstance(spec, str) else []
    steps = tuple(make_step(call.name, call.values) for call in calls) if isinstance(spec, str) else tuple(spec)
    expanded = None
    for step in steps:
        if step.method.expands_gallery and not step.method.among_all and expanded is not None:
            raise InputError(
                f"{step.name} after {expanded} would change the gallery that queries were expanded from; put "
                f"{step.name} first"
            )
        if step.method.expands_query and not isinstance(step, _RowStep):
            expanded = step.name
    return steps


def make_step(name: str, values: Mapping[str, Any]) -> Step:
    """Make a step from a method name and parameter values, with defaults for the rest."""
    method = EXPANSIONS.get(name)
    parameters = method.parameters
    for given in values:
        if given not in parameters:
            raise unknown_name(f"parameter of {name}", given, parameters)
    if method.kind is None and "k" not in values:
        raise InputError(f"{name} needs the number of neighbours, such as {name}(k=5)")
    chosen = {name: value for name, value in parameters.items() if value is not None} | {**values}
    return (method.kind or Expansion)(name, **chosen)


def spelled(steps: Sequence[Step]) -> str:
    """Spec of a sequence of steps, with every parameter."""
    return "+".join(map(str, steps))


def describe_expansion(steps: Sequence[Step]) -> dict[str, str]:
    """Report entries of a sequence of steps: spec with every parameter, definitions and sources."""
    return {
        "name": spelled(steps),
        "definition": "; then ".join(f"{step.name}: {step.method.summary}" for step in steps),
        "source": "; ".join(dict.fromkeys(step.method.source for step in steps)),
    }
