"""The head of a page or table: name of the run, date, command, and the caution shown before any number.

A caution states warnings of the run and weak evidence: a small share of valid queries, or few identities.  A mean over
7 of 100 queries, or over 3 identities, is printed with as many digits as one over 3,368 queries of 750 identities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.formatting import counted, integer, share, utc_now
from reid_dist.metrics.confidence import FEW_UNITS, VERY_FEW_UNITS
from reid_dist.relevance.protocols import CAMERA_NOT_COUNTED, ZERO
from reid_dist.reports.words import stage_name

WARNING: Final = "warning: "
"""Prefix of notes that are shown before any number."""

CAUTION: Final = "caution"
STRONG: Final = "strong"

_WORDS: Final = {CAUTION: "Caution", STRONG: "Warning"}

# Nearly all queries of a complete data set are valid.  Below half, the mean is that of a minority; below a tenth, the
# likelier explanation is labels, cameras or splits that do not match.
_HALF: Final = 0.5
_TENTH: Final = 0.1

_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a page or table: title, stages (empty where they are the title), description, and facts by name."""

    title: str
    stages: str
    description: str
    facts: tuple[tuple[str, str], ...]

    @property
    def lines(self) -> list[str]:
        """Title, stages and description, as far as there are any."""
        return [text for text in (self.title, self.stages, self.description) if text]

    def chosen(self, *names: str) -> dict[str, str]:
        """Return the facts of these names that are known."""
        return {name: text for name, text in self.facts if name in names}


def described_run(name: str, *, description: str = "", command: str = "") -> dict[str, str]:
    """Return the entry ``run`` of a report, with the current date; texts may be empty."""
    given = {"name": name, "description": " ".join(description.split()), "date": utc_now(), "command": command}
    return {key: text for key, text in given.items() if text}


def make_heading(
    run: Mapping[str, str], stages: Iterable[Mapping[str, Any] | None], environment: Mapping[str, Any], digest: str
) -> Heading:
    """Return the head of a report from its entries ``run`` and ``environment``, its stages and its result digest."""
    names = (stage_name(stage) for stage in stages if stage is not None)
    title, name = " \N{MIDDLE DOT} ".join(names), run.get("name", "")
    facts = {
        "date": run.get("date", ""),
        "version": f"reid-dist {environment['reid_dist']}" if environment.get("reid_dist") else "",
        "digest": digest[:_DIGEST_DIGITS],
        "command": run.get("command", ""),
    }
    return Heading(
        title=name or title,
        stages=title if name and name != title else "",
        description=run.get("description", ""),
        facts=tuple((fact, text) for fact, text in facts.items() if text),
    )


@dataclass(frozen=True, slots=True)
class Caution:
    """Warnings and weak evidence: a level (``"caution"`` or ``"strong"``), and one clause per reason."""

    level: str
    reasons: tuple[str, ...]

    @property
    def word(self) -> str:
        """The level in a word."""
        return _WORDS[self.level]

    @property
    def text(self) -> str:
        """The reasons as one sentence."""
        return "; ".join(self.reasons)

    @property
    def line(self) -> str:
        """The whole, for text without colours."""
        return f"{self.word.upper()}: {self.text}"


def without_warnings(notes: Sequence[str]) -> list[str]:
    """Return the notes that are no part of the caution."""
    return [note for note in notes if not note.startswith(WARNING)]


def caution_of(
    counts: Mapping[str, Any], protocol: Mapping[str, Any], identities: int | None, notes: Sequence[str]
) -> Caution | None:
    """Return the caution for counts, number of identities (None: unknown) and warnings among the notes, or None."""
    # A query of a camera that the protocol does not count is invalid by design.
    n_query = counts["n_query"] - counts.get("n_invalid_by_reason", {}).get(CAMERA_NOT_COUNTED, 0)
    n_valid = counts["n_valid"]
    reasons = [note.removeprefix(WARNING) for note in dict.fromkeys(notes) if note.startswith(WARNING)]
    levels = [STRONG] * len(reasons)
    if n_query and n_valid < _HALF * n_query:
        levels.append(STRONG if n_valid < _TENTH * n_query else CAUTION)
        others = "the others count as 0" if protocol.get("invalid_query") == ZERO else "the means are over these alone"
        reasons.append(
            f"only {integer(n_valid)} of {counted(n_query, 'query')} ({share(n_valid, n_query)}) "
            f"{'is' if n_valid == 1 else 'are'} valid, and {others}"
        )
    if identities is not None and identities < FEW_UNITS:
        levels.append(STRONG if identities < VERY_FEW_UNITS else CAUTION)
        reasons.append(f"the numbers rest on {counted(identities, 'identity')}")
    if not levels:
        return None
    return Caution(STRONG if STRONG in levels else CAUTION, tuple(reasons))
