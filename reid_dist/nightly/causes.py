"""Differences between two nights of a job, which may explain a changed result or prevent a comparison."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from reid_dist.core.formatting import shortened
from reid_dist.core.nested import ABSENT, PROSE, differing_fields
from reid_dist.nightly.history.history_values import Difference, Entry, Run, State
from reid_dist.reports.words import scalar


class CauseKind(StrEnum):
    """What differs between two nights; the initials are letters on a chart."""

    INPUTS = "inputs"
    JOB = "job"
    LABELS = "labels"
    VERSION = "version"
    MACHINE = "machine"

    @property
    def letter(self) -> str:
        """Letter on a chart."""
        return self[0].upper()


# Fields of the environment that describe the machine.  The host name alone is no cause: it differs with every pod.
_MACHINE: Final = ("platform", "cpu", "cores")
_HOST: Final = "host"

# Changes of the inputs before tonight's that make a change of every night.
_EVERY: Final = 3
_DIGITS: Final = frozenset(string.hexdigits.lower())
_LONGEST: Final = 100


@dataclass(frozen=True, slots=True)
class Cause:
    """One difference: its kind, the name of the field, and its values as text."""

    kind: CauseKind
    field: str
    before: str
    after: str


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the differences of two descriptions; names of nested values are joined by dots."""
    return [(field.name, field.texts[0], field.texts[1]) for field in differing_fields((before, after), scalar)]


def job_differences(before: Entry, after: Entry) -> list[Difference]:
    """Return differences of two jobs; in prose only where nothing else differs."""
    found = differing(before.conventions, after.conventions)
    return [each for each in found if not _is_prose(each[0])] or found


def place_differences(before: Entry, after: Entry) -> list[Difference]:
    """Return differences of versions, commits and machines."""
    found = differing(before.environment, after.environment) + differing(before.machine, after.machine)
    return list(dict.fromkeys(found))


def brief(text: str, digits: int = 8) -> str:
    """Return the first digits of a digest, and any other text of at most a hundred characters."""
    return text[:digits] if len(text) >= 16 and set(text) <= _DIGITS else shortened(text, _LONGEST)


def compared_with(entry: Entry, earlier: Sequence[Run]) -> tuple[Run, Entry] | None:
    """Return the baseline of an entry: its run and the entry there.

    The baseline of a gate of accuracy, first of all of one that found a loss; without it, the last run in which the job
    was done.
    """
    found_by = [finding for gate in ("accuracy", "trend") if (finding := entry.finding(gate)) is not None]
    finding = next((each for each in found_by if each.is_regression), entry.finding("accuracy"))
    number = None if finding is None else finding.baseline
    found = done_before(entry, earlier)
    return next((pair for pair in found if pair[0].number == number), found[-1] if found else None)


def done_before(entry: Entry, earlier: Sequence[Run]) -> list[tuple[Run, Entry]]:
    """Return the earlier runs, oldest first, in which the job of an entry was done, with the entry there."""
    return [(run, old) for run in earlier if (old := run.entry(entry.name)) is not None and old.state == State.DONE]


def changes_every_night(entry: Entry, earlier: Sequence[Run]) -> bool:
    """Return whether the inputs of a job are other ones in each of the last nights, three or more before tonight."""
    nights = [*(old for _, old in done_before(entry, earlier)), entry][-2 - _EVERY :]
    digests = [night.input_digest for night in nights]
    return len(digests) == 2 + _EVERY and all(near != far for near, far in itertools.pairwise(digests))


def content_digests(entry: Entry) -> dict[str, Any]:
    """Return the digest of the content of every input by its name."""
    return {
        name: described.get("content_digest")
        for name, described in entry.inputs.items()
        if isinstance(described, Mapping)
    }


def causes(before: Entry, after: Entry) -> Iterator[Cause]:
    """Yield all differences of two entries of one job that a result may depend on, by kind."""
    # Digests decide: a store may move, and a description may be reworded.
    if before.input_digest != after.input_digest:
        found = list(_causes(CauseKind.INPUTS, before.inputs, after.inputs))
        yield from found or [_digests(CauseKind.INPUTS, before.input_digest, after.input_digest)]
    if before.job_digest != after.job_digest:
        found = list(_causes(CauseKind.JOB, before.conventions, after.conventions))
        yield from found or [_digests(CauseKind.JOB, before.job_digest, after.job_digest)]
    yield from _causes(CauseKind.LABELS, before.labels, after.labels)
    yield from _causes(CauseKind.VERSION, *(_versions(entry) for entry in (before, after)))
    yield from _causes(CauseKind.MACHINE, *(_machine(entry) for entry in (before, after)))


@dataclass(frozen=True, slots=True)
class PastEntry:
    """One night of a job, whose entry is None where the run did not have it.

    `changes` are the differences from the last night in which it was done.
    """

    run: Run
    entry: Entry | None
    changes: tuple[Cause, ...]

    def value(self, name: str) -> float | None:
        """Return the value of a metric; None where there is none."""
        return None if self.entry is None else self.entry.value(name)

    @property
    def letters(self) -> str:
        """Letters of the kinds of changes, each once."""
        kinds = {cause.kind for cause in self.changes}
        return "".join(kind.letter for kind in CauseKind if kind in kinds)


def past_entries(name: str, runs: Sequence[Run]) -> list[PastEntry]:
    """Return all nights of a job since the first that has it, oldest first."""
    found: list[PastEntry] = []
    before: Entry | None = None
    for run in runs:
        entry = run.entry(name)
        if entry is None and not found:
            continue
        done = entry is not None and entry.state == State.DONE
        found.append(PastEntry(run, entry, tuple(causes(before, entry)) if done and before and entry else ()))
        before = entry if done else before
    return found


def _versions(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry.environment.items() if name not in (*_MACHINE, _HOST)}


def _machine(entry: Entry) -> dict[str, Any]:
    named = {name: entry.environment[name] for name in _MACHINE if name in entry.environment}
    return named | {name: value for name, value in entry.machine.items() if name != _HOST}


def _causes(kind: CauseKind, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Cause]:
    for name, near, far in differing(before, after):
        if not _is_prose(name):
            yield _cause(kind, name, near, far)


def _digests(kind: CauseKind, before: str, after: str) -> Cause:
    return _cause(kind, "", before or ABSENT, after or ABSENT)


def _cause(kind: CauseKind, name: str, near: str, far: str) -> Cause:
    cut = brief(near), brief(far)
    # In full where the shortened texts are equal.
    return Cause(kind, name, *(cut if cut[0] != cut[1] else (near, far)))


def _is_prose(name: str) -> bool:
    return name.rpartition(".")[2] in PROSE
