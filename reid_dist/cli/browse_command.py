"""``reid-dist browse``."""

from __future__ import annotations

from pathlib import Path

import click

from reid_dist.cli.click_options import COUNT, PATH, image_root_option


@click.command("browse")
@click.argument("run", type=PATH)
@click.option("--against", type=PATH, metavar="RUN", help="Run on the same queries to compare with.")
@click.option(
    "--static",
    "folder",
    type=PATH,
    metavar="DIR",
    help="Write a directory whose index.html opens from disk instead of serving.",
)
@click.option("--depth", type=COUNT, metavar="N", help="Items per list. Default: all in topk.npz.")
@click.option("--no-pictures", is_flag=True, help="Show no pictures.")
@image_root_option
@click.option("--query", metavar="STORE", help="New location of the query store, if moved.")
@click.option("--gallery", metavar="STORE", help="New location of the gallery store, if moved.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, show_default="a free one", help="Port of 127.0.0.1 to serve on."
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the web browser of this machine.")
def command(
    run: Path,
    against: Path | None,
    folder: Path | None,
    depth: int | None,
    no_pictures: bool,
    image_root: str | None,
    query: str | None,
    gallery: str | None,
    port: int,
    opens: bool,
) -> None:
    """Look at the ranked lists of a run in a web browser: search and filter queries, open their lists.

    A run is an output directory with topk.npz, as `reid-dist evaluate --topk 50 --output DIR` writes it. Labels and
    picture paths are read from the stores of the run. The printed address contains a random token; it is reachable only
    from this machine, until you press Ctrl-C. From another machine, forward the port by ssh.

    You can search queries by identity, row and file name, filter them by camera, average precision and kind of failure,
    and sort them by average precision or by their loss against another run.

    \b
    Examples:
      reid-dist browse results/plain
      reid-dist browse results/reranked --against results/plain --port 8000
      reid-dist browse results/plain --static lists
    """
    if folder is not None and (port or opens):
        raise click.UsageError("--static serves nothing; leave out --port and --open")
    from reid_dist.nightly.history.address import load_report
    from reid_dist.reports.browse import ListServer, Site, open_subject, write_folder
    from reid_dist.reports.report_files import refuse_occupied

    if folder is not None:
        refuse_occupied(folder, otherwise="")
    subject = open_subject(
        load_report(run),
        query=query,
        gallery=gallery,
        image_root=image_root,
        against=None if against is None else load_report(against),
    )
    site = Site(subject, depth=depth, pictures=not no_pictures)
    for note in site.notes:
        click.echo(note, err=True)
    if folder is not None:
        from reid_dist.cli.progress import rows_progress

        with rows_progress() as progress:
            note = write_folder(site, folder, progress)
        if note:
            click.echo(f"{note}; --image-root names the directory where their paths start", err=True)
        click.echo(f"written: {folder / 'index.html'}")
        return
    with ListServer(site, port) as server:
        click.echo(server.address)
        click.echo("Ctrl-C ends the server.", err=True)
        if opens:
            import webbrowser

            webbrowser.open(server.address)
        server.serve_forever()
