"""Evaluation options: type, default, limits and help text, each written once.

Keyword arguments of the public functions, command-line options, fields of pipeline files, checks and the identity of a
run derive from `EvaluationOptions`.  An addition is one annotated key of it.

Annotations are evaluated at run time, so this module does without postponed ones.  It imports the standard library
alone: ``--help`` reads it, and classes of other modules are forward references.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypedDict, cast

from reid_dist.core.parameters import Parameter, check_values, declared_keys
from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.stages.method_parameters import SweptValues

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

    from reid_dist.relevance.ground_truth import GroundTruth
    from reid_dist.relevance.protocols import Protocol
    from reid_dist.stages.expansion.expansion_steps import Step
    from reid_dist.stages.reranking.rerankers import Reranking
    from reid_dist.stores.importers.row_lists import SplitSource

PROTOCOLS: Final = (
    *("market1501", "market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "no_cameras", "same_set"),
    *("oxford", "revisitop_easy", "revisitop_medium", "revisitop_hard"),
)
DISTANCES: Final = ("cosine", "euclidean", "sqeuclidean")
"""Names of the registries, written out: help imports none of them."""

LISTS: Final = "lists"
SPLITS: Final = "splits"
SWEEP: Final = "sweep"
POINTS: Final = "points"
"""Evaluations that do not compute every option."""

Source = Sequence[Mapping[str, Any]] | Mapping[Any, Mapping[str, Any]] | str | PathLike[str]
"""What a ground truth is read from; see `reid_dist.relevance.ground_truth.read_ground_truth`."""

Heading = Literal["Inputs", "Draw", "Conventions", "Outputs", "Resources"]

COUNT: Final = (1, 2**31 - 1)
"""Limits of a number of rows, ranks or draws."""


@dataclass(frozen=True, kw_only=True)
class Option(Parameter):
    """A parameter of an evaluation: everything about it but its name and type.

    `help` is the text of the command line, `doc` that of docstrings (None for the same).  `recorded` options are listed
    among the ``options`` of a report; others have an entry of their own, or no effect on results.  `refused_by` are the
    evaluations that do not compute it.
    """

    default: Any
    doc: str | None = None
    heading: Heading = "Outputs"
    metavar: str | None = None
    recorded: bool = True
    refused_by: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """Spelling on the command line: a repeatable option is in the singular, one that switches off has ``no``."""
        name = self.name.replace("_", "-")
        return f"--{'no-' * self.switches_off}{name.removesuffix('s') if self.is_repeatable else name}"

    @property
    def switches_off(self) -> bool:
        """Whether the command line has a flag for False."""
        return self.form == "flag" and self.default is True

    @property
    def is_repeatable(self) -> bool:
        """Whether the command line takes it several times."""
        return self.form in ("names", "numbers")

    def is_set(self, value: Any) -> bool:
        """Whether a value differs from the default; None and an empty sequence mean the same."""
        # As texts: the default may come as a value of NumPy, and the value may be anything.
        return requests(value) and (self.is_repeatable or str(value) != str(self.default))


_convention = partial(Option, heading="Conventions")
_input = partial(Option, heading="Inputs")
_draw = partial(Option, heading="Draw")
# Of one run alone.
_extra = partial(Option, refused_by=(LISTS, SPLITS, SWEEP, POINTS))


def requests(value: Any) -> bool:
    """Whether a value of an option requests anything: None, False and an empty sequence do not."""
    if value is None:
        return False
    return len(value) > 0 if hasattr(value, "__len__") else bool(value)


class _Conventions(TypedDict, total=False):
    protocol: Annotated[
        "str | Protocol",
        _convention(
            default="market1501",
            metavar="NAME",
            recorded=False,
            help=f"Which items are relevant and which are junk: {', '.join(PROTOCOLS)}; see `reid-dist list "
            "protocols`.",
            doc="Which items are relevant and which are junk: a name from `reid-dist list protocols`, or a "
            "`reid_dist.relevance.protocols.Protocol` made by `compose_protocol`.",
        ),
    ]
    metrics: Annotated[
        str | Sequence[str] | None,
        _convention(
            default=None,
            metavar="NAME",
            refused_by=(POINTS,),
            help="mAP, CMC@10 (or rank-10), TAR@FAR=1e-3, …; repeatable, or separated by commas; see `reid-dist list "
            "metrics`. Default: mAP, mINP, the protocol's AP and CMC@1, 5, 10. Asking only for metrics at k is faster.",
            doc='Names such as ``"mAP"`` or ``"CMC@10"`` (also written ``"rank-10"``, ``"R10"``, ``"top-10"``, '
            '``"hit@10"``), or one string separated by commas.  None for mAP, mINP, the protocol\'s own AP and its CMC '
            "at 1, 5, 10.  If you ask only for metrics at k and MRR, only the nearest positives are ranked, and "
            "queries have no AP and INP.",
        ),
    ]
    max_rank: Annotated[
        int,
        _convention(
            default=50,
            limits=COUNT,
            refused_by=(POINTS,),
            help="Last rank shown in the CMC and other curves.",
        ),
    ]
    collapse: Annotated[
        str | None,
        _convention(
            default=None,
            metavar="LABEL",
            recorded=False,
            refused_by=(LISTS, POINTS),
            help="Rank groups of gallery items that share a label instead of single items: pid, camid or a label "
            "column. A group ranks where its nearest kept item does. CMC:pid does so only for the CMC.",
            doc='Rank groups of gallery items that share a label instead of single items: ``"pid"``, ``"camid"`` or a '
            "label column of the gallery.  A group ranks where its nearest kept item does, and is relevant if any kept "
            'item is.  ``"CMC:pid"`` does so only for the CMC (SYSU-MM01, LLCM).  None follows the protocol, which '
            "ranks items unless it has a ``collapse``.",
        ),
    ]
    ground_truth: Annotated[
        "Source | GroundTruth | None",
        _input(
            default=None,
            metavar="FILE",
            recorded=False,
            refused_by=(SPLITS,),
            help="Ground truth for oxford and revisitop: JSON, or a directory of Oxford text files.",
            doc="Lists of gallery rows per query, for protocols that use lists; see "
            "`reid_dist.relevance.ground_truth.read_ground_truth`.",
        ),
    ]


class _OfFeatures(TypedDict, total=False):
    distance: Annotated[
        str,
        _convention(
            default="cosine",
            metavar=f"[{'|'.join(DISTANCES)}]",
            recorded=False,
            help="Distance; see `reid-dist list distances`.",
            doc="A name from `reid-dist list distances`.",
        ),
    ]
    expand: Annotated[
        "str | Sequence[Step] | None",
        _convention(
            default=None,
            metavar="SPEC",
            recorded=False,
            help="Expand queries or gallery first, such as 'alpha_qe(k=5,alpha=3)' or 'dba(k=5)+aqe(k=3)'; see "
            "`reid-dist list expansions`.",
            doc='Query expansion or gallery augmentation, applied first, such as ``"alpha_qe(k=5,alpha=3)"`` or '
            '``"dba(k=5)+aqe(k=3)"``.  Under a Euclidean distance, an expansion that gives rows of length 1 on only '
            "one side is refused, unless the rows of the other side already have length 1.",
        ),
    ]
    rerank: Annotated[
        "str | Reranking | None",
        _convention(
            default=None,
            metavar="SPEC",
            recorded=False,
            help="Rank by a re-ranked distance, such as 'k_reciprocal(k1=20,k2=6)' or 'top(gnn,m=1000)'; see "
            "`reid-dist list rerankers`.",
            doc="Rank by a re-ranked distance, such as "
            '``"k_reciprocal(k1=20,k2=6,lambda_value=0.3,variant=zhong)"``; ``"top(gnn,m=1000)"`` re-ranks only the '
            "nearest items of each query.",
        ),
    ]
    against_plain: Annotated[
        bool,
        Option(
            default=False,
            refused_by=(SPLITS, SWEEP, POINTS),
            help="Also rank without --rerank and, if --expand is given, without both; report how AP and CMC@1 change, "
            "with paired intervals.",
            doc="Also rank without the re-ranking (and without the expansion), and report how the protocol's AP and "
            "CMC@1 change, with paired intervals over identities.",
        ),
    ]


class _Outputs(TypedDict, total=False):
    topk: Annotated[
        int | None,
        _extra(
            default=None,
            metavar="K",
            limits=COUNT,
            help="Write the K nearest items of every query to DIR (topk.npz).",
            doc="Number of nearest gallery items to list for every query; junk is included and flagged.  None writes "
            "no lists.",
        ),
    ]
    ties: Annotated[
        bool,
        _extra(
            default=False,
            help="Also give optimistic and pessimistic values under ties.",
            doc="Also give optimistic and pessimistic values of every rank metric: all ties resolved for, and "
            "against, the relevant items.",
        ),
    ]
    breakdowns: Annotated[
        Sequence[str] | None,
        _extra(
            default=(),
            metavar="NAME",
            help="Break results down by camera, camera_pair, identity, gallery_size, or a label column; repeatable.",
            doc='Tables to add: ``"camera"``, ``"camera_pair"``, ``"identity"``, ``"gallery_size"``, or label columns '
            "of the "
            "query set; None for none.",
        ),
    ]
    gallery_sizes: Annotated[
        Sequence[float] | None,
        _extra(
            default=None,
            help="Gallery size in the distractor curve: rows, or a share such as 0.5; repeatable. Default: ten steps.",
            doc="Sizes of the distractor curve, as numbers of rows or as shares up to 1.0; None for ten equal steps.",
        ),
    ]
    gallery_order: Annotated[
        Literal["stored", "random"],
        _extra(
            default="stored",
            help="Order in which gallery rows are added in the distractor curve.",
            doc='Order in which gallery rows are added in the distractor curve: ``"stored"``, or ``"random"``, which '
            "depends only on the seed.",
        ),
    ]
    single_shot_draws: Annotated[
        int | None,
        _convention(
            default=None,
            limits=COUNT,
            refused_by=(LISTS, POINTS),
            help="Estimate the single-shot CMC from N draws instead of the exact expectation.",
            doc="Estimate the single-shot CMC from this many seeded draws per query; None for the exact expectation.",
        ),
    ]
    roc: Annotated[
        bool,
        _extra(
            default=False,
            help="Also give the ROC at fixed false accept rates.",
            doc="Also give the ROC at fixed false accept rates, each point exact.",
        ),
    ]
    confidence: Annotated[
        float | None,
        Option(
            default=0.95,
            metavar="LEVEL",
            limits=(0, 1),
            exclusive=True,
            refused_by=(SPLITS, SWEEP),
            help="Confidence level of the bootstrap intervals; intervals of EER take one more pass.",
            doc="Confidence level of the bootstrap intervals of all means (by identity); None for no intervals.  "
            "Intervals of EER take one more pass over all pairs.",
        ),
    ]
    seed: Annotated[
        int,
        Option(
            default=0,
            limits=(0, 2**64 - 1),
            help="Random seed for draws, orderings and intervals.",
            doc="Random seed for draws, orderings and intervals, 0 to 2**64 - 1.",
        ),
    ]
    chunk_rows: Annotated[
        int | None,
        Option(
            default=None,
            heading="Resources",
            limits=COUNT,
            recorded=False,
            help="Rows per tile. Results do not depend on it.",
            doc="Tile size in rows, on both sides; None chooses automatically.  Results do not depend on it.",
        ),
    ]


class RankingOptions(_Conventions, _Outputs, total=False):
    """Options of an evaluation whose ranking is given, as distances or as lists."""


class EvaluationOptions(_Conventions, _OfFeatures, _Outputs, total=False):
    """Options of an evaluation of features."""


class Published(TypedDict, total=False):
    """The benchmark whose rules an evaluation follows."""

    benchmark: Annotated[
        str | None,
        _convention(
            default=None,
            metavar="NAME",
            refused_by=(SWEEP,),
            help="Evaluate as published: one name sets protocol, cameras, draws and metrics; see `reid-dist list "
            "benchmarks`.",
            doc="A published evaluation by a name from `reid-dist list benchmarks`: its protocol, collapse, draws and "
            "metrics.  Options that contradict it are refused.",
        ),
    ]
    other_codes: Annotated[
        bool,
        _convention(
            default=False,
            refused_by=(SWEEP,),
            help="Also run other published implementations of the benchmark that rank groups or draw galleries. Each "
            "takes a separate run.",
            doc="Also give the numbers of other published implementations that rank groups or draw galleries; each "
            "takes a separate run.  Numbers of implementations that rank single items come from the same pass and are "
            "always given.",
        ),
    ]


class JobOptions(EvaluationOptions, Published, total=False):
    """Options of a job on the command line or in a pipeline file."""

    fuse: Annotated[
        Sequence[str] | None,
        _input(
            default=(),
            metavar="STORE:WEIGHT",
            recorded=False,
            help="Another model's features of the same items: cosine = (1 - WEIGHT) own + WEIGHT other. STORE holds "
            "both sides, or is QUERY,GALLERY; repeatable.",
            doc="Further models of the same items, ``STORE:WEIGHT`` or ``QUERY,GALLERY:WEIGHT``: cosines are weighted "
            "means, and query and gallery have the remaining weight.  STORE holds both sides.",
        ),
    ]
    exclude: Annotated[
        Sequence[str] | None,
        _input(
            default=(),
            metavar="FILE",
            recorded=False,
            refused_by=(LISTS,),
            help="Leave out the rows that FILE lists by item id, image path or row number from 0. FILE is a .csv, "
            "a .npy, or text with one entry per line. A first line 'row', 'item_id' or 'image_path' says what the "
            "entries are. With two sides, a .csv can have a column 'side'. Repeatable.",
            doc="Lists of rows to leave out of both sides; see `reid_dist.stores.importers.exclusion`.",
        ),
    ]
    drop_duplicates: Annotated[
        Literal["item_ids", "image_paths", "features"] | None,
        _input(
            default=None,
            recorded=False,
            refused_by=(LISTS,),
            help="Keep the first row of every item id or image path, or of bit-identical features, on each side, and "
            "leave out its repeats.",
            doc="Keep the first row of every item id or image path, or of bit-identical features, on each side.",
        ),
    ]
    left_out: Annotated[
        str | None,
        _input(
            default=None,
            metavar="FILE",
            recorded=False,
            refused_by=(LISTS,),
            help="Write a CSV of all rows that --exclude and --drop-duplicates leave out, and of entries that match "
            "no row.",
            doc="CSV file to write, with all rows that ``exclude`` and ``drop_duplicates`` leave out and all entries "
            "that match no row.",
        ),
    ]
    pictures: Annotated[
        Sequence[int] | Literal["hardest"] | None,
        Option(
            default=None,
            refused_by=(LISTS, SPLITS, SWEEP),
            metavar="ROWS",
            help="Show ranked pictures of the hardest queries ('hardest'), or of the hardest queries and the given "
            "query rows, such as 3,17. Needs --topk.",
            doc="Show ranked pictures of the hardest queries, and of the query rows given here.",
        ),
    ]
    image_root: Annotated[
        str | None,
        _input(
            default=None,
            refused_by=(LISTS, SPLITS, SWEEP),
            metavar="DIR",
            help="Base directory of the picture paths. Default: the current one.",
            doc="Base directory of relative image paths.",
        ),
    ]
    distances: Annotated[
        str | None,
        _input(
            default=None,
            refused_by=(LISTS, SPLITS, SWEEP),
            metavar="FILE",
            help="Evaluate this .npy matrix (memory-mapped); QUERY and GALLERY only provide labels.",
            doc="A .npy matrix of distances to evaluate instead of features, or another file that holds one matrix.",
        ),
    ]
    similarity: Annotated[
        bool,
        _input(
            default=False,
            refused_by=(LISTS, SPLITS, SWEEP),
            help="Larger values of --distances are nearer.",
            doc="Whether larger values of ``distances`` are nearer.",
        ),
    ]
    lists: Annotated[
        str | None,
        _input(
            default=None,
            refused_by=(SPLITS, SWEEP),
            metavar="FILE",
            help="Evaluate this .npz of top-k lists (index, distance); QUERY and GALLERY only provide labels.",
            doc="A .npz of top-k lists to evaluate instead of features.",
        ),
    ]


class SplitOptions(TypedDict, total=False):
    """Where the galleries of an evaluation over several splits come from."""

    repeats: Annotated[
        int | None,
        _draw(
            default=None,
            limits=COUNT,
            help="Number of splits. Default: 10, or all of --rows.",
            doc="Number of splits; None for ten draws, or for all of a list.",
        ),
    ]
    per_identity: Annotated[
        int | None,
        _draw(
            default=None,
            limits=COUNT,
            help="Rows to keep of every gallery identity. Default: 1. With --rows, only for rand_perm_cam.mat.",
            doc="Number of rows that a split keeps of every gallery identity; if there are fewer, all are kept and a "
            "note says so.  None for 1.",
        ),
    ]
    per_camera: Annotated[
        bool,
        _draw(
            default=False,
            help="Keep that many rows of every identity in every camera.",
            doc="Keep that many rows of every identity in every camera, as SYSU-MM01 does.",
        ),
    ]
    rest_as_queries: Annotated[
        bool,
        _draw(
            default=False,
            help="Use all other rows as queries; give one set twice.",
            doc="Use the rows that a split does not keep as its queries, as VehicleID does; `query` is then the "
            "gallery, too.",
        ),
    ]
    of_queries: Annotated[
        bool,
        _draw(
            default=False,
            help="Draw the queries instead, against the whole gallery.",
            doc="Draw the queries instead of the gallery, and use the whole gallery.",
        ),
    ]
    rows: Annotated[
        "SplitSource | None",
        _draw(
            default=None,
            metavar="FILE",
            help="Take the rows of every split from FILE instead of drawing them: JSON, .npz, or rand_perm_cam.mat of "
            "SYSU-MM01.",
            doc="Rows of every split, instead of random draws; see `reid_dist.stores.importers.row_lists`.",
        ),
    ]
    by: Annotated[
        Literal["rows", "item_ids", "image_paths"],
        _draw(
            default="rows",
            help="How --rows names rows; numbers start at 0.",
            doc="How `rows` names rows: by number from 0, or by name.",
        ),
    ]


class SplitEvaluationOptions(Published, SplitOptions, EvaluationOptions, total=False):
    """Options of an evaluation over several splits."""


class PoolOptions(TypedDict, total=False):
    """Options of pooling, in the order in which a pooled store records them."""

    by: Annotated[
        str,
        _convention(
            default="tracklet",
            metavar="LABEL",
            help="Pool rows that share this label: a label column, pid_camid (identity and camera), or item_id.",
            doc="Name of the label, as in `reid_dist.stages.row_groups.group_rows`.",
        ),
    ]
    media: Annotated[
        str | None,
        _convention(
            default=None,
            metavar="LABEL",
            help="Label column within a group: average rows that share its value first, then average these means "
            "(IJB-C templates).",
            doc="A label column within the groups.  Rows that share its value are averaged first, and the group is "
            "the mean of these means, so each medium has the same weight, as in templates of IJB-B and IJB-C.  None "
            "gives every row the same weight.",
        ),
    ]
    method: Annotated[
        str,
        _convention(
            default="mean",
            metavar="[mean|max]",
            help="How rows are pooled; see `reid-dist list poolings`.",
            doc='``"mean"``, or ``"max"`` for the largest value of each dimension.',
        ),
    ]
    normalise: Annotated[
        bool,
        _convention(
            default=True,
            help="Keep the pooled rows as they are. By default they are scaled to length 1.",
            doc="Scale every pooled row to length 1.",
        ),
    ]
    normalise_rows: Annotated[
        bool,
        _convention(
            default=False,
            help="Scale every row to length 1 before it is pooled.",
            doc="Scale every row to length 1.",
        ),
    ]
    camids: Annotated[
        Literal["keep", "drop"],
        _convention(
            default="keep",
            help="Drop the camera label, so that rows of several cameras can be pooled.",
            doc='``"keep"`` refuses groups with several cameras; ``"drop"`` drops the cameras from the pooled set.',
        ),
    ]
    allow_zero: Annotated[
        bool,
        _convention(
            default=False,
            recorded=False,
            help="Keep zero vectors; otherwise they are refused.",
            doc="Keep pooled rows of zeros, and leave rows of zeros unchanged under `normalise_rows`; otherwise both "
            "are refused.  Recorded in the pooled set.",
        ),
    ]
    dtype: Annotated[
        "DTypeLike",
        Option(
            default="float32",
            metavar="[float32|float16]",
            recorded=False,
            help="Type of the pooled rows.",
            doc='Stored dtype of the pooled rows: ``"float32"`` or ``"float16"``.  The default stores float32 for a '
            "float16 source as well, because the mean of many rows is more precise.",
        ),
    ]


class SweepOptions(EvaluationOptions, SweptValues, total=False):
    """Options of an evaluation, and values of swept parameters."""


def option_table(keys: type) -> dict[str, Option]:
    """Options of a TypedDict by name; protocol and distance first, as in the heading of a report."""
    declared = declared_keys(keys, Option)
    names = dict.fromkeys([name for name in ("protocol", "distance") if name in declared]) | declared
    # The type of a key may be a forward reference.
    return {
        name: replace(declared[name], optional=declared[name].optional or declared[name].default is None)
        for name in names
    }


OPTIONS: Final = option_table(EvaluationOptions)
"""Options of `reid_dist.evaluate` by name, in the order of help and documentation."""

RANKING_OPTIONS: Final = option_table(RankingOptions)
"""The same without those that need features."""

JOB_OPTIONS: Final = option_table(JobOptions)
"""The same as `OPTIONS`, with those of a job."""

LEFT_OUT: Final = ("exclude", "drop_duplicates", "left_out")
"""Options of rows that are left out."""

SPLIT_OPTIONS: Final = option_table(SplitOptions)
"""Options of splits."""

POOL_OPTIONS: Final = option_table(PoolOptions)
"""Options of pooling."""


# ---- values ----------------------------------------------------------------------------------------------------------


def complete(given: Mapping[str, Any], known: Mapping[str, Option] = OPTIONS) -> EvaluationOptions:
    """Options with the defaults of all that are not given, each checked; an unknown one is refused."""
    for name in given:
        if name not in known:
            raise unknown_name("option", name, known)
    values = {name: given.get(name, option.default) for name, option in known.items()}
    return cast("EvaluationOptions", check_values(known, values))


EXTRAS_OFF: Final[Mapping[str, Any]] = {
    name: None if option.optional else option.default for name, option in OPTIONS.items() if SWEEP in option.refused_by
}
"""Values that switch off all extras: lists, tables, intervals, comparisons."""


def headline_only(options: EvaluationOptions, **changed: Any) -> EvaluationOptions:
    """Options with all extras switched off; `changed` are others by name."""
    return cast("EvaluationOptions", {**options, **EXTRAS_OFF, **changed})


def recorded(options: EvaluationOptions) -> dict[str, Any]:
    """Values that a report lists among its options: results depend on them, and they have no entry of their own."""
    values = {name: value for name, value in options.items() if OPTIONS[name].recorded}
    # None and an empty list mean the same, and a finished report serves for either.
    return {**values, "breakdowns": () if options["breakdowns"] is None else options["breakdowns"]}


def refuse_options_of_features(options: Mapping[str, Any], given: str) -> None:
    """Refuse options that are computed from features, where ``"distances"`` or ``"lists"`` take their place."""
    found = [name for name in OPTIONS if name not in RANKING_OPTIONS and requests(options.get(name))]
    if found:
        blocks = found == ["rerank"] and given == "distances"
        more = ", or a block that reid_dist.rerank_blocks has re-ranked" if blocks else ""
        raise InputError(f"{' and '.join(found)} is not available for {given}; evaluate the feature stores{more}")


def refuse_options(options: Mapping[str, Any], evaluation: str, reason: str) -> None:
    """Refuse options that an evaluation does not compute; the message is the name of the first and the reason."""
    for name, option in OPTIONS.items():
        value = options.get(name)
        # A choice always has a value; of other options, even the default is a request.
        if evaluation in option.refused_by and (option.is_set(value) if option.choices else requests(value)):
            raise InputError(f"{name} {reason}")
