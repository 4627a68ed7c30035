"""``reid-dist pool``."""

from __future__ import annotations

from typing import Any

import click

from reid_dist.cli.options import chunk_options
from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import counted


@click.command("pool")
@click.argument("store")
@click.option("--output", required=True, metavar="PATH", help="Where to write the pooled store.")
@click.option(
    "--by",
    default="tracklet",
    show_default=True,
    metavar="LABEL",
    help="A label column of the set, or pid_camid (identity and camera), or item_id.",
)
@click.option(
    "--method", metavar="[mean|max]", default="mean", show_default=True, help="See `reid-dist list poolings`."
)
@click.option("--no-normalise", is_flag=True, help="Keep pooled rows as they are; otherwise they get length 1.")
@click.option("--normalise-rows", is_flag=True, help="Scale every row to length 1 before it is pooled.")
@click.option("--drop-camids", is_flag=True, help="Leave cameras out, where rows of several cameras are pooled.")
@click.option("--allow-zero", is_flag=True, help="Keep zero vectors; otherwise they are refused.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16"]),
    default="float32",
    show_default=True,
    help="How rows are kept.",
)
@chunk_options
@click.option("--overwrite", is_flag=True, help="Replace a store that is there; not on S3.")
def command(store: str, output: str, no_normalise: bool, drop_camids: bool, allow_zero: bool, **options: Any) -> None:
    """Make one row of all rows of STORE that share a label: tracklets of video, multi-query.

    STORE is a feature store, or any source of one set that `ingest` reads. Rows are pooled as they are stored, and
    every pooled row is scaled to length 1.

    \b
    Examples:
      reid-dist pool data/mars/gallery.zarr --by tracklet --output data/mars/gallery-pooled.zarr
      reid-dist pool data/market/multi.zarr --by pid_camid --method max --output data/market/query-multi.zarr
    """
    from reid_dist.cli.ingest import identities
    from reid_dist.cli.progress import rows_progress
    from reid_dist.stages.pooling import pool
    from reid_dist.stores.importers import open_features

    with rows_progress() as progress:
        features = open_features(store, allow_zero=allow_zero, progress=progress)
        pooled = pool(
            features,
            output,
            normalise=not no_normalise,
            camids="drop" if drop_camids else "keep",
            allow_zero=allow_zero,
            **options,
            progress=progress,
        )
    click.echo(
        f"{pooled.uri}: {pooled.n_rows} x {pooled.dim} {pooled.dtype}, of {counted(features.n_rows, 'row')}, "
        f"{counted(identities(pooled), 'identity')}, content {pooled.content_digest[:16]}"
    )
    for note in pooled.notes:
        click.echo(without_controls(f"  note: {note}"))
