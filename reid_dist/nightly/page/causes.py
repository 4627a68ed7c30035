"""Differences between two nights of a job that may explain a changed result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.nightly.gating.differences import PROSE
from reid_dist.nightly.history.values import DONE, Entry, Run
from reid_dist.nightly.wording import shortened
from reid_dist.reports.words import flatten

INPUTS: Final = "inputs"
JOB: Final = "job"
LABELS: Final = "labels"
VERSION: Final = "version"
MACHINE: Final = "machine"

KINDS: Final[Mapping[str, tuple[str, str]]] = {
    INPUTS: ("I", "content of the inputs"),
    JOB: ("J", "definition of the job"),
    LABELS: ("L", "labels in the suite"),
    VERSION: ("V", "version or commit"),
    MACHINE: ("M", "machine"),
}
"""Letter on a chart and description, by kind."""

# Fields of the environment that describe the machine.  The host name alone is no cause: it differs with every pod.
_MACHINE: Final = ("platform", "cpu", "cores")
_HOST: Final = "host"
_DIGESTS: Final = {"content_digest": "content", "labels_digest": "identities and cameras"}


@dataclass(frozen=True, slots=True)
class Cause:
    """One difference: its kind of `KINDS`, the name of the field, and its values as text."""

    kind: str
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what} {self.before} \N{RIGHTWARDS ARROW} {self.after}"


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
    return [(run, old) for run in earlier if (old := run.entry(entry.name)) is not None and old.state == DONE]


def causes(before: Entry, after: Entry) -> Iterator[Cause]:
    """Yield all differences of two entries of one job that a result may depend on, by kind."""
    # Digests decide: a store may move, and a description may be reworded.
    if before.input_digest != after.input_digest:
        found = list(_differing(INPUTS, before.inputs, after.inputs))
        yield from found or [_digests(INPUTS, "inputs", before.input_digest, after.input_digest)]
    if before.job_digest != after.job_digest:
        found = list(_differing(JOB, before.conventions, after.conventions))
        yield from found or [_digests(JOB, "job", before.job_digest, after.job_digest)]
    yield from _differing(LABELS, before.labels, after.labels)
    yield from _differing(VERSION, *(_versions(entry) for entry in (before, after)))
    yield from _differing(MACHINE, *(_machine(entry) for entry in (before, after)))


def _versions(entry: Entry) -> dict[str, Any]:
    return {name: value for name, value in entry.environment.items() if name not in (*_MACHINE, _HOST)}


def _machine(entry: Entry) -> dict[str, Any]:
    named = {name: entry.environment[name] for name in _MACHINE if name in entry.environment}
    return named | {name: value for name, value in entry.machine.items() if name != _HOST}


def _differing(kind: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Cause]:
    old, new = (dict(flatten(each)) for each in (before, after))
    for name in dict.fromkeys([*old, *new]):
        near, far = old.get(name, "none"), new.get(name, "none")
        if near == far or name.rpartition(".")[2] in PROSE:
            continue
        cut = shortened(near), shortened(far)
        # In full where the shortened texts are equal.
        yield Cause(kind, _field_name(name), *(cut if cut[0] != cut[1] else (near, far)))


def _field_name(name: str) -> str:
    """Return the name of a field for people."""
    side, _, field = name.rpartition(".")
    if side and field in _DIGESTS:
        return f"{_DIGESTS[field]} of {side}"
    return "commit" if field == "git_commit" else name


def _digests(kind: str, what: str, before: str, after: str) -> Cause:
    return Cause(kind, f"digest of the {what}", *(shortened(each) or "none" for each in (before, after)))
