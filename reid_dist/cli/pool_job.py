"""Pooling, as `pool` does it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from reid_dist.cli.click_options import RunOptions
from reid_dist.cli.ingest_command import identities
from reid_dist.cli.progress import messages, rows_progress
from reid_dist.cli.resumable import run_resumable
from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import counted
from reid_dist.evaluation.options import PoolOptions
from reid_dist.evaluation.pooling import PooledStore, pool_job, pool_to
from reid_dist.evaluation.runner import Run
from reid_dist.stages.pooling_job import PooledPlace
from reid_dist.stages.session import Session
from reid_dist.stores import FeatureSet, open_features


@dataclass(frozen=True)
class Pooled:
    """A pooled store, and the number of rows of its source."""

    store: FeatureSet
    n_source: int


def pool_store(store: str, to: PooledPlace, options: PoolOptions, run: RunOptions) -> Pooled:
    """Pool a source and write the store; errors are those of `run_resumable`."""
    n_source = 0

    def prepare() -> Run[FeatureSet]:
        nonlocal n_source
        with rows_progress() as progress:
            features = open_features(store, allow_zero=options["allow_zero"], progress=progress)
        n_source = features.n_rows
        job = pool_job(features, options)

        def compute(session: Session) -> FeatureSet:
            with rows_progress() as shown:
                return pool_to(session.showing(messages()), job, to, shown)

        return Run(spec=job.spec(to), compute=compute)

    target = PooledStore(to)
    # On this machine it is in the directory of the unfinished run, and goes with it.
    workspace = run.workspace or (target.workspace if target.home is None else None)
    again = "the same command with --resume"
    made = run_resumable(replace(run, workspace=workspace), prepare, target, again=again)
    return Pooled(made, n_source)


def deliver_pooled(pooled: Pooled) -> None:
    """Print what the store holds, and its notes."""
    store = pooled.store
    click.echo(
        f"{store.uri}: {store.n_rows} x {store.dim} {store.dtype}, of {counted(pooled.n_source, 'row')}, "
        f"{counted(identities(store), 'identity')}, content {store.content_digest[:16]}"
    )
    for note in store.notes:
        click.echo(without_controls(f"  note: {note}"))
