"""Findings: what a run has to say of its own numbers, as a code, a severity and values.

Programs read code, severity and values; :mod:`reid_dist.core.finding_words` words every code, for the console, for
pages and for documents alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Self

import numpy as np

INFO: Final = "info"
"""What a reader may want to know; no number is in doubt."""
CAUTION: Final = "caution"
"""Numbers that mean less than they seem to."""
WARNING: Final = "warning"
"""Numbers that are likely wrong, or that say next to nothing: shown before them."""

SEVERITIES: Final = (WARNING, CAUTION, INFO)
"""All severities, the gravest first."""

TEXT: Final = "text"
"""Code of notes that have a text alone: those of earlier versions, and of versions that know other codes."""

# How reports of earlier versions, whose notes were texts, marked warnings.
_MARK: Final = "warning: "


@dataclass(frozen=True, slots=True)
class Finding:
    """A note on a run; ``str`` gives its sentence.

    Attributes
    ----------
    code
        Kind of finding: a key of :data:`reid_dist.core.finding_words.WORDINGS`.
    severity
        ``"info"``, ``"caution"`` or ``"warning"``.
    values
        Numbers, strings and None by name, and tuples of these; numbers that are not finite are None.
    parts
        For a finding in several parts of a job, with different numbers in each: the noun of a part, the number of parts
        with the finding, the number of all parts, and the number of the first one, to which `values` belongs.
    """

    code: str
    severity: str
    values: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[str, int, int, int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", {name: _settled(value) for name, value in self.values.items()})

    def __hash__(self) -> int:
        return hash((self.code, self.severity, frozenset(self.values.items()), self.parts))

    def __str__(self) -> str:
        # Mostly a run has few findings, or none.
        from reid_dist.core.finding_words import worded

        return worded(self.code, self.values, self.parts)

    @property
    def kind(self) -> tuple[object, ...]:
        """Everything except the numbers; findings of the same kind in several parts are merged."""
        return (self.code, self.severity, *((name, _without_numbers(value)) for name, value in self.values.items()))

    def to_dict(self) -> dict[str, Any]:
        """Return the finding as plain Python values, with its sentence as ``text``."""
        parts = {} if self.parts is None else {"parts": list(self.parts)}
        values = {name: _listed(value) for name, value in self.values.items()}
        return {"code": self.code, "severity": self.severity, "values": values, **parts, "text": str(self)}

    @classmethod
    def restored(cls, entry: str | Mapping[str, Any]) -> Self:
        """Return the finding from the output of :meth:`to_dict`, or from the text of a note of an earlier version."""
        if isinstance(entry, str):
            severity = WARNING if entry.startswith(_MARK) else INFO
            return cls(TEXT, severity, {"text": entry.removeprefix(_MARK)})
        # A severity of a later version is shown as the gravest of this one.
        severity = entry["severity"] if entry["severity"] in SEVERITIES else WARNING
        found = cls(entry["code"], severity, entry["values"], _settled(entry.get("parts")))
        from reid_dist.core.finding_words import is_worded

        if is_worded(found.code, found.values):
            return found
        return cls(TEXT, found.severity, {"text": entry["text"]})


def info(code: str, **values: Any) -> Finding:
    """Return a finding that leaves no number in doubt."""
    return Finding(code, INFO, values)


def caution(code: str, **values: Any) -> Finding:
    """Return a finding of numbers that mean less than they seem to."""
    return Finding(code, CAUTION, values)


def warning(code: str, **values: Any) -> Finding:
    """Return a finding of numbers that are likely wrong."""
    return Finding(code, WARNING, values)


def gravest_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return different findings in the order of their severities."""
    return sorted(dict.fromkeys(findings), key=lambda each: SEVERITIES.index(each.severity))


def by_severity(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Return the sentences of different findings by severity; every severity has a list."""
    different = [*dict.fromkeys(findings)]
    return {severity: [str(each) for each in different if each.severity == severity] for severity in SEVERITIES}


def lines_of(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """Return a word for the severity and the sentence of different findings, the gravest first."""
    return [("note" if each.severity == INFO else each.severity, str(each)) for each in gravest_first(findings)]


def of_parts(findings: Sequence[Iterable[Finding]], part: str, *, warnings_alone: bool = False) -> list[Finding]:
    """Merge the findings of all parts of a job, in order; those that differ in their numbers alone become one.

    `part` is the noun, such as ``split``; with `warnings_alone`, others are merged only if they are equal.
    """
    alike: dict[object, list[tuple[int, Finding]]] = {}
    for place, of_part in enumerate(findings):
        for each in of_part:
            is_own = warnings_alone and each.severity != WARNING
            alike.setdefault(each if is_own else each.kind, []).append((place, each))
    together = []
    for found in alike.values():
        first, each = found[0]
        if len({one for _, one in found}) > 1:
            each = replace(each, parts=(part, len({place for place, _ in found}), len(findings), first))
        together.append(each)
    return together


def _settled(value: Any) -> Any:
    """A value of plain types that never changes."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return tuple(map(_settled, value))
    return value if not isinstance(value, float) or np.isfinite(value) else None


def _listed(value: Any) -> Any:
    return [*map(_listed, value)] if isinstance(value, tuple) else value


def _without_numbers(value: Any) -> Any:
    """A value with one number in the place of all."""
    if isinstance(value, tuple):
        return tuple(map(_without_numbers, value))
    return 0 if isinstance(value, int | float) and not isinstance(value, bool) else value
