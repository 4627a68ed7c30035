"""Search of patterns in names: those of a user in a process of its own, since some never end on some texts.

An expression with a repetition within a repetition may try more ways to split a text than there is time for, and keeps
all threads of its process waiting meanwhile; only a signal to the main thread ends it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

from reid_dist.core.formatting import counted
from reid_dist.errors import InputError, RunFailedError
from reid_dist.stores.importers.name_layouts import search_process
from reid_dist.stores.importers.name_layouts.definition import NameLayout
from reid_dist.stores.importers.name_layouts.search_process import receive, send

_LIMIT_S: Final = 10.0
"""Seconds of computing for one block of names, which usually takes some milliseconds."""

_LONGEST_SHOWN = 80

Groups: TypeAlias = tuple[Any, ...] | None
"""Texts of the groups of a layout in a name, and of the whole match; None for a name that does not fit."""

Search: TypeAlias = Callable[[int, list[str]], list[Groups]]
"""Searches consecutive names, of which the first one is in the given row."""


@contextmanager
def searching(layout: NameLayout) -> Iterator[Search]:
    """Search of the labels of a layout in names: in base names, or in paths for patterns that hold a ``/``."""
    if layout.is_limited:
        with _process(layout) as search:
            yield search
    else:
        yield lambda _, block: _found(layout, block)


def _of_pattern(pattern: re.Pattern[str], block: list[str]) -> list[str]:
    return block if "/" in pattern.pattern else [path[path.rfind("/") + 1 :] for path in block]


def _found(layout: NameLayout, block: list[str]) -> list[Groups]:
    """Search by the first pattern, and where that does not fit by the others."""
    first, *others = layout.patterns
    found = list(map(first.search, _of_pattern(first, block)))
    for pattern in others:
        if None not in found:
            break
        texts = _of_pattern(pattern, block)
        found = [pattern.search(texts[row]) if match is None else match for row, match in enumerate(found)]
    return [match and match.group(*layout.groups, 0) for match in found]


@contextmanager
def _process(layout: NameLayout) -> Iterator[Search]:
    (pattern,) = layout.patterns
    # Isolated, and without the modules that sites add: it starts in some hundredths of a second.
    words = [sys.executable, "-I", "-S", str(Path(search_process.__file__))]
    try:
        process = subprocess.Popen(  # noqa: S603
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError as error:
        raise RunFailedError(f"cannot start a process to search {pattern.pattern!r}: {error}") from error
    source, sink = process.stdout, process.stdin
    if source is None or sink is None:
        raise RunFailedError("a process was started without pipes")

    def search(start: int, block: list[str]) -> list[Groups]:
        texts = _of_pattern(pattern, block)
        send(sink, texts)
        answer = receive(source)
        if answer is None:
            raise BrokenPipeError
        if isinstance(answer, list):
            return answer
        raise InputError(
            f"{layout.name} {pattern.pattern!r} takes more than {_LIMIT_S:g} s for {counted(len(texts), 'name')}, and "
            f"was at row {start + answer}: {texts[answer][:_LONGEST_SHOWN]!r}; a repetition within a repetition, such "
            "as ([a-z]+)+, tries all ways to split a text: write it as one, such as [a-z]+"
        )

    try:
        with process:
            try:
                send(sink, (pattern.pattern, layout.groups, _LIMIT_S))
                yield search
            finally:
                process.kill()
    except BrokenPipeError:
        raise RunFailedError(f"the process that searched {pattern.pattern!r} has ended; run again") from None
