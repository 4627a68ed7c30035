"""Options of an evaluation over several splits, each written once, as those of `reid_dist.evaluation.options`."""

from typing import Annotated, Final, Literal, TypedDict

from reid_dist.evaluation.options import COUNT, Option, option_table


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
            help="Rows to keep of every gallery identity. Default: 1.",
            doc="Rows of every gallery identity that a split keeps; None for 1.",
        ),
    ]
    per_camera: Annotated[
        bool, Option(default=False, heading="Draw", help="Keep so many of every identity under every camera.")
    ]
    rest_as_queries: Annotated[
        bool,
        Option(default=False, heading="Draw", help="Rows that are not kept are the queries; give one set twice."),
    ]
    rows: Annotated[
        str | None,
        Option(
            default=None,
            heading="Draw",
            metavar="FILE",
            help="Rows of every split in place of draws: JSON, .npz, or rand_perm_cam.mat of SYSU-MM01.",
        ),
    ]
    by: Annotated[
        Literal["rows", "item_ids", "image_paths"],
        Option(default="rows", heading="Draw", help="What FILE of --rows holds; rows are numbered from 0."),
    ]


SPLIT_OPTIONS: Final = option_table(SplitOptions)
"""Options of splits by name."""
