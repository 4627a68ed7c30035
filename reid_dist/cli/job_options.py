"""Options that stand for the fields of a job: each once, for all commands that have it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from reid_dist.cli.grouping import CONVENTIONS, INPUTS, OUTPUTS, RESOURCES, option

__all__ = ["DISTANCES", "PROTOCOLS", "VARIANTS", "job_fields", "job_options", "shared_options"]

F = TypeVar("F", bound=Callable[..., Any])

PROTOCOLS = (
    *("market1501", "market1501_matlab", "allshots", "cuhk03", "cuhk03_separate_cameras", "no_cameras", "same_set"),
    *("oxford", "revisitop_easy", "revisitop_medium", "revisitop_hard"),
)
DISTANCES = ("cosine", "euclidean", "sqeuclidean")
VARIANTS = ("zhong", "zhong_d4", "faiss_k1", "paper")
"""Names of the registries, written out: help imports none of them."""

_JobOption = tuple[tuple[str, ...], dict[str, Any]]

# Options that commands share, by the field that they stand for.
_SHARED: dict[str, _JobOption] = {
    "protocol": (
        ("--protocol",),
        {
            "group": CONVENTIONS,
            "default": "market1501",
            "show_default": True,
            "metavar": "NAME",
            "help": f"Which items are relevant and which are junk: {', '.join(PROTOCOLS)}; see `reid-dist list "
            "protocols`.",
        },
    ),
    "distance": (
        ("--distance",),
        {
            "group": CONVENTIONS,
            "default": "cosine",
            "show_default": True,
            "metavar": f"[{'|'.join(DISTANCES)}]",
            "help": "See `reid-dist list distances`.",
        },
    ),
    "metrics": (
        ("--metric", "metrics"),
        {
            "group": CONVENTIONS,
            "multiple": True,
            "metavar": "NAME",
            "help": "mAP, CMC@10 (or rank-10), TAR@FAR=1e-3, …; repeatable, or with commas; see `reid-dist list "
            "metrics`. Default: mAP, mINP, the protocol's AP and CMC@1, 5, 10.",
        },
    ),
    "max_rank": (
        ("--max-rank",),
        {
            "group": CONVENTIONS,
            "type": int,
            "default": 50,
            "show_default": True,
            "metavar": "N",
            "help": "Length of the curves over ranks.",
        },
    ),
    "ground_truth": (
        ("--ground-truth",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "Lists for oxford and revisitop: JSON, or a directory of Oxford text files.",
        },
    ),
    "chunk_rows": (
        ("--chunk-rows",),
        {
            "group": RESOURCES,
            "type": int,
            "metavar": "N",
            "help": "Rows of a tile; the answer does not depend on it.",
        },
    ),
}

# Fields of a job that `evaluate` takes as options, in the order of its help.
_JOB_OPTIONS: tuple[_JobOption, ...] = (
    *(_SHARED[name] for name in ("protocol", "distance", "metrics", "max_rank", "ground_truth")),
    (
        ("--expand",),
        {
            "group": CONVENTIONS,
            "metavar": "SPEC",
            "help": "Such as 'alpha_qe(k=5,alpha=3)' or 'dba(k=5)+aqe(k=3)'; see `reid-dist list expansions`.",
        },
    ),
    (
        ("--rerank",),
        {
            "group": CONVENTIONS,
            "metavar": "SPEC",
            "help": "Such as 'k_reciprocal(k1=20,k2=6,lambda_value=0.3)'; see `reid-dist list rerankers`.",
        },
    ),
    (
        ("--topk",),
        {
            "group": OUTPUTS,
            "type": int,
            "metavar": "K",
            "help": "Write the K nearest items of every query to DIR (topk.npz).",
        },
    ),
    (
        ("--ties",),
        {
            "group": OUTPUTS,
            "is_flag": True,
            "help": "Also give optimistic and pessimistic values.",
        },
    ),
    (
        ("--breakdown", "breakdowns"),
        {
            "group": OUTPUTS,
            "multiple": True,
            "metavar": "NAME",
            "help": "camera, camera_pair, identity, gallery_size, or a label column; repeatable.",
        },
    ),
    (
        ("--gallery-size", "gallery_sizes"),
        {
            "group": OUTPUTS,
            "multiple": True,
            "metavar": "N",
            "help": "Size of the distractor curve: rows, or a share such as 0.5; repeatable. Default: ten steps.",
        },
    ),
    (
        ("--gallery-order",),
        {
            "group": OUTPUTS,
            "type": click.Choice(["stored", "random"]),
            "default": "stored",
            "show_default": True,
            "help": "How rows enter the distractor curve.",
        },
    ),
    (
        ("--single-shot-draws",),
        {
            "group": CONVENTIONS,
            "type": int,
            "metavar": "N",
            "help": "Estimate the single-shot CMC from N draws, not exactly.",
        },
    ),
    (
        ("--roc",),
        {
            "group": OUTPUTS,
            "is_flag": True,
            "help": "Also give the ROC at fixed false accept rates.",
        },
    ),
    (
        ("--confidence",),
        {
            "group": OUTPUTS,
            "type": float,
            "metavar": "LEVEL",
            "default": 0.95,
            "show_default": True,
            "help": "Level of the bootstrap intervals.",
        },
    ),
    (
        ("--seed",),
        {
            "group": OUTPUTS,
            "type": int,
            "metavar": "N",
            "default": 0,
            "show_default": True,
            "help": "Of draws, random orders and intervals.",
        },
    ),
    (
        ("--pictures",),
        {
            "group": OUTPUTS,
            "metavar": "ROWS",
            "help": "Show ranked pictures: 'hardest', or query rows such as 3,17 beside them. Needs --topk.",
        },
    ),
    (
        ("--image-root",),
        {
            "group": INPUTS,
            "metavar": "DIR",
            "help": "Where relative paths of --pictures start. Default: here.",
        },
    ),
    (
        ("--distances",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "A .npy block of distances, mapped; QUERY and GALLERY then give labels alone.",
        },
    ),
    (
        ("--lists",),
        {
            "group": INPUTS,
            "metavar": "FILE",
            "help": "A .npz of top-k lists (index, distance); QUERY and GALLERY then give labels alone.",
        },
    ),
    _SHARED["chunk_rows"],
)


def shared_options(*fields: str, **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add options that several commands share.

    Parameters
    ----------
    *fields
        The fields that they stand for, in the order of the help.
    **changed
        Attributes of an option that this command has otherwise, by field.
    """

    def add(function: F) -> F:
        for field in reversed(fields):
            names, attributes = _SHARED[field]
            function = option(*names, **{**attributes, **changed.get(field, {})})(function)
        return function

    return add


def job_options(function: F) -> F:
    """Add an option for every field of a job that is no input."""
    for names, attributes in reversed(_JOB_OPTIONS):
        function = option(*names, **attributes)(function)
    return function


def job_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Turn the values of `job_options` into fields of a job: what was not given is left to its default."""
    fields = dict(given)
    fields["metrics"] = fields["metrics"] or None
    fields["gallery_sizes"] = [_size(text) for text in fields["gallery_sizes"]] or None
    pictures = fields["pictures"]
    if pictures is not None and pictures != "hardest":
        try:
            fields["pictures"] = [int(row) for row in pictures.split(",")]
        except ValueError:
            raise click.UsageError(
                f"--pictures takes 'hardest' or query rows separated by commas, found {pictures!r}"
            ) from None
    return fields


def _size(text: str) -> int | float:
    """Read a number of rows, or a share."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(
            f"--gallery-size takes a number of rows or a share such as 0.5, found {text!r}"
        ) from None
