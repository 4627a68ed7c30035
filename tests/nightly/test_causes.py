"""What a moved number may come from: what differs between two nights of a job."""

from __future__ import annotations

import dataclasses
from typing import Any

import example_nights as nights
import pytest

from reid_dist.nightly.causes import causes, compared_with
from reid_dist.nightly.history.history_values import Entry, State


def test_causes_are_searched_since_the_baseline_of_the_gate() -> None:
    """The last good run may be older than last night."""
    old, bad = nights.entry(night=0), nights.entry(night=1, features="z")
    earlier = [
        nights.run(0, [old]),
        nights.run(1, [bad]),
        nights.run(2, [nights.undone_entry(State.FAILED, "x", night=2)]),
    ]
    today = nights.worse_entry(3, baseline=1)
    assert compared_with(today, earlier) == (earlier[0], old)
    ungated = dataclasses.replace(today, findings=())
    assert compared_with(ungated, earlier) == (earlier[1], bad), "else the last that was done"
    assert compared_with(ungated, earlier[2:]) is None


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (
            {"input_digest": "new", "inputs": {"query": {"content_digest": "b", "uri": "here"}}},
            [("inputs", "query.content_digest", "b")],
        ),
        ({"input_digest": "new"}, [("inputs", "", "new")]),
        ({"inputs": {"query": {"content_digest": "a", "uri": "elsewhere"}}}, []),
        ({"job_digest": "new", "conventions": {"rerank": {"k1": 25}}}, [("job", "rerank.k1", "25")]),
        ({"conventions": {"rerank": {"k1": 20, "summary": "reworded"}}}, []),
        ({"labels": {"commit": "8"}}, [("labels", "commit", "8")]),
        ({"environment": {"numpy": "2", "host": "one"}}, [("version", "numpy", "2")]),
        ({"environment": {"numpy": "1", "host": "two"}}, []),
        ({"environment": {"host": "one"}}, [("version", "numpy", "absent")]),
        ({"machine": {"cores": 8}}, [("machine", "cores", "8")]),
    ],
)
def test_causes_and_their_kinds(change: dict[str, Any], found: list[tuple[str, str, str]]) -> None:
    before = Entry(
        model="m",
        dataset="d",
        job="j",
        labels={"commit": "7"},
        input_digest="old",
        job_digest="old",
        inputs={"query": {"content_digest": "a", "uri": "here"}},
        conventions={"rerank": {"k1": 20}},
        environment={"numpy": "1", "host": "one"},
        machine={"cores": 4},
    )
    after = dataclasses.replace(before, **change)
    assert [(cause.kind, cause.field, cause.after) for cause in causes(before, after)] == found


def test_digests_with_equal_beginnings_are_in_full() -> None:
    digests = ["0123456789abcdef" + last for last in "01"]
    near, far = (
        Entry(model="m", dataset="d", job="j", input_digest=each, inputs={"query": {"content_digest": each}})
        for each in digests
    )
    (cause,) = causes(near, far)
    assert [cause.before, cause.after] == digests
