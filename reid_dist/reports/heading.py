"""The head of a page or table: name of the run, date and command, and whether its numbers rest on little."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.findings import Finding, caution, warning
from reid_dist.core.formatting import utc_now
from reid_dist.metrics.confidence import FEW_UNITS, VERY_FEW_UNITS
from reid_dist.relevance.protocols import CAMERA_NOT_COUNTED, ZERO
from reid_dist.reports.words import stage_name

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


def weak_evidence(counts: Mapping[str, Any], protocol: Mapping[str, Any], identities: int | None) -> list[Finding]:
    """Return what counts and number of identities (None: unknown) say against the numbers; nothing where all is well.

    A mean over 7 of 100 queries, or over 3 identities, is printed with as many digits as one over 3,368 queries of 750
    identities.
    """
    # A query of a camera that the protocol does not count is invalid by design.
    n_query = counts["n_query"] - counts.get("n_invalid_by_reason", {}).get(CAMERA_NOT_COUNTED, 0)
    n_valid, found = counts["n_valid"], []
    if n_query and n_valid < _HALF * n_query:
        say = warning if n_valid < _TENTH * n_query else caution
        at_zero = protocol.get("invalid_query") == ZERO
        found.append(say("few_valid_queries", n_valid=n_valid, n_query=n_query, at_zero=at_zero))
    if identities is not None and identities < FEW_UNITS:
        say = warning if identities < VERY_FEW_UNITS else caution
        found.append(say("few_identities", n=identities))
    return found
