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
from reid_dist.cli.ingest_command import identities_of, print_store, shape_of
from reid_dist.core.formatting import counted
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
    from dataclasses import replace

    from reid_dist.cli.progress import messages, rows_progress
    from reid_dist.cli.resumable import run_resumable
    from reid_dist.evaluation.pooling import PooledStore, pool_job, pool_to
    from reid_dist.evaluation.runner import Run
    from reid_dist.stages.pooling_job import PooledPlace
    from reid_dist.stages.session import Session
    from reid_dist.stores import FeatureSet, open_features
    from reid_dist.stores.locations import canonical_uri

    to = PooledPlace(uri=canonical_uri(target), chunk_rows=chunk_rows, overwrite=overwrite)
    n_source = 0

    def prepare() -> Run[FeatureSet]:
        nonlocal n_source
        with rows_progress() as progress:
            features = open_features(store, allow_zero=options["allow_zero"], progress=progress)
        n_source = features.n_rows
        job = pool_job(features, cast("PoolOptions", options))

        def compute(session: Session) -> FeatureSet:
            with rows_progress() as shown:
                return pool_to(session.showing(messages()), job, to, shown)

        return Run(spec=job.spec(to), compute=compute)

    place = PooledStore(to)
    # On this machine it is in the directory of the unfinished run, and goes with it.
    run = replace(run, workspace=run.workspace or (place.workspace if place.home is None else None))
    pooled = run_resumable(run, prepare, place, again="the same command with --resume")
    print_store(pooled, (shape_of(pooled), f"of {counted(n_source, 'row')}", identities_of(pooled)), pooled.notes)
