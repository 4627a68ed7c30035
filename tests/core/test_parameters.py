"""Declarations: what a value of a type may be, the words for it, and texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest

from reid_dist.core.parameters import Parameter, check_values
from reid_dist.errors import InputError

HUGE = 10**400


@pytest.mark.parametrize(
    ("kind", "limits", "right", "wrong", "words"),
    [
        (bool, None, [True, np.False_], [1, 0.0, "true", None, np.array([True])], "true or false"),
        (int, (1, 9), [1, 9, np.uint8(3)], [0, 10, 2.0, True, "3", None, HUGE], "a whole number from 1 to 9"),
        (int, (0, math.inf), [0, HUGE], [-1, math.inf], "a whole number from 0"),
        (int | None, (1, 2**31 - 1), [None, 5], [0, 2**31], "a whole number from 1 to 2**31 - 1, or None"),
        (float, (0, 1), [0, 1, 0.5, np.float32(0.25)], [-1e-9, math.nan, True, "0.5"], "a number from 0 to 1"),
        (float, None, [-1e308, 7], [math.inf, -HUGE, math.nan, Fraction(1, 2)], "a number"),
        (str, None, ["", "a"], [b"a", 1, None], "text"),
        (Literal["a", "b", "c"], None, ["a", "c"], ["d", "", 1, None], "a, b or c"),
        (int | Literal["all"], (1, 4), [2, "all"], [0, "few"], "a whole number from 1 to 4, or all"),
        (Sequence[str] | None, None, [(), ["a"], None], ["a", ["a", 1], {"a"}, 5], "a list of names, or None"),
        (Sequence[float], None, [[1, 0.5], np.arange(3)], ["1", [True], [math.nan], 2.0], "a list of numbers"),
        (Sequence[int] | Literal["few"], None, [[3], "few"], [[0.5], "x"], "a list of whole numbers, or few"),
    ],
)  # fmt: skip
def test_values_of_a_type(kind, limits, right, wrong, words) -> None:
    declared = Parameter(limits=limits).of_type("x", kind)
    for value in right:
        found = declared.check(value)
        assert type(found).__module__ == "builtins"
        assert found == (tuple(value) if isinstance(value, list | np.ndarray) else value)
    for value in wrong:
        with pytest.raises(ValueError, match=r"^must be ") as refused:
            declared.check(value)
        assert str(refused.value) == f"must be {words}"


def test_limits_that_are_excluded() -> None:
    declared = Parameter(limits=(0, 1), exclusive=True).of_type("level", float)
    assert declared.check(0.5) == 0.5
    for value in (0, 1):
        with pytest.raises(ValueError, match=r"^must be a number between 0 and 1$"):
            declared.check(value)


def test_numbers_of_a_list_keep_their_kinds() -> None:
    """As 1 is a row and 1.0 a share."""
    declared = Parameter().of_type("sizes", Sequence[float])
    for found in (declared.check([1, 1.0, np.int64(2)]), declared.read("1,1.0,2")):
        assert found == (1, 1.0, 2)
        assert [type(each) for each in found] == [int, float, int]


def test_one_text_for_a_list() -> None:
    declared = Parameter().of_type("metrics", str | Sequence[str] | None)
    assert declared.check("mAP, CMC@1") == declared.check(["mAP", "CMC@1"]) == declared.check(["mAP,CMC@1"])


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (int, "12", 12),
        (float, "1e-3", 1e-3),
        (float, "0.1", 0.1),
        (bool, "false", False),
        (str, "7", "7"),
        (int | Literal["all"], "all", "all"),
        (Sequence[int] | Literal["hardest"] | None, "3,17", (3, 17)),
        (Sequence[int] | Literal["hardest"] | None, "hardest", "hardest"),
    ],
)
def test_texts(kind, text, value) -> None:
    assert Parameter().of_type("x", kind).read(text) == value


@pytest.mark.parametrize(("kind", "text"), [(int, "1.0"), (int | None, "None"), (float, "nan"), (bool, "yes")])
def test_texts_that_mean_no_value(kind, text) -> None:
    with pytest.raises(ValueError, match=r"^must be") as refused:
        Parameter().of_type("x", kind).read(text)
    assert "None" not in str(refused.value)


def test_one_error_names_all_that_are_wrong() -> None:
    declared = {name: Parameter(limits=(1, 9)).of_type(name, int) for name in ("a", "b", "c")}
    with pytest.raises(InputError) as refused:
        check_values(declared, {"a": 0, "b": 2, "c": np.ones((50, 50))}, of=" of it")
    first, last = refused.value.faults
    assert first == "a of it must be a whole number from 1 to 9, found 0"
    assert last.startswith("c of it must be a whole number from 1 to 9, found array([[1., 1.")
    assert "\n" not in last
    assert len(last) < 200
