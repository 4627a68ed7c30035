"""``reid-dist pool``."""

from __future__ import annotations

from typing import Any, cast

import click

from reid_dist.cli.click_options import (
    OUTPUTS,
    GroupedCommand,
    RunOptions,
    chunk_option,
    declared_options,
    observation_options,
    option,
    resume_options,
    run_options,
    threads_options,
)
from reid_dist.evaluation.options import POOL_OPTIONS, PoolOptions


@click.command("pool", cls=GroupedCommand)
@click.argument("store")
@option("--output", "target", group=OUTPUTS, required=True, metavar="PATH", help="Where to write the pooled store.")
@declared_options(
    POOL_OPTIONS.values(),
    camids={"flag": "--drop-camids", "is_flag": True, "flag_value": "drop", "show_default": False, "callback": None},
)
@chunk_option
@option("--overwrite", group=OUTPUTS, is_flag=True, help="Replace an existing store; not on S3.")
@threads_options
@resume_options(
    workspace="Directory for pooled rows until the store is written; all workers must see it. Default: in "
    "PATH.unfinished.",
    resume="Continue an unfinished store from PATH.unfinished. A finished store is kept.",
)
@observation_options
@run_options(in_threads=True)
def command(
    store: str,
    target: str,
    run: RunOptions,
    chunk_rows: int | None,
    overwrite: bool,
    **options: Any,
) -> None:
    """Average the rows of STORE that share a label: tracklets of video, multi-query.

    STORE is a feature store, or any single set that `ingest` reads. Rows are pooled as stored; each pooled row is
    scaled to length 1.

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
    deliver_pooled(pool_store(store, to, cast("PoolOptions", options), run))
