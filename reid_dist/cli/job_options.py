"""Command-line options of an evaluation, made of `reid_dist.evaluation.options`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from reid_dist.cli.options import option
from reid_dist.evaluation.options import JOB_OPTIONS, Option

F = TypeVar("F", bound=Callable[..., Any])

VARIANTS = ("zhong", "zhong_d4", "faiss_k1", "paper")
"""Names of the registry of re-ranking variants, written out: help imports none of it."""


def job_options(function: F) -> F:
    """Add every option of a job."""
    return shared_options(*JOB_OPTIONS)(function)


def shared_options(*names: str, **changed: dict[str, Any]) -> Callable[[F], F]:
    """Add some options of a job, in the order of the help; `changed` are attributes that differ in this command."""

    def add(function: F) -> F:
        for name in reversed(names):
            attributes = {**_attributes(JOB_OPTIONS[name]), **changed.get(name, {})}
            function = option(JOB_OPTIONS[name].flag, name, **attributes)(function)
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
    """Turn the values of `job_options` into fields of a job; an option that is not given keeps its default."""
    fields = dict(given)
    for name, each in JOB_OPTIONS.items():
        if each.form == "numbers":
            fields[name] = [_size(each, text) for text in fields[name]]
        if each.is_repeatable:
            fields[name] = list(fields[name]) or each.default
    pictures = fields["pictures"]
    if pictures is not None and pictures != "hardest":
        try:
            fields["pictures"] = [int(row) for row in pictures.split(",")]
        except ValueError:
            raise click.UsageError(
                f"--pictures takes 'hardest' or query rows separated by commas, found {pictures!r}"
            ) from None
    return fields


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
