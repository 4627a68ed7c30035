"""What a report, a sweep and a report over splits are headed by: the name of the run, its date, its command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from reid_dist.core.formatting import utc_now

_DIGEST_DIGITS = 16


@dataclass(frozen=True, slots=True)
class Heading:
    """The head of a page or of a table.

    Attributes
    ----------
    title
        Name of the run; without one, its stages.
    stages
        Protocol, distance and what comes before the ranking; empty where they are the title.
    description
        Of the run; may be empty.
    facts
        Date, version, digest and command, by name, as far as they are known.
    """

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
    """Return where a report comes from, with the date of now.

    Parameters
    ----------
    name
        Of the run.
    description, command
        Empty for none.
    """
    given = {"name": name, "description": " ".join(description.split()), "date": utc_now(), "command": command}
    return {key: text for key, text in given.items() if text}


def make_heading(
    run: Mapping[str, str], stages: Iterable[Mapping[str, Any] | None], environment: Mapping[str, Any], digest: str
) -> Heading:
    """Return the head of a report.

    Parameters
    ----------
    run
        See `described_run`; empty where nothing is known.
    stages
        Descriptions of protocol, distance and so on.
    environment
        With the version under ``reid_dist``.
    digest
        Of the result.
    """
    names = (str(stage.get("name", "unnamed")) for stage in stages if stage is not None)
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
