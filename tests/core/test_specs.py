"""Specs: names and calls, read from left to right, and what cannot be read."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.core.specs import Call, call_text, parse_spec, value_text
from reid_dist.errors import InputError


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("k_reciprocal", [Call("k_reciprocal")]),
        ("k_reciprocal()", [Call("k_reciprocal")]),
        ("  k_reciprocal (  ) ", [Call("k_reciprocal")]),
        ("aqe(k=5)", [Call("aqe", {"k": 5})]),
        ("f( k = 5 , a=x )", [Call("f", {"k": 5, "a": "x"})]),
        ("dba(k=5)+alpha_qe(k=5,alpha=3)", [Call("dba", {"k": 5}), Call("alpha_qe", {"k": 5, "alpha": 3})]),
        ("a + b+c", [Call("a"), Call("b"), Call("c")]),
        ("f(a=-3,b=+4,c=0.5,d=1e-3,e=.5)", [Call("f", {"a": -3, "b": 4, "c": 0.5, "d": 1e-3, "e": 0.5})]),
        ("f(a=true,b=false,c=True,d=zhong)", [Call("f", {"a": True, "b": False, "c": "True", "d": "zhong"})]),
        ("f(a=inf)", [Call("f", {"a": float("inf")})]),
        ("f(a=b=c)", [Call("f", {"a": "b=c"})]),
    ],
)
def test_read(text, calls):
    found = parse_spec("thing", text)
    assert found == calls
    kinds = [[type(value) for value in call.values.values()] for call in found]
    assert kinds == [[type(value) for value in call.values.values()] for call in calls]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "a thing is a name or a call such as name(k=5), found ''"),
        ("   ", "a name or a call"),
        (None, "a name or a call such as name(k=5), found None"),
        (5, "a name or a call such as name(k=5), found 5"),
        (b"aqe", "a name or a call"),
        (["aqe"], "a name or a call"),
        ("aqe(", "cannot read thing 'aqe(' from '(' on"),
        ("aqe(k=5", "from '(k=5' on"),
        ("aqe(k=5))", "from ')' on"),
        ("aqe(k=5) dba", "from 'dba' on"),
        ("aqe(k=(5))", "cannot read 'k=(5)' in thing"),
        ("aqe(dba(k=5))", "cannot read 'dba(k=5)' in thing 'aqe(dba(k=5))'; values are given as key=value"),
        ("aqe+", "cannot read thing 'aqe+' from '' on"),
        ("+aqe", "from '+aqe' on"),
        ("aqe++dba", "from '+dba' on"),
        ("5aqe", "cannot read thing"),
        ("k-reciprocal", "from '-reciprocal' on"),
        ("aqe(5)", "cannot read '5' in thing 'aqe(5)'; values are given as key=value"),
        ("aqe(k=)", "cannot read 'k='"),
        ("aqe(=5)", "cannot read '=5'"),
        ("aqe(k=5,)", "cannot read ''"),
        ("aqe(,)", "cannot read ''"),
        ("aqe(k l=5)", "cannot read 'k l=5'"),
        ("aqe(k=5,k=6)", "k is given twice in thing 'aqe(k=5,k=6)'"),
    ],
)
def test_refused(text, part):
    with pytest.raises(InputError) as caught:
        parse_spec("thing", text)
    assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "calls"),
    [
        ("top(gnn)", [Call("top", {}, Call("gnn"))]),
        (
            " top( gnn ( k1 = 3, variant=a ) , m = 5 )+b",
            [Call("top", {"m": 5}, Call("gnn", {"k1": 3, "variant": "a"})), Call("b")],
        ),
        ("a(b(c(k=1),k=2),k=3)", [Call("a", {"k": 3}, Call("b", {"k": 2}, Call("c", {"k": 1})))]),
        ("a(k=1)", [Call("a", {"k": 1})]),
    ],
)
def test_calls_within_calls(text, calls):
    assert parse_spec("thing", text, nested=True) == calls


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("top(m=5,gnn)", "cannot read 'gnn' in thing 'top(m=5,gnn)'; values are given as key=value"),
        ("top(gnn,ecn)", "cannot read 'ecn' in thing"),
        ("top(gnn(k1=3)", "from '(gnn(k1=3)' on"),
        ("top(gnn(k1=3)m=5)", "cannot read thing 'gnn(k1=3)m=5' from 'm=5' on"),
        ("top(gnn+ecn)", "one thing at a time within top, found 'gnn+ecn'"),
        ("top(gnn,m=(5))", "cannot read 'm=(5)'"),
        ("top(5)", "cannot read '5'"),
    ],
)
def test_calls_within_calls_refused(text, part):
    with pytest.raises(InputError) as caught:
        parse_spec("thing", text, nested=True)
    assert part in str(caught.value)


NAMES = st.builds(str.__add__, st.sampled_from("aZ_"), st.text("abyzAZ059_", max_size=8))
NUMBERS = st.integers(-(10**9), 10**9) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
VALUES = NUMBERS | st.sampled_from(["zhong", "faiss_k1", "a/b", "x.y"])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (0.3, "0.3"),
        (1e-6, "1e-06"),
        (0.0, "0"),
        (-0.0, "0"),
        (5, "5"),
        (True, "true"),
        ("zhong", "zhong"),
        (np.float64(0.25), "0.25"),
        (np.int64(7), "7"),
        # More than six digits, and a neighbour of a short decimal.
        (1.2345671, "1.2345671"),
        (np.float64(1.2345674), "1.2345674"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1234567.0, "1234567.0"),
    ],
)
def test_values_as_they_are_written(value, text):
    assert value_text(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_and_its_neighbour_have_two_texts(value):
    texts = [value_text(each) for each in (value, np.nextafter(value, np.inf))]
    assert [float(text) for text in texts] == [value, np.nextafter(value, np.inf)]
    assert parse_spec("thing", f"f(a={texts[0]})")[0].values["a"] == value


@given(st.lists(st.tuples(NAMES, st.dictionaries(NAMES, VALUES, max_size=4)), min_size=1, max_size=3))
def test_what_is_written_is_read(calls):
    parts = [call_text(name, values) for name, values in calls]
    found = parse_spec("thing", "+".join(parts))
    assert [(call.name, call.values) for call in found] == calls
    for call, (_, values) in zip(found, calls, strict=True):
        # A number without a fraction is written as a whole one.
        kinds = [[isinstance(value, kind) for kind in (bool, str)] for value in call.values.values()]
        assert kinds == [[isinstance(value, kind) for kind in (bool, str)] for value in values.values()]


@given(st.text(alphabet="ab5_(),=+ .-é", max_size=12))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(InputError):
        calls = parse_spec("thing", text)
        assert calls
        assert all(call.name.isidentifier() for call in calls)
