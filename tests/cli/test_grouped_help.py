"""The help of the computing commands: options under headings, and choices by name."""

from __future__ import annotations

import importlib
import re

import click
import pytest

from reid_dist.engine.distances import DISTANCES as REGISTERED_DISTANCES
from reid_dist.evaluation.options import DISTANCES, PROTOCOLS
from reid_dist.relevance.protocols import PROTOCOLS as REGISTERED_PROTOCOLS
from reid_dist.stages.expansion.expansion_steps import EXPANSIONS
from reid_dist.stages.method_parameters import SWEPT_PARAMETERS
from reid_dist.stages.pooling_job import POOLINGS
from reid_dist.stages.reranking.rerankers import RERANKERS

HEADINGS = {
    "evaluate": ["Inputs", "Conventions", "Outputs", "Resources"],
    "sweep": ["Inputs", "Swept parameters", "Conventions", "Outputs", "Resources"],
    "splits": ["Inputs", "Draw", "Conventions", "Outputs", "Resources"],
    "pool": ["Conventions", "Outputs", "Resources"],
    "run": ["Inputs", "Outputs", "Resources"],
    "plan": ["Inputs", "Resources"],
}


def sections(text: str) -> dict[str, list[str]]:
    """Options by heading, from the help of a command."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if heading := re.fullmatch(r"(\w[\w ]*):", line):
            found[heading[1]] = []
        elif (name := re.match(r"  (?:-h, )?(--[\w-]+)", line)) and found:
            found[[*found][-1]].append(name[1])
    return {heading: names for heading, names in found.items() if names}


@pytest.mark.parametrize("name", HEADINGS)
def test_options_are_in_groups_and_each_is_there_once(reid_dist, name: str) -> None:
    text = reid_dist(name, "--help").out
    shown = sections(text)
    assert [*shown] == [*HEADINGS[name], "Other options"]
    command = importlib.import_module(f"reid_dist.cli.{name}_command").command
    declared = [each.opts[0] for each in command.params if isinstance(each, click.Option)]
    assert sorted(each for names in shown.values() for each in names) == sorted([*declared, "--help"])
    # A value is named, or its choices are listed; the name of a run is any text.
    assert set(re.findall(r"--([\w-]+) (?:TEXT|INTEGER|FLOAT)\b", text)) <= {"name"}


def test_where_some_options_are(reid_dist) -> None:
    shown = sections(reid_dist("evaluate", "--help").out)
    places = {"--distances": "Inputs", "--protocol": "Conventions", "--roc": "Outputs", "--workers": "Resources"}
    for name, heading in places.items():
        assert name in shown[heading]


@pytest.mark.parametrize("name", ["evaluate", "sweep", "splits"])
def test_choices_are_named(reid_dist, name: str) -> None:
    words = re.sub(r"\s+", "", reid_dist(name, "--help").out)
    assert ",".join(REGISTERED_PROTOCOLS.names()) in words
    assert "|".join(REGISTERED_DISTANCES.names()) in words
    assert f"[{'|'.join(POOLINGS.names())}]" in reid_dist("pool", "--help").out


def test_the_names_that_help_writes_out_are_those_of_the_registries() -> None:
    assert list(PROTOCOLS) == REGISTERED_PROTOCOLS.names()
    assert list(DISTANCES) == REGISTERED_DISTANCES.names()
    # Names and stores are no axes of a page of curves.
    known = {name for each in EXPANSIONS for name in each.parameters}
    known -= {"include_self", "statistics", "operation", "on"}
    # The weight is of a fused model.
    assert set(SWEPT_PARAMETERS) - {"weight"} == known.union(*(each.parameters for each in RERANKERS))
