"""``reid-dist compile``."""

from __future__ import annotations

import click

from reid_dist.cli.click_options import events_option


@click.command("compile")
@events_option
def command() -> None:
    """Compile all kernels before the first run, for instance in a container image.

    Machine code is cached next to the installation, or in the home directory if the installation is read-only. Set
    NUMBA_CACHE_DIR to choose another place.

    \b
    Example:
      reid-dist compile
    """
    import time

    from reid_dist.cli.progress import notify, stages
    from reid_dist.errors import InputError
    from reid_dist.evaluation.precompile import precompile
    from reid_dist.kernels.machine_code import cache_words, machine_code_folder

    folder = machine_code_folder()
    if folder is None:
        raise InputError(f"kernels cannot be precompiled: {cache_words()}")
    began = time.monotonic()
    notify("compiling", cache_words(), message=cache_words())
    with stages() as progress:
        n_compiled = precompile(progress)
    if n_compiled:
        click.echo(f"{n_compiled} kernels compiled in {time.monotonic() - began:.0f} s, kept in {folder}")
    else:
        click.echo(f"all kernels were compiled before, kept in {folder}")
