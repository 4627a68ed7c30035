"""Counts with their nouns."""

from __future__ import annotations

import pytest

from reid_dist.core.plurals import counted, have


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
