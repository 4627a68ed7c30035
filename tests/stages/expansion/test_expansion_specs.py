"""Specs of expansions: what they mean, and one clear line for what they cannot."""

from __future__ import annotations

import pytest

from reid_dist.errors import InputError, UnknownNameError
from reid_dist.stages.expansion.expansion_steps import (
    EXPANSIONS,
    Expansion,
    describe_expansion,
    make_step,
    parse_expand,
    spelled,
)


@pytest.mark.parametrize(
    ("spec", "meant"),
    [
        ("aqe(k=5)", "aqe(k=5,include_self=false)"),
        (" aqe( k = 5 ) ", "aqe(k=5,include_self=false)"),
        ("alpha_qe(k=5)", "alpha_qe(k=5,alpha=3,include_self=false)"),
        ("alpha_qe(alpha=0.5,k=2,include_self=true)", "alpha_qe(k=2,alpha=0.5,include_self=true)"),
        ("dba(k=5)", "dba(k=5,alpha=0)"),
        ("fastreid(k=5)", "fastreid(k=5,alpha=3,times=1)"),
        ("dba(k=5,alpha=2) + aqe(k=0)", "dba(k=5,alpha=2)+aqe(k=0,include_self=false)"),
        ("dba(k=5,alpha=1.2345674)", "dba(k=5,alpha=1.2345674)"),
        ("dba(k=1)+dba(k=2)+aqe(k=3)", "dba(k=1,alpha=0)+dba(k=2,alpha=0)+aqe(k=3,include_self=false)"),
    ],
)
def test_what_a_spec_means(spec, meant):
    steps = parse_expand(spec)
    assert spelled(steps) == meant
    assert parse_expand(meant) == steps
    assert parse_expand(steps) == steps
    assert describe_expansion(steps)["name"] == meant


@pytest.mark.parametrize("name", EXPANSIONS.names())
def test_every_method_has_words_and_a_source(name):
    (step,) = parse_expand(f"{name}(k=2)" if EXPANSIONS.get(name).kind is None else name)
    described = describe_expansion([step])
    assert described["definition"].startswith(f"{name}: ")
    assert described["source"] == EXPANSIONS.get(name).source


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "an? expansion is a name or a call"),
        ("aqe", r"aqe needs the number of neighbours, such as aqe\(k=5\)"),
        ("aqe(5)", "values are given as key=value"),
        ("aqe(k=5", "cannot read expansion"),
        ("aqe(k=5)aqe(k=5)", "cannot read expansion"),
        ("aqe(k=5)+", "cannot read expansion"),
        ("aqe(k=5,k=6)", "k is given twice"),
        ("aqe(k=-1)", "k of aqe must be a whole number from 0, found -1"),
        ("aqe(k=2.5)", "k of aqe must be a whole number from 0, found 2.5"),
        ("aqe(k=true)", "k of aqe must be a whole number"),
        ("aqe(k=5,alpha=3)", "parameter of aqe 'alpha'"),
        ("dba(k=5,include_self=true)", "parameter of dba 'include_self'"),
        ("alpha_qe(k=5,alhpa=3)", "did you mean 'alpha'"),
        ("alpha_qe(k=5,alpha=nan)", "alpha of alpha_qe must be a number from 0"),
        ("aqe(k=5,include_self=1)", "include_self of aqe must be true or false"),
        ("fastreid(k=5,times=0)", "times of fastreid must be a whole number from 1"),
        ("gcr(beta1=0)", r"beta1 of gcr must be a number from 1e-06 to 1e\+06, found 0"),
        ("gcr(scale=1.5)", "scale of gcr must be a number from 0 to 1, found 1.5"),
        ("camera_norm(ridge=0)", r"ridge of camera_norm must be a number from 1e-09 to 1e\+09, found 0"),
        ("camera_norm(statistics=each)", "statistics of camera_norm must be per_camera or all, found 'each'"),
        ("camera_norm(operation=pca)", "operation of camera_norm must be whiten or centre"),
        ("aqe(k=5)+dba(k=5)", "dba after aqe would change the gallery"),
        ("dba(k=1)+fastreid(k=2)+dba(k=5)", "dba after fastreid would change the gallery"),
        ("gcr+dba(k=2)", "dba after gcr would change the gallery"),
        ("aqe(k=3)+camera_norm", "camera_norm after aqe would change the gallery"),
        ("aqe(k=2)+whiten", "whiten after aqe would change the gallery"),
    ],
)
def test_invalid_specs_are_refused(spec, words):
    with pytest.raises(InputError, match=words) as caught:
        parse_expand(spec)
    assert "\n" not in str(caught.value)


def test_an_unknown_method_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'alpha_qe'"):
        parse_expand("alpha_qee(k=3)")


def test_steps_can_be_made_one_by_one():
    assert make_step("alpha_qe", {"k": 4}) == Expansion("alpha_qe", 4, alpha=3.0)
    with pytest.raises(InputError, match="put dba first"):
        parse_expand([Expansion("aqe", 2), Expansion("dba", 2)])


@pytest.mark.parametrize(
    ("spec", "n_others", "unchanged"),
    [
        ("aqe(k=0)", 0, True),
        ("aqe(k=1)", 1, False),
        ("aqe(k=1,include_self=true)", 0, True),
        ("aqe(k=3,include_self=true)", 2, False),
        ("dba(k=2)", 2, False),
        ("fastreid(k=0)", 0, True),
        ("fastreid(k=3)", 2, False),
    ],
)
def test_how_many_neighbours_besides_the_item(spec, n_others, unchanged):
    (step,) = parse_expand(spec)
    assert (step.n_others, step.changes_nothing) == (n_others, unchanged)
