"""What changed between two nights of a job: what a moved number may come from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.nightly.gating.differences import PROSE
from reid_dist.nightly.history.values import DONE, Entry, Run
from reid_dist.nightly.page.standing import finding_of
from reid_dist.nightly.page.wording import shortened
from reid_dist.reports.words import flatten

__all__ = [
    "INPUTS",
    "JOB",
    "KINDS",
    "LABELS",
    "MACHINE",
    "VERSION",
    "Cause",
    "causes",
    "compared_with",
    "entry_of",
    "said_causes",
]

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
"""Letter on a chart and meaning, by kind."""

# Of the environment: what names the machine.  The host's name alone is no cause; a pod has another every night.
_MACHINE: Final = ("platform", "cpu", "cores")
_HOST: Final = "host"
_DIGESTS: Final = {"content_digest": "content", "labels_digest": "identities and cameras"}
_MOST_SAID: Final = 3


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that is not what it was.

    Attributes
    ----------
    kind
        One of `KINDS`.
    what
        Its name.
    before, after
        What it was and is, in words.
    """

    kind: str
    what: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.what} {self.before} \N{RIGHTWARDS ARROW} {self.after}"


def causes(before: Entry, after: Entry) -> tuple[Cause, ...]:
    """Return everything in which two entries of one job differ and that a number may come from, by kind."""
    return tuple(_causes(before, after))


def entry_of(run: Run, name: str) -> Entry | None:
    """Return the entry of a run by its name; None where it has none."""
    return next((entry for entry in run.entries if entry.name == name), None)


def compared_with(entry: Entry, earlier: Sequence[Run]) -> tuple[Run, Entry] | None:
    """Return the run that an entry is set against, with its entry there.

    The one that a gate of accuracy took, first of all one that found a loss; without it, the last one in which the job
    was done.
    """
    found_by = [finding for gate in ("accuracy", "trend") if (finding := finding_of(entry, gate)) is not None]
    finding = next((each for each in found_by if each.is_regression), finding_of(entry, "accuracy"))
    number = None if finding is None else finding.baseline
    found = [(run, old) for run in earlier if (old := entry_of(run, entry.name)) is not None and old.state == DONE]
    return next((pair for pair in found if pair[0].number == number), found[-1] if found else None)


def said_causes(found: Sequence[Cause]) -> str:
    """Return causes in one clause, the first few of them and the count of the others."""
    said = [str(cause) for cause in found[:_MOST_SAID]]
    if len(found) > _MOST_SAID:
        said.append(f"{len(found) - _MOST_SAID} more")
    return ", ".join(said)


def _causes(before: Entry, after: Entry) -> Iterator[Cause]:
    # The digests decide: a store that moved holds the same content, and a prose summary may be reworded.
    if before.input_digest != after.input_digest:
        told = list(_differing(INPUTS, before.inputs, after.inputs))
        yield from told or [_digests(INPUTS, "inputs", before.input_digest, after.input_digest)]
    if before.job_digest != after.job_digest:
        told = list(_differing(JOB, before.conventions, after.conventions))
        yield from told or [_digests(JOB, "job", before.job_digest, after.job_digest)]
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
        # Digests that agree in their first digits, and texts that differ far behind, are told in full.
        yield Cause(kind, _called(name), *(cut if cut[0] != cut[1] else (near, far)))


def _called(name: str) -> str:
    """Return a field as people call it; one that is not known stands as it is."""
    side, _, field = name.rpartition(".")
    if side and field in _DIGESTS:
        return f"{_DIGESTS[field]} of {side}"
    return "commit" if field == "git_commit" else name


def _digests(kind: str, what: str, before: str, after: str) -> Cause:
    return Cause(kind, f"digest of the {what}", *(shortened(each) or "none" for each in (before, after)))
