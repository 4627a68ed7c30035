"""Counts with their nouns, bytes, durations and shares."""

from __future__ import annotations

import pytest

from reid_dist.core.formatting import (
    byte_size,
    counted,
    duration,
    first_few,
    have,
    percent,
    rate,
    rough_duration,
)


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (0, "camera", "0 cameras"),
        (1, "camera", "1 camera"),
        (2, "camera", "2 cameras"),
        (1, "identity", "1 identity"),
        (3_368, "valid query", "3,368 valid queries"),
        (2, "day", "2 days"),
        (2, "match", "2 matches"),
        (2, "gallery row", "2 gallery rows"),
    ],
)
def test_a_count_and_its_noun_agree(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_thousands_are_separated_unless_they_are_not_to_be() -> None:
    assert counted(1_234_567, "row") == "1,234,567 rows"
    assert counted(1_234_567, "row", separator="") == "1234567 rows"


def test_one_has_and_several_have() -> None:
    assert [have(["gallery"]), have(["query", "gallery"]), have(1), have(0)] == ["has", "have", "has", "have"]


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 * 2**20, "5.0 MiB"),
        (340 * 2**20, "340 MiB"),
        (3 * 2**40, "3,072 GiB"),
    ],
)
def test_bytes_are_in_the_largest_unit_that_they_reach(number: int, text: str) -> None:
    assert byte_size(number) == text


def test_durations_change_their_unit_with_their_length() -> None:
    seconds = (0.0123, 0.9996, 59.94, 59.96, 3599.6, 7260, float("inf"))
    texts = ["12 ms", "1.0 s", "59.9 s", "1 min 0 s", "1 h 0 min", "2 h 1 min", "-"]
    assert [duration(each) for each in seconds] == texts
    assert [rough_duration(each) for each in (0.1234, 99, 150, 9000)] == [
        "about 0.12 s", "about 99 s", "about 2 min", "about 2.5 h",
    ]  # fmt: skip


def test_shares_are_in_percent() -> None:
    assert [percent(0.12345), percent(float("nan")), rate(1e-8)] == ["12.35%", "undefined", "0.000001%"]


def test_long_lists_end_with_the_number_of_the_others() -> None:
    assert [first_few(list("abcd"), most) for most in (2, 4)] == ["a, b and 2 more", "a, b, c, d"]
    assert first_few(list("abc"), 1, "; ") == "a; and 2 more"
