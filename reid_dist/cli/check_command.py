"""``reid-dist check``."""

from __future__ import annotations

import click


@click.command("check")
@click.argument("stores", nargs=-1, required=True, metavar="STORE…")
def command(stores: tuple[str, ...]) -> int:
    """Verify feature stores: checksums, missing chunks, NaN, infinite, zero and duplicate rows, labels.

    A directory with query.zarr and gallery.zarr stands for both. The exit code is 2 if a store is damaged.

    \b
    Examples:
      reid-dist check data/market
      reid-dist check data/market/query.zarr data/market/gallery.zarr
    """
    from reid_dist.cli.progress import rows_progress
    from reid_dist.core.credentials import without_controls
    from reid_dist.errors import ExitCode, StoreError
    from reid_dist.stores.checking import check_store
    from reid_dist.stores.opening import stores_at

    damaged, found = 0, list[str]()
    for place in stores:
        try:
            found += stores_at(place)
        except StoreError:
            # Found again below, among the others.
            found.append(place)
    for uri in found:
        try:
            with rows_progress() as progress:
                checked = check_store(uri, progress)
        except StoreError as error:
            # The other stores are still checked.
            click.echo(without_controls("\n  ".join((f"Error: {error}", *error.details))), err=True)
            damaged += 1
            continue
        click.echo(without_controls("\n".join(checked.lines())))
        damaged += checked.damaged
    return ExitCode.BAD_INPUT if damaged else ExitCode.DONE
