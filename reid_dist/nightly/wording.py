"""Formatting of times, sizes, changes and verdicts for people."""

from __future__ import annotations

import re
from typing import Final

from reid_dist.core import formatting
from reid_dist.core.formatting import byte_size
from reid_dist.nightly.history.values import INCOMPARABLE, UNDECIDED, Change, Estimate, Finding, moment
from reid_dist.reports import words
from reid_dist.reports.words import is_share

_HEXADECIMAL: Final = re.compile(r"\b[0-9a-f]{16,}\b")
_LONGEST: Final = 100
_NAMES: Final = {"seconds": "time", "peak_bytes": "peak memory"}
_TOO_FEW: Final = re.compile(r"no verdict yet \((\d+ of \d+ [a-z]+)")


def when(stamp: str) -> str:
    """Return a time of ISO 8601 as ``2026-03-09 02:00 UTC``; any other text unchanged."""
    found = moment(stamp)
    return stamp if found is None else f"{found:%Y-%m-%d %H:%M} UTC"


def tick_day(stamp: str) -> str:
    """Return the day of a time as ``Mar 9``; of any other text its first 10 characters."""
    found = moment(stamp)
    return stamp[:10] if found is None else f"{found:%b} {found.day}"


def took(started: str, finished: str | None) -> str:
    """Return the duration of a run; empty if unknown."""
    begin, end = moment(started), moment(finished or "")
    if begin is None or end is None:
        return ""
    seconds = (end - begin).total_seconds()
    # Times of runs have whole seconds.
    return "" if seconds < 0 else formatting.duration(seconds) if seconds else "less than 1 s"


def value_text(name: str, value: float | None) -> str:
    """Return a metric, a time or a size with its unit."""
    if value is None:
        return "undefined"
    if name == "seconds":
        return formatting.duration(value)
    return byte_size(value) if name == "peak_bytes" else words.metric_value(name, value)


def estimate_text(name: str, estimate: Estimate | None) -> str:
    """Return a metric with its interval, if known."""
    if estimate is None:
        return "-"
    text = value_text(name, estimate.value)
    if estimate.low is None or estimate.high is None:
        return text
    # The value has the unit already.
    return f"{text} {words.interval(name, (estimate.low, estimate.high)).removesuffix(' %')}"


def difference_text(change: Change, *, interval: bool = False) -> str:
    """Return a change in points, or as a ratio of times or sizes, optionally with its interval; empty if unknown."""
    if change.difference is None:
        return ""
    if change.name in _NAMES:
        return f"\N{MULTIPLICATION SIGN} {change.difference:.2f}"
    scale, digits, unit = (100, ".2f", " points") if is_share(change.name) else (1, ".4g", "")
    text = f"{scale * change.difference:+{digits}}{unit}"
    if interval and change.low is not None and change.high is not None:
        text += f" [{scale * change.low:+{digits}}, {scale * change.high:+{digits}}]"
    return text.replace("-", "\N{MINUS SIGN}")


def change_text(change: Change) -> str:
    """Return a change as ``mAP 85.20 % → 83.37 % (-1.83 points)``, with a true minus sign."""
    text = f"{_NAMES.get(change.name, change.name)} {value_text(change.name, change.baseline)} \N{RIGHTWARDS ARROW} "
    text += value_text(change.name, change.candidate)
    difference = difference_text(change, interval=True)
    return f"{text} ({difference})" if difference else text


def finding_text(finding: Finding) -> str:
    """Return the reason of a finding, beginning with its alarm; where it was not compared, with the values."""
    if finding.alarm:
        return finding.reason if finding.reason.startswith(finding.alarm) else f"{finding.alarm}: {finding.reason}"
    moves = [
        change_text(change)
        for change in (finding.changes if finding.is_uncompared else ())
        if change.verdict == INCOMPARABLE and None not in (change.baseline, change.candidate)
    ]
    return "; ".join([*([", ".join(moves)] if moves else []), finding.reason])


def brief_verdict(finding: Finding) -> str:
    """Return a verdict; for a gate that needs more nights their count, as ``2 of 7 runs``."""
    found = _TOO_FEW.match(finding.reason) if finding.verdict in (INCOMPARABLE, UNDECIDED) else None
    return finding.verdict if found is None else found[1]


def shortened(text: str, *, most: int = _LONGEST) -> str:
    """Return a text of at most so many characters, with digests cut to eight digits."""
    return formatting.shortened(_HEXADECIMAL.sub(lambda found: found[0][:8], text), most)


def jobs(count: int) -> str:
    """Return ``1 job`` or ``12 jobs``."""
    return formatting.counted(count, "job")
