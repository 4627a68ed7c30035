"""Options of an evaluation over several splits, each written once, as those of `reid_dist.evaluation.options`."""

from typing import TYPE_CHECKING, Annotated, Final, Literal, TypedDict

from reid_dist.evaluation.options import COUNT, EvaluationOptions, Option, Published, option_table

if TYPE_CHECKING:
    from reid_dist.stores.importers.row_lists import SplitSource


class SplitOptions(TypedDict, total=False):
    """Where the galleries of an evaluation over several splits come from."""

    repeats: Annotated[
        int | None,
        Option(
            default=None,
            heading="Draw",
            limits=COUNT,
            help="Number of splits. Default: 10, or all of --rows.",
            doc="Number of splits; None for ten draws, or for all of a list.",
        ),
    ]
    per_identity: Annotated[
        int | None,
        Option(
            default=None,
            heading="Draw",
            limits=COUNT,
            help="Rows to keep of every gallery identity; not with --rows, but for rand_perm_cam.mat. Default: 1.",
            doc="Rows of every gallery identity that a split keeps; all of them where there are fewer, with a note.  "
            "None for 1.",
        ),
    ]
    per_camera: Annotated[
        bool,
        Option(
            default=False,
            heading="Draw",
            help="Keep so many of every identity under every camera.",
            doc="Keep so many of every identity under every camera, as SYSU-MM01 does.",
        ),
    ]
    rest_as_queries: Annotated[
        bool,
        Option(
            default=False,
            heading="Draw",
            help="Rows that are not kept are the queries; give one set twice.",
            doc="Take the rows that a split does not keep as its queries, as VehicleID does; `query` is then the "
            "gallery, too.",
        ),
    ]
    of_queries: Annotated[
        bool,
        Option(
            default=False,
            heading="Draw",
            help="Draw the queries instead, against the whole gallery.",
            doc="Draw the queries instead of the gallery, which is whole.",
        ),
    ]
    rows: Annotated[
        "SplitSource | None",
        Option(
            default=None,
            heading="Draw",
            metavar="FILE",
            help="Rows of every split in place of draws: JSON, .npz, or rand_perm_cam.mat of SYSU-MM01.",
            doc="Rows of every split in place of draws; see `reid_dist.stores.importers.row_lists`.",
        ),
    ]
    by: Annotated[
        Literal["rows", "item_ids", "image_paths"],
        Option(
            default="rows",
            heading="Draw",
            help="What FILE of --rows holds; rows are numbered from 0.",
            doc="What `rows` holds: numbers from 0, or names.",
        ),
    ]


class SplitEvaluationOptions(Published, SplitOptions, EvaluationOptions, total=False):
    """Options of an evaluation over several splits."""


SPLIT_OPTIONS: Final = option_table(SplitOptions)
"""Options of splits by name."""

ALL_OPTIONS: Final = option_table(SplitEvaluationOptions)
"""The same with those of a single evaluation, and the benchmark."""
