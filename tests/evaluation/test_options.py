"""Evaluation options: written once, and found in signatures, help, pipeline files, checks and reports."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys

import pytest

from reid_dist import (
    evaluate,
    evaluate_distances,
    evaluate_lists,
    evaluate_splits,
    operating_points,
    sweep_parameters,
)
from reid_dist.evaluation.options import JOB_OPTIONS, OPTIONS, RANKING_OPTIONS, complete
from reid_dist.kernels.splitmix import LARGEST_SEED
from reid_dist.metrics.metric import LARGEST_RANK

# Adds a key to the TypedDict before anything imports the module, then looks for it.
_MADE_UP = '''
import importlib.util, inspect, json, sys
from pathlib import Path

name = "reid_dist.evaluation.options"
spec = importlib.util.find_spec(name)
source = Path(spec.origin).read_text()
key = """    made_up: Annotated[int | None, Option(default=4, limits=(2, 9), help="A made-up option.")]
"""
place = "    topk: Annotated["
assert source.count(place) == 1
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
exec(compile(source.replace(place, key + place), spec.origin, "exec"), module.__dict__)

import click
import numpy as np
from click.testing import CliRunner
import reid_dist
from reid_dist.cli import evaluate_command as command
from reid_dist.errors import InputError
from reid_dist.evaluation.pipelines import PipelineJob
from reid_dist.evaluation.runs import OpenedJob

found = {}
public = (
    *("evaluate", "evaluate_distances", "evaluate_lists", "evaluate_splits", "sweep_parameters"),
    "operating_points",
)
for function in (getattr(reid_dist, each) for each in public):
    found[function.__name__] = (
        inspect.signature(function).parameters["made_up"].default == 4 and "A made-up option." in function.__doc__
    )
help_text = CliRunner().invoke(command.command, ["--help"]).output
found["help"] = "--made-up N" in help_text and "A made-up option." in help_text and "[default: 4]" in help_text
job = PipelineJob.model_validate({"query": "q", "gallery": "g", "made_up": 7})
found["pipeline"] = job.options()["made_up"] == 7
limits = PipelineJob.model_json_schema()["properties"]["made_up"]["anyOf"][0]
found["schema"] = (limits["minimum"], limits["maximum"]) == (2, 9)
rows = reid_dist.FeatureSet.from_arrays(np.eye(4, dtype=np.float32), [1, 1, 2, 2], [0, 1, 0, 1])
report = reid_dist.evaluate(rows, rows, made_up=5)
found["report"] = report.options["made_up"] == 5
try:
    reid_dist.evaluate(rows, rows, made_up=10)
except InputError as error:
    found["check"] = str(error) == "made_up must be a whole number from 2 to 9, or None, found 10"
specs = [
    OpenedJob(PipelineJob.model_validate({"query": "q", "gallery": "g", "made_up": value}), rows, rows, {}, None).spec
    for value in (5, 6)
]
found["identity"] = [each for each in specs[0] if specs[0][each] != specs[1][each]] == ["made_up"]
print(json.dumps(found))
'''


@pytest.mark.slow
def test_an_option_that_is_added_in_one_place_is_everywhere() -> None:
    done = subprocess.run([sys.executable, "-c", _MADE_UP], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 12
    assert [place for place, there in found.items() if not there] == []


@pytest.mark.parametrize(
    ("function", "refused"),
    [
        (evaluate, set()),
        (evaluate_distances, {"distance", "expand", "rerank", "against_plain"}),
        (
            evaluate_lists,
            {
                *("expand", "rerank", "topk", "ties", "breakdowns", "gallery_sizes", "gallery_order"),
                *("single_shot_draws", "roc", "collapse", "against_plain"),
            },
        ),
        (
            evaluate_splits,
            {
                *("ground_truth", "topk", "ties", "breakdowns", "gallery_sizes", "gallery_order", "roc", "confidence"),
                "against_plain",
            },
        ),
        (
            operating_points,
            {
                *("metrics", "max_rank", "collapse", "topk", "ties", "breakdowns", "gallery_sizes", "gallery_order"),
                *("single_shot_draws", "roc", "against_plain"),
            },
        ),
        (
            sweep_parameters,
            {
                *("topk", "ties", "breakdowns", "gallery_sizes", "gallery_order", "roc", "confidence"),
                "against_plain",
            },
        ),
    ],
)
def test_signatures_and_docstrings_list_the_options_of_a_function(function, refused: set[str]) -> None:
    parameters = inspect.signature(function).parameters
    assert set(OPTIONS) - set(parameters) == refused
    for name in set(OPTIONS) - refused - ({"distance"} if function is evaluate_lists else set()):
        assert parameters[name].default == OPTIONS[name].default
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
    # Every parameter is documented once, alone or with others.
    entries = [line for line in inspect.cleandoc(function.__doc__).splitlines() if line[:1].strip()]
    named = [name for entry in entries for name in entry.split(", ")]
    assert [name for name in parameters if named.count(name) != 1] == []
    assert "**options" not in entries


def test_limits_are_those_of_the_package() -> None:
    for name in ("max_rank", "topk", "single_shot_draws", "chunk_rows"):
        assert OPTIONS[name].limits == (1, LARGEST_RANK)
    assert OPTIONS["seed"].limits == (0, LARGEST_SEED)


def test_options_of_rankings_and_of_features_are_those_of_a_job() -> None:
    assert set(RANKING_OPTIONS) < set(OPTIONS) < set(JOB_OPTIONS)
    assert set(complete({})) == set(OPTIONS)
    assert [name for name, option in JOB_OPTIONS.items() if not option.help.endswith(".")] == []
