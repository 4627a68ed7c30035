"""Errors as objects: message, details and faults, in this process and in another one."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path

import pytest
from distributed.protocol import deserialize, serialize

from reid_dist import errors
from reid_dist.core.formatting import short_digests
from reid_dist.core.registry import unknown_name
from reid_dist.core.yaml_text import Document, parse_yaml
from reid_dist.errors import FaultsError, InputError, ReidDistError, StoreNotFoundError, load_all, refusal, refuse

CLASSES = [each for name in errors.__all__ if issubclass(each := getattr(errors, name), ReidDistError)]


@pytest.mark.parametrize("details", [(), ("one", "two")])
@pytest.mark.parametrize("kind", CLASSES)
def test_details_survive_pickling_and_workers_and_are_in_tracebacks(
    kind: type[ReidDistError], details: tuple[str, ...]
) -> None:
    made = kind("what is wrong; what to do", details=details)
    for error in (pickle.loads(pickle.dumps(made)), deserialize(*serialize(made))):
        assert type(error) is kind
        assert (str(error), error.details) == ("what is wrong; what to do", details)
        assert error.in_one_line == "; ".join(("what is wrong; what to do", *details))
    lines = "".join(f"\n  {line}" for line in details)
    shown = "".join(traceback.format_exception_only(pickle.loads(pickle.dumps(made))))
    assert shown.endswith(f"what is wrong; what to do{lines}\n")


def test_one_fault_is_the_message_and_several_are_details() -> None:
    refuse([], "file")
    alone, named = refusal(["a is 1"], many="options"), refusal(["a is 1"], "file")
    assert [type(each) for each in (alone, named)] == [InputError, InputError]
    assert (str(alone), str(named)) == ("a is 1", "file: a is 1")
    with pytest.raises(FaultsError) as caught:
        refuse(["a is 1", "b is 2"], many="options", count=5)
    assert str(caught.value) == "options: 5 problems"
    assert caught.value.faults == caught.value.details == ("a is 1", "b is 2")


def test_all_runs_that_cannot_be_loaded_are_named() -> None:
    def load(name: str) -> Path:
        if name.startswith("no"):
            raise StoreNotFoundError(f"there is no {name}", details=["look again"])
        return Path(name)

    assert load_all(load, ["a", "b"]) == [Path("a"), Path("b")]
    with pytest.raises(StoreNotFoundError) as alone:
        load_all(load, ["a", "no1"])
    assert alone.value.details == ("look again",)
    with pytest.raises(FaultsError) as several:
        load_all(load, ["no1", "a", "no2"])
    assert several.value.faults == ("there is no no1", "there is no no2")


def test_many_known_names_are_details() -> None:
    few = unknown_name("colour", "gren", ["green", "red"])
    assert (str(few), few.details) == ("unknown colour 'gren'; did you mean 'green'? known: green, red", ())
    names = [f"colour-{number}" for number in range(40)]
    near, far = unknown_name("colour", "colour_7", names), unknown_name("colour", "xyz", names)
    assert str(near) == "unknown colour 'colour_7'; did you mean 'colour-7'?"
    assert str(far) == "unknown colour 'xyz'; known: colour-0, colour-1, colour-10, colour-11 and 36 more"
    for error in (near, far):
        assert error.faults == (str(error),)
        (listed,) = error.details
        assert all(name in listed for name in names)


def test_digests_are_short_where_that_tells_them_apart() -> None:
    one, other = "a" * 64, "b" * 64
    assert short_digests(one, other) == ["a" * 12, "b" * 12]
    assert short_digests(one, "none") == ["a" * 12, "none"]
    late = "a" * 63 + "0"
    assert short_digests(one, late) == [one, late]


TEXT = """base: &base
  distance: cosine
jobs:
  plain:
    <<: *base
    metrics:
      - mAP
      - wrong
"""


@pytest.mark.parametrize(
    ("path", "place"),
    [
        (("jobs", "plain", "metrics"), "line 6, jobs.plain.metrics"),
        (("jobs", "plain", "metrics", 1), "line 8, jobs.plain.metrics.1"),
        # Of a key that is missing, the line of what lacks it.
        (("jobs", "plain", "query"), "line 4, jobs.plain.query"),
        # What a merge brought in is where it was written.
        (("jobs", "plain", "distance"), "line 2, jobs.plain.distance"),
        # The form of a value that a model tried is no key.
        (("jobs", "text", "plain"), "line 4, jobs.plain"),
        (("jobs", "plain", "metrics", "text"), "line 6, jobs.plain.metrics"),
        (("nothing",), "nothing"),
        ((), "the file"),
    ],
)
def test_places_of_values(path: tuple[int | str, ...], place: str) -> None:
    assert parse_yaml(TEXT, "file").place(path) == place


def test_values_of_a_command_have_its_place() -> None:
    document = parse_yaml(TEXT, "file")
    changed = Document(document.content, document.root, (("jobs", "plain", "metrics"),))
    assert changed.place(("jobs", "plain", "metrics", 1)) == "--set jobs.plain.metrics.1"
    assert changed.place(("jobs", "plain")) == "line 4, jobs.plain"
    assert changed.place(("nothing",)) == "nothing"
