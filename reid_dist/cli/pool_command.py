"""``reid-dist pool``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.click_options import (
    CONVENTIONS,
    OUTPUTS,
    GroupedCommand,
    RunOptions,
    chunk_option,
    observation_options,
    option,
    resume_options,
    run_options,
    threads_options,
)


@click.command("pool", cls=GroupedCommand)
@click.argument("store")
@option(
    "--by",
    group=CONVENTIONS,
    default="tracklet",
    show_default=True,
    metavar="LABEL",
    help="A label column of the set, or pid_camid (identity and camera), or item_id.",
)
@option(
    "--media",
    group=CONVENTIONS,
    metavar="LABEL",
    help="A label column: average rows of a group with one value first, then these means (IJB-C templates).",
)
@option(
    "--method",
    group=CONVENTIONS,
    metavar="[mean|max]",
    default="mean",
    show_default=True,
    help="See `reid-dist list poolings`.",
)
@option(
    "--no-normalise",
    group=CONVENTIONS,
    is_flag=True,
    help="Keep pooled rows as they are; otherwise they get length 1.",
)
@option("--normalise-rows", group=CONVENTIONS, is_flag=True, help="Scale every row to length 1 before it is pooled.")
@option(
    "--drop-camids",
    group=CONVENTIONS,
    is_flag=True,
    help="Leave cameras out, where rows of several cameras are pooled.",
)
@option("--allow-zero", group=CONVENTIONS, is_flag=True, help="Keep zero vectors; otherwise they are refused.")
@option("--output", "target", group=OUTPUTS, required=True, metavar="PATH", help="Where to write the pooled store.")
@option(
    "--dtype",
    group=OUTPUTS,
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="How rows are kept.",
)
@chunk_option
@option("--overwrite", group=OUTPUTS, is_flag=True, help="Replace a store that is there; not on S3.")
@threads_options
@resume_options(
    workspace="Directory for pooled rows until the store is written, seen by all workers. Default: in PATH.unfinished.",
    resume="Resume an unfinished store: what is done, in PATH.unfinished, is not read again. A finished one is kept.",
)
@observation_options
@run_options(in_threads=True)
def command(
    store: str,
    target: str,
    run: RunOptions,
    no_normalise: bool,
    drop_camids: bool,
    chunk_rows: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Make one row of all rows of STORE that share a label: tracklets of video, multi-query.

    STORE is a feature store, or any source of one set that `ingest` reads. Rows are pooled as they are stored, and
    every pooled row is scaled to length 1.

    \b
    Examples:
      reid-dist pool data/mars/gallery.zarr --by tracklet --output data/mars/gallery-pooled.zarr
      reid-dist pool data/ijbc/images.zarr --by template --media media --output data/ijbc/templates.zarr
      reid-dist pool data/market/multi.zarr --by pid_camid --method max --output data/market/query-multi.zarr
    """
    from reid_dist.cli.pool_job import deliver_pooled, pool_store
    from reid_dist.stages.pooling_job import PooledPlace
    from reid_dist.stores.locations import canonical_uri

    to = PooledPlace(uri=canonical_uri(target), chunk_rows=chunk_rows, overwrite=overwrite)
    rules = {"normalise": not no_normalise, "camids": "drop" if drop_camids else "keep"}
    deliver_pooled(pool_store(store, to, {**options, **rules}, run))
