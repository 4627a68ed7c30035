"""What must be known before any number of a report: warnings of the run, and how much evidence there is.

Evidence is the share of valid queries and the number of identities.  A mean over 7 of 100 queries, or over 3
identities, prints with as many digits as one over 3,368 queries of 750.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from reid_dist.core.formatting import counted, integer, share
from reid_dist.metrics.confidence import FEW_UNITS, VERY_FEW_UNITS
from reid_dist.relevance.protocols import CAMERA_NOT_COUNTED, ZERO
from reid_dist.reports.notes import WARNING
from reid_dist.reports.report_data import ReportData

CAUTION: Final = "caution"
STRONG: Final = "strong"

_WORDS: Final = {CAUTION: "Caution", STRONG: "Warning"}

# Valid queries of a whole data set are nearly all of its queries.  Below half, the mean is that of a minority; below a
# tenth, labels, cameras or splits that do not fit each other are the likelier explanation.
_HALF: Final = 0.5
_TENTH: Final = 0.1


@dataclass(frozen=True, slots=True)
class Caution:
    """Warnings and little evidence, in words.

    Attributes
    ----------
    level
        ``"caution"`` or ``"strong"``.
    reasons
        Why, a clause each.
    """

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


def report_caution(report: ReportData) -> Caution | None:
    """Return the caution that a report calls for; None where there is evidence enough."""
    return caution_of(report.counts, report.protocol, n_identities(report), report.notes)


def without_warnings(notes: Sequence[str]) -> list[str]:
    """Return the notes that are no part of the caution."""
    return [note for note in notes if not note.startswith(WARNING)]


def caution_of(
    counts: Mapping[str, Any], protocol: Mapping[str, Any], identities: int | None, notes: Sequence[str]
) -> Caution | None:
    """Return the caution that counts and warnings call for; None where there is evidence enough and no warning.

    Parameters
    ----------
    counts
        ``n_query``, ``n_valid`` and, where there is one, ``n_invalid_by_reason``.
    protocol
        Its description.
    identities
        Identities that the means rest on; None where that is not known.
    notes
        Notes of the run, of which some are warnings.
    """
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


def n_identities(report: ReportData) -> int | None:
    """Return the number of identities that the means of a report rest on; None where it is not known."""
    pids, reasons = report.per_query.get("pid"), report.per_query.get("reason")
    if pids is None or reasons is None:
        return None
    counts_as_zero = report.protocol.get("invalid_query") == ZERO
    number = len(np.unique(pids if counts_as_zero else pids[reasons == ""]))
    # Relevance by lists needs no identities, and one pid for all queries is then a placeholder.
    return None if number == 1 and "ground_truth" in report.protocol else number
