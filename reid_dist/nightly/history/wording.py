"""Words that gates, pages and tables share."""

from __future__ import annotations

import re
from typing import Final

from reid_dist.nightly.history.values import INCOMPARABLE, UNDECIDED, Finding

__all__ = ["brief_verdict", "size"]

_TOO_FEW: Final = re.compile(r"cannot tell yet \((\d+ of \d+ [a-z]+)")


def brief_verdict(finding: Finding) -> str:
    """Return a verdict in a few words: of a gate that waits for more nights, how many it has, as ``2 of 7 runs``."""
    found = _TOO_FEW.match(finding.reason) if finding.verdict in (INCOMPARABLE, UNDECIDED) else None
    return finding.verdict if found is None else found[1]


def size(n_bytes: float) -> str:
    """Return a number of bytes in the unit that a person would choose."""
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if n_bytes >= 2**power:
            return f"{n_bytes / 2**power:,.{0 if n_bytes >= 100 * 2**power else 1}f} {unit}"
    return f"{n_bytes:.0f} B"
