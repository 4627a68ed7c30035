"""Results of commands as one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from reid_dist.errors import StoreError, StoreExistsError
from reid_dist.reports.documents import JsonResult
from reid_dist.reports.report_files import unwritable, write_together


def refuse_existing(output: Path | None) -> None:
    """Refuse a file that exists, or that cannot be written."""
    if output is None:
        return
    if output.exists():
        raise StoreExistsError(f"{output} is there already; choose another --output")
    if (why := unwritable(output.parent)) is not None:
        raise StoreError(f"cannot write {output}: {why}; choose another --output")


def write_text(output: Path, text: str) -> None:
    """Write a text to a new file, whole or not at all."""
    write_file(output, text.encode())


def write_file(output: Path, content: bytes) -> None:
    """Write a new file, whole or not at all."""
    try:
        write_together(output.parent, {output.name: lambda file: file.write(content)})
    except StoreError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        raise StoreError(f"cannot write {output}: {cause.strerror or error}; choose another --output") from None


def deliver_result(result: JsonResult, output: Path | None, show: Callable[[], None], *, as_json: bool) -> None:
    """Write a result to a file if there is one, and print it as JSON or with `show`."""
    if output is not None:
        write_text(output, result.to_json())
    if as_json:
        click.echo(result.to_json(), nl=False)
    else:
        show()
