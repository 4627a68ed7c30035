"""Options in groups: an option names its group, and the help of a command shows one heading per group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import click

INPUTS: Final = "Inputs"
SWEPT: Final = "Swept parameters"
DRAW: Final = "Draw"
CONVENTIONS: Final = "Conventions"
OUTPUTS: Final = "Outputs"
RESOURCES: Final = "Resources"

_ORDER: Final = (INPUTS, SWEPT, DRAW, CONVENTIONS, OUTPUTS, RESOURCES)
_UNGROUPED: Final = "Other options"

F = TypeVar("F", bound=Callable[..., Any])


class GroupedOption(click.Option):
    """An option with its heading in the help.

    Attributes
    ----------
    group
        The heading.
    """

    def __init__(self, *declarations: Any, group: str, **attributes: Any) -> None:
        super().__init__(*declarations, **attributes)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose help shows options under the headings of their groups; those without one come last."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section per group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            # Arguments are explained in the text above.
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(parameter, "group", _UNGROUPED), []).append(record)
        known = [*_ORDER, _UNGROUPED]
        for heading in sorted(sections, key=lambda heading: known.index(heading) if heading in known else -1):
            with formatter.section(heading):
                formatter.write_dl(sections[heading])


def option(*declarations: str, group: str, **attributes: Any) -> Callable[[F], F]:
    """Add an option to a command, under a heading of its help; otherwise as `click.option`."""
    return click.option(*declarations, cls=GroupedOption, group=group, **attributes)
