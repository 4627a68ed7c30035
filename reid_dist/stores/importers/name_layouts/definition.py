"""What a layout is: labels in the names of images, and in the lists that come with a data set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import shortened
from reid_dist.core.registry import Registry, did_you_mean
from reid_dist.errors import InputError
from reid_dist.stores.labels import COLUMN_PREFIX

LABEL_OF_GROUP = {"pid": "pids", "camid": "camids", "item_id": "item_ids"}
_LONGEST_SHOWN = 200
_COMMON_GROUPS = ("pid", "camid")
EVALUATED = ""
"""The set of rows that are neither query nor gallery by themselves, and that are evaluated."""

Records = dict[str, NDArray[Any]]
"""Columns of the lists of a data set, (n,) each, by what they are; ``image_paths`` are the names, if there are any."""

Reader = Callable[[Sequence[Path]], Records]


class Coded(NamedTuple):
    """Texts of n rows: each text as written once, (v,), and the place of every row's text among them, (n,)."""

    texts: NDArray[np.str_]
    codes: NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class NameLayout:
    """How the names of a data set's images, and the lists beside them, hold labels.

    Attributes
    ----------
    name, summary, source
        As in every registry; the source is the page of the data set, or a published loader by repository and file.
    patterns
        Regular expressions, the first one that fits counts; all have the same groups.  Each is searched in the base
        name, or in the path with ``/`` if the expression holds a ``/``.  The groups ``pid``, ``camid`` and ``item_id``
        are these labels; any other group is a label column, which must be whole numbers.
    words
        By group: texts and what they denote, such as ``"A"`` for camera 1, or ``"unknown"`` for junk, ``-1``.
    first_camera
        The camera from which the data set counts; None where it has no cameras.
    folders
        By one or more consecutive components of the folder of an image: the set that it is in, ``query``, ``gallery``,
        or the name of one that is not evaluated.  The last ones in a path count.
    sets
        By group or column: texts and the set that a row of this label is in; `EVALUATED` for no side of its own.
    line
        A line of the data set's text lists, with the group ``name`` and those of `patterns`; None where a line is a
        name.
    list_sets
        By the name of a list (with ``*``): the set that it lists.
    read
        Reads lists of another form; None for text lists.
    stems
        Whether lists hold names without the suffix of the file.
    is_limited
        Whether the pattern is that of a user, which may take for ever, and is searched in a bounded time.
    """

    name: str
    summary: str
    source: str
    patterns: tuple[re.Pattern[str], ...] = ()
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    first_camera: int | None = 1
    folders: Mapping[str, str] = field(default_factory=dict)
    sets: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    line: re.Pattern[str] | None = None
    list_sets: Mapping[str, str] = field(default_factory=dict)
    read: Reader | None = None
    stems: bool = False
    is_limited: bool = False

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of the patterns, in their order."""
        return tuple(self.patterns[0].groupindex) if self.patterns else ()

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels that names of this layout hold, by what they are: ``pids``, ``camids``, ``columns/NAME``."""
        return tuple(map(label_of_group, self.groups))

    @property
    def form(self) -> str:
        """The patterns as text."""
        return " or ".join(pattern.pattern for pattern in self.patterns)

    def with_words(self, words: Mapping[str, Mapping[str, int]]) -> NameLayout:
        """Return the layout with further words, by group; InputError for a group that it does not have."""
        known = {*self.groups, *({} if self.line is None else self.line.groupindex), *_COMMON_GROUPS}
        for group, numbers in words.items():
            if group not in known:
                raise InputError(did_you_mean("group of words", group, known - {"name"}))
            for text, number in numbers.items():
                if isinstance(number, bool) or not isinstance(number, int):
                    raise InputError(f"the word {text!r} of {group} must denote a whole number, not {number!r}")
        merged = {group: {**self.words.get(group, {}), **_written(words.get(group, {}))}
                  for group in {**self.words, **words}}  # fmt: skip
        return replace(self, words=merged)


def _written(numbers: Mapping[str, int]) -> dict[str, str]:
    return {text: str(number) for text, number in numbers.items()}


LAYOUTS: Registry[NameLayout] = Registry("layout")


def label_of_group(group: str) -> str:
    """Return what the group of a pattern is."""
    return LABEL_OF_GROUP.get(group, COLUMN_PREFIX + group)


def layout_of_pattern(pattern: str) -> NameLayout:
    """Make a layout of a regular expression."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise InputError(
            f"--pattern {shortened(pattern, _LONGEST_SHOWN)!r} is no regular expression: {error}"
        ) from None
    if not {"pid", "camid"} & set(compiled.groupindex):
        raise InputError(
            f"--pattern {pattern!r} has neither a group pid nor a group camid; write them as (?P<pid>[0-9]+) and "
            "(?P<camid>[0-9]+)"
        )
    return NameLayout(
        name="--pattern",
        summary="a pattern of this command",
        source=pattern,
        patterns=(compiled,),
        first_camera=None,
        is_limited=True,
    )
