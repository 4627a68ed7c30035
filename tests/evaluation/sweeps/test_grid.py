"""Ranges as people write them, and grids of them."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest

from reid_dist.core.parameters import Parameter
from reid_dist.errors import InputError, UnknownNameError
from reid_dist.evaluation.grid import MOST_POINTS, make_grid, parse_values
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.reranking.rerankers import parse_rerank

WHOLE, NUMBERS, NAMES, FLAG = (Parameter().of_type("x", kind) for kind in (int, float, Literal["zhong", "paper"], bool))
AXES = Parameter(limits=(1, 64)).of_type("x", int | Literal["all"])


@pytest.mark.parametrize(
    ("given", "kind", "values"),
    [
        ("0:10", WHOLE, tuple(range(11))),
        ("10:30:10", WHOLE, (10, 20, 30)),
        ("0:10:4", WHOLE, (0, 4, 8)),
        ("5,1,3", WHOLE, (5, 1, 3)),
        (" 1 , 4:6 , 20:40:10 ", WHOLE, (1, 4, 5, 6, 20, 30, 40)),
        ("1,2,1:3", WHOLE, (1, 2, 3)),
        (5, WHOLE, (5,)),
        (range(3), WHOLE, (0, 1, 2)),
        (np.arange(3), WHOLE, (0, 1, 2)),
        ([np.int64(2), 4], WHOLE, (2, 4)),
        ("0:1:0.1", NUMBERS, (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
        ("0:1e-3:5e-4", NUMBERS, (0.0, 0.0005, 0.001)),
        (np.linspace(0, 1, 3), NUMBERS, (0.0, 0.5, 1.0)),
        ("zhong, paper", NAMES, ("zhong", "paper")),
        (["zhong"], NAMES, ("zhong",)),
        ("true,false", FLAG, (True, False)),
        ([np.True_], FLAG, (True,)),
        ("32,all,48:64:16", AXES, (32, "all", 48, 64)),
    ],
)
def test_values(given, kind, values):
    found = parse_values(kind, given)
    assert found == values
    assert [type(value) for value in found] == [type(value) for value in values]


@pytest.mark.parametrize(
    ("given", "kind", "words"),
    [
        ("", WHOLE, "cannot read x ''"),
        ("1,,2", WHOLE, "cannot read x '1,,2'"),
        ("a:b", WHOLE, "it must be a whole number, found 'a'"),
        ("1:2:3:4", WHOLE, "a range is first:last or first:last:step"),
        ("5:1", WHOLE, "goes from 5 down to 1; a range goes upwards"),
        ("1:5:0", WHOLE, "a step must be larger than 0"),
        ("0:1:0.5", WHOLE, "cannot read x '0:1:0.5': it must be a whole number, found '0.5'"),
        ("nan", NUMBERS, "cannot read x 'nan'"),
        ("0:1000000000000000000", WHOLE, "takes 500 points at most"),
        ("0:1:1e-30", NUMBERS, "takes 500 points at most"),
        (range(1000), WHOLE, "takes 500 points at most"),
        ([], WHOLE, "x has no values"),
        (2.5, WHOLE, "x must be a whole number, found 2.5"),
        (True, WHOLE, "x must be a whole number, found True"),
        ([float("nan")], NUMBERS, "x must be a number, found nan"),
        ("zhong,", NAMES, "cannot read x 'zhong,': it must be zhong or paper, found ''"),
        ("0:3", AXES, "it must be a whole number from 1 to 64, or all, found '0'"),
        ("1:all", AXES, "cannot read x '1:all'"),
        ([1], NAMES, "x must be zhong or paper, found 1"),
    ],
)
def test_invalid_specs_are_refused(given, kind, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_values(kind, given)
    assert "\n" not in str(caught.value)


def test_points_are_in_the_order_of_the_grid_and_the_work_begins_with_the_longest_lists():
    grid = make_grid("alpha_qe", None, {"k": "1,9,4", "alpha": "0,3"})
    assert [point.values for point in grid.points] == [
        {"k": k, "alpha": alpha} for k in (1, 9, 4) for alpha in (0.0, 3.0)
    ]
    assert [grid.points[place].values["k"] for place in grid.order] == [9, 9, 4, 4, 1, 1]
    assert grid.points[0].name == "alpha_qe(k=1,alpha=0,include_self=false)"
    assert grid.method["fixed"] == {"include_self": False}


def test_the_last_expansion_of_several_is_swept_and_what_it_fixes_is_fixed():
    grid = make_grid("dba(k=5)+fastreid(times=2,alpha=1)", None, {"k": "2:3"})
    assert [point.name for point in grid.points] == [
        f"dba(k=5,alpha=0)+fastreid(k={k},alpha=1,times=2)" for k in (2, 3)
    ]
    assert grid.method["fixed"] == {"alpha": 1.0, "times": 2}
    grid = make_grid("alpha_qe(k=5)", None, {"alpha": "0:1:0.5"}, include_self=True)
    assert [str(point.expand[0]) for point in grid.points][1] == "alpha_qe(k=5,alpha=0.5,include_self=true)"


def test_re_rankings():
    given = {"k1": "10:30:10", "k2": "1,6", "lambda_value": "0,0.3", "variant": "zhong,faiss_k1"}
    grid = make_grid(None, "k_reciprocal(mode=inductive)", given)
    assert len(grid.points) == 3 * 2 * 2 * 2
    assert list(grid.points[1].values.values()) == [10, 1, 0.0, "faiss_k1"]
    assert {point.rerank.mode for point in grid.points} == {"inductive"}
    lengths = [grid.points[place].rerank.n_near for place in grid.order]
    assert lengths == sorted(lengths, reverse=True)
    shared = [grid.points[place].shared for place in grid.order]
    # Points that share stages follow one another.
    assert len(dict.fromkeys(shared)) == sum(a != b for a, b in zip([None, *shared], shared, strict=False))
    assert grid.method["fixed"] == {"inclusive": False, "weights": "gaussian", "mode": "inductive"}


@pytest.mark.parametrize(
    ("expand", "rerank", "given", "words"),
    [
        (None, None, {"k": "0:3"}, "neither is given"),
        ("aqe", "k_reciprocal", {"k": "0:3"}, "not both"),
        ("aqe", None, {}, "nothing to sweep over; give values of k$"),
        ("aqe", None, {"k1": "3"}, "k1 is no parameter of aqe, which has k"),
        (None, "k_reciprocal", {"k": "3"}, "k is no parameter of k_reciprocal, which has k1, k2"),
        ("alpha_qe", None, {"alpha": "1"}, "alpha_qe needs the number of neighbours"),
        ("aqe(k=3)", None, {"k": "0:3"}, "k is given twice"),
        ("aqe", None, {"k": "-1:3"}, "k of aqe '-1:3': it must be a whole number from 0, found '-1'"),
        ("alpha_qe", None, {"k": "3", "alpha": "-1"}, "alpha of alpha_qe '-1': it must be a number from 0"),
        ("aqe+dba", None, {"k": "3"}, "aqe needs the number of neighbours"),
        ("aqe(k=2)+dba", None, {"k": "3"}, "put dba first"),
        (None, "k_reciprocal", {"k1": "3", "k2": "9"}, r"k2 of k_reciprocal must not be larger than k1 \+ 1 = 4"),
        (
            None,
            "k_reciprocal",
            {"lambda_value": "0:2"},
            "lambda_value of k_reciprocal '0:2': it must be a number from 0 to 1, found '2'",
        ),
        (None, "k_reciprocal+k_reciprocal", {"k1": "9"}, "one re-ranking at a time"),
        ("alpha_qe", None, {"k": "1:30", "alpha": "1:30"}, "the grid has 900 points, and a sweep takes 500 at most"),
    ],
)
def test_impossible_grids_are_refused(expand, rerank, given, words):
    with pytest.raises(InputError, match=words) as caught:
        make_grid(expand, rerank, given)
    assert "\n" not in str(caught.value)


def test_names_that_do_not_exist():
    for expand, rerank, given in (
        ("aqee", None, {"k": "3"}),
        (None, "k_reciproc", {"k1": "9"}),
        (None, "k_reciprocal", {"variant": "zhongg"}),
    ):
        with pytest.raises(UnknownNameError, match="did you mean"):
            make_grid(expand, rerank, given)


def test_include_self_belongs_to_expansions_that_have_it():
    with pytest.raises(InputError, match="include_self belongs to query expansion"):
        make_grid(None, "k_reciprocal", {"k1": "9"}, include_self=True)
    with pytest.raises(InputError, match="parameter of dba 'include_self'"):
        make_grid("dba", None, {"k": "3"}, include_self=True)


def test_the_largest_grid():
    assert len(make_grid("alpha_qe", None, {"k": "1:50", "alpha": "1:10"}).points) == MOST_POINTS


@pytest.mark.parametrize(
    ("how", "given", "swept", "name", "wrong"),
    [
        ("rerank", "k_reciprocal(lambda_value=1.5)", "k_reciprocal", "lambda_value", 1.5),
        ("rerank", "gnn(k1=0)", "gnn", "k1", 0),
        ("rerank", "gnn(rounds=-1)", "gnn", "rounds", -1),
        ("rerank", "ecn(k=0)", "ecn", "k", 0),
        ("rerank", "ecn(q=-1)", "ecn", "q", -1),
        ("rerank", "ecn(method=dist)", "ecn", "method", "dist"),
        ("rerank", "top(gnn,m=0)", "top(gnn)", "m", 0),
        ("expand", "aqe(k=-1)", "aqe", "k", -1),
        ("expand", "fastreid(k=2,times=0)", "fastreid(k=2)", "times", 0),
        ("expand", "camera_norm(ridge=1e10)", "camera_norm", "ridge", 1e10),
        ("expand", "whiten(dim=0)", "whiten", "dim", 0),
        ("expand", "gcr(rounds=0)", "gcr", "rounds", 0),
    ],
)
def test_a_value_is_refused_by_the_same_words_in_a_spec_and_in_a_grid(how, given, swept, name, wrong):
    parse = {"rerank": parse_rerank, "expand": parse_expand}[how]
    with pytest.raises(InputError, match=f"^{name} of \\w+ must be ") as of_spec:
        parse(given)
    with pytest.raises(InputError) as of_grid:
        make_grid(*((None, swept) if how == "rerank" else (swept, None)), {name: [wrong]})
    assert str(of_grid.value) == str(of_spec.value)
