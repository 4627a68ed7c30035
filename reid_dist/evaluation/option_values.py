"""Values of evaluation options: defaults, what a report records, and options that an evaluation does not compute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from reid_dist.core.registry import did_you_mean
from reid_dist.errors import InputError
from reid_dist.evaluation.options import OPTIONS, RANKING_OPTIONS, EvaluationOptions, requests


def complete(given: Mapping[str, Any]) -> EvaluationOptions:
    """Options with the defaults of all that are not given.

    Raises
    ------
    InputError
        If there is no such option.
    """
    for name in given:
        if name not in OPTIONS:
            raise InputError(did_you_mean("option", name, list(OPTIONS)))
    return cast("EvaluationOptions", {name: given.get(name, option.default) for name, option in OPTIONS.items()})


def recorded(options: EvaluationOptions) -> dict[str, Any]:
    """Values that a report lists among its options: results depend on them, and they have no entry of their own."""
    values = {name: value for name, value in options.items() if OPTIONS[name].recorded}
    # None and an empty list mean the same, and a finished report serves for either.
    return {**values, "breakdowns": () if options["breakdowns"] is None else options["breakdowns"]}


def refuse_options_of_features(options: Mapping[str, Any], given: str) -> None:
    """Refuse options that are computed from features, where ``"distances"`` or ``"lists"`` take their place.

    Raises
    ------
    InputError
        If one of them is set; the message names all and the alternatives.
    """
    found = [name for name in OPTIONS if name not in RANKING_OPTIONS and requests(options.get(name))]
    if found:
        blocks = found == ["rerank"] and given == "distances"
        more = ", or a block that reid_dist.rerank_blocks has re-ranked" if blocks else ""
        raise InputError(
            f"{' and '.join(found)} cannot be had from {given}, which take the place of features; evaluate the "
            f"feature stores{more}"
        )


def refuse_options(options: Mapping[str, Any], evaluation: str, reason: str) -> None:
    """Refuse options that an evaluation does not compute.

    Raises
    ------
    InputError
        If one of them is set; the message is its name and the reason.
    """
    for name, option in OPTIONS.items():
        value = options.get(name)
        # A choice always has a value; of other options, even the default is a request.
        if evaluation in option.refused_by and (option.is_set(value) if option.choices else requests(value)):
            raise InputError(f"{name} {reason}")
