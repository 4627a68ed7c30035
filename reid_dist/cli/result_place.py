"""Results of commands that are tables: in which form they are printed, or written to a file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from reid_dist.cli.click_options import OUTPUTS, PATH, option
from reid_dist.core.formatting import NOTE_LEVELS, TABLE_FORMS

if TYPE_CHECKING:
    from reid_dist.reports.documents import Result

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class ResultPlace:
    """Where a result goes: a file in some form, and standard output as text, as JSON or, without a file, in the form.

    `notes` are those below tables, as of `Table.with_notes`.
    """

    file: Path | None
    form: str | None
    notes: str
    as_json: bool

    @classmethod
    def of(cls, file: Path | None, form: str | None, notes: str, *, as_json: bool) -> ResultPlace:
        """Choose the form by the suffix of the file, unless it is given; refuse a file that exists."""
        if file is None:
            if as_json and form not in (None, "json"):
                raise click.UsageError(f"--json and --format {form} are two forms; choose one")
            return cls(None, form, notes, as_json)
        from reid_dist.reports.report_files import refuse_existing

        by_suffix = {suffix: name for name, suffix in TABLE_FORMS.items()}
        if form is None and file.suffix.lower() not in by_suffix:
            raise click.UsageError(
                f"the name {file} does not say in which form to write; add --format, or end it in "
                f"{', '.join(by_suffix)}"
            )
        refuse_existing(file)
        return cls(file, form or by_suffix[file.suffix.lower()], notes, as_json)

    @property
    def prints_text(self) -> bool:
        """Whether the result is printed as text."""
        return not self.as_json and (self.file is not None or self.form in (None, "text"))

    def deliver(self, result: Result) -> None:
        """Write the result to the file, if there is one, and print it."""
        from reid_dist.reports.report_files import write_or_refuse

        if self.file is not None:
            write_or_refuse(self.file, result.written(self.form or "json", notes=self.notes))
        if self.prints_text:
            result.show(self.notes)
            if self.file is not None:
                click.echo(f"\nwritten: {self.file}")
        else:
            form = "json" if self.as_json else self.form or "text"
            text = result.written(form, notes=self.notes)
            # As in a file: UTF-8 whatever the locale, and a question mark for a path that is not UTF-8.  A stream
            # that a program has put in place of standard output may take text alone.
            click.echo(text.encode("utf-8", "replace") if hasattr(sys.stdout, "buffer") else text, nl=False)


def result_options(what: str, *, has_file: bool = True) -> Callable[[F], Callable[..., Any]]:
    """Give a command ``--output``, ``--format``, ``--notes`` and ``--json`` of its result, as one value `place`.

    A command without a file has an ``--output`` of its own, if any.
    """
    added = [
        option(
            "--format",
            "form",
            group=OUTPUTS,
            type=click.Choice([*TABLE_FORMS]),
            help=f"Format of the {what}. Default: {'by the suffix of FILE; without one, ' if has_file else ''}text.",
        ),
        option(
            "--notes",
            group=OUTPUTS,
            type=click.Choice(NOTE_LEVELS),
            default="full",
            show_default=True,
            help="Notes below tables; short explains only marks, intervals and verdicts.",
        ),
        option("--json", "as_json", group=OUTPUTS, is_flag=True, help=f"Print the {what} as JSON, and nothing else."),
    ]
    if has_file:
        words = f"Also write the {what} there, as text, Markdown, LaTeX, CSV, JSON or HTML."
        added.append(option("--output", "result_file", group=OUTPUTS, type=PATH, metavar="FILE", help=words))

    def apply(function: F) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(form: str | None, notes: str, as_json: bool, result_file: Path | None = None, **given: Any) -> Any:
            return function(place=ResultPlace.of(result_file, form, notes, as_json=as_json), **given)

        for each in added:
            command = each(command)
        return command

    return apply
