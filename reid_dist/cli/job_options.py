"""Command-line options of an evaluation, made of `reid_dist.evaluation.options`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click
from click.core import ParameterSource

from reid_dist.cli.options import option
from reid_dist.evaluation.options import JOB_OPTIONS, Option
from reid_dist.evaluation.split_options import SPLIT_OPTIONS

F = TypeVar("F", bound=Callable[..., Any])


def job_options(function: F) -> F:
    """Add every option of a job."""
    return shared_options(*JOB_OPTIONS)(function)


def shared_options(*names: str, **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add some options of a job or of splits, in the order of the help; `changed` are attributes that differ."""
    known = {**JOB_OPTIONS, **SPLIT_OPTIONS}

    def add(function: F) -> F:
        for name in reversed(names):
            attributes = {**_attributes(known[name]), **changed.get(name, {})}
            function = option(known[name].flag, name, **attributes)(function)
        return function

    return add


def _attributes(given: Option) -> dict[str, Any]:
    """Arguments of `click.option`."""
    found: dict[str, Any] = {"group": given.heading, "help": given.help}
    if given.form == "flag":
        return {**found, "is_flag": True}
    if given.is_repeatable:
        return {**found, "multiple": True, "metavar": given.metavar or "N"}
    if given.default is not None:
        found |= {"default": given.default, "show_default": True}
    if given.form == "choice":
        return {**found, "type": click.Choice(given.choices)}
    kinds: dict[str, type] = {"whole": int, "number": float}
    return {**found, "type": kinds.get(given.form, str), "metavar": given.metavar or "N"}


def job_fields(given: dict[str, Any]) -> dict[str, Any]:
    """Turn the values of `job_options` into fields of a job; options that were not given are left out."""
    fields = given_options(given)
    for name in fields:
        each = JOB_OPTIONS[name]
        if each.form == "numbers":
            fields[name] = [_size(each, text) for text in fields[name]]
        if each.is_repeatable:
            fields[name] = list(fields[name])
    pictures = fields.get("pictures")
    if pictures is not None and pictures != "hardest":
        try:
            fields["pictures"] = [int(row) for row in pictures.split(",")]
        except ValueError:
            raise click.UsageError(
                f"--pictures takes 'hardest' or query rows separated by commas, found {pictures!r}"
            ) from None
    return fields


def given_options(values: dict[str, Any]) -> dict[str, Any]:
    """Leave out options that keep their default because they are not on the command line."""
    source = click.get_current_context().get_parameter_source
    return {name: value for name, value in values.items() if source(name) is not ParameterSource.DEFAULT}


def _size(given: Option, text: str) -> int | float:
    """Number of rows, or a share."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{given.flag} takes a number of rows or a share such as 0.5, found {text!r}") from None
